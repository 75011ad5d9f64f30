/*
 * rundir — the run folder: <job.run_dir>/<job.name>, private to its user. One that
 * is there already and belongs to another user, or that others may write to, is
 * refused; one that others may read is made private.
 *
 *     job.ini                 the resolved job, every default written out. Its first line says that
 *                             muster wrote it; a file of that name without the line is a person's
 *                             own and is never replaced
 *     submit-<n>.ini          the resolved job of each submission: a queued job runs what was
 *                             submitted
 *     plan-<generation>.json  what each generation was started with
 *     events.jsonl            what happened (below), appended to
 *     metrics.jsonl           one line a step, as the agents send it (base/msg.h), with time and
 *                             generation; after a restart steps come again: the later line counts
 *     ledger.jsonl            what the agents consumed, up to each checkpoint: theirs, as are the
 *                             checkpoints
 *     logs/                   <node>-<rank>.log of each agent, launch-<generation>.log of what they
 *                             print outside it
 *     trace/                  gen-<generation>/comm-<rank>.json: the ranks' flight recorders, where
 *                             an operation failed or nothing went on; timeline-<rank>.json: when
 *                             the pipeline's ranks did what in the last step of a generation that
 *                             ended well (plan/spec/schedule/timeline.h). Of the last RUNDIR_TRACES
 *                             generations
 *     ckpt/                   checkpoints, unless the job says another folder
 *     .pmix/                  the embedded PMIx server's, while it runs
 *     lock                    held by the muster that runs here; its pid is inside
 *
 * What muster opens here are regular files (base/file.h, FILE_OWN), and logs/ and trace/ are
 * folders: a symbolic link, a FIFO or a device of such a name is refused. The run folder and ckpt/
 * may be reached through symbolic links to folders.
 *
 * A run that is started again goes on in its folder: files are appended to and
 * generations are counted on.
 *
 * An event is a line {"event", "time": seconds since 1970, "mono": seconds of
 * the monotonic clock, "generation", …}; both times have microseconds.
 *
 *     plan              {world, tp, dp, pp, step_s: predicted}
 *     generation-start  {resume, restarts}
 *     start-again       {text}                          a helper process died in the first start; the same generation again
 *     started           {}                              every process of the generation runs
 *     hello             {rank, node, pid}
 *     refused           {why}                           a stranger, a stale or second agent, a bad frame
 *     unheard           {why}                           connections cannot be accepted; the first time of a generation
 *     wired             {}                              every rank has said hello
 *     ready             {step}                          every rank is ready to go on from that step
 *     first-step        {step, loss, since_start_s, since_lost_s (after a loss)}
 *     ckpt              {step, path, bytes, seconds, stall_s}
 *     eval              {step, loss}
 *     log               {rank, node, level, text}
 *     rank-lost         {rank, node, how: closed|exited|failed|protocol|silent|hung, status, code,
 *                       text, step, phase}
 *     verdict           {finding, text, group, op, number, ranks, world, missing} of `muster trace
 *                       --json`, or {error}
 *     exit              {rank, status | signal}          of a rank that was lost or ended badly
 *     restart           {generation, delay_s, futile}
 *     stop              {reason, checkpoint}
 *     finished          {step}                          every rank has done what was asked
 *     done | stopped | failed | gave-up  {reason, status: exit status, step, restarts}   the last one of each muster
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_RUNDIR_H
#define MUSTER_LAUNCHER_RUNDIR_RUNDIR_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

#define RUNDIR_MARK "; written by muster"

enum { RUNDIR_TRACES = 8 };

struct rundir;

/* Makes what is missing and takes the lock; ERR_ABORTED when another muster holds it. */
int rundir_open(const char *parent, const char *name, struct rundir **out, struct err *e);
void rundir_close(struct rundir *r);

const char *rundir_path(const struct rundir *r); /* absolute */
/* The number after the highest generation that the folder has seen; 1 in a new one. */
uint32_t rundir_next_generation(const struct rundir *r);

int rundir_save_job(struct rundir *r, const char *text, struct err *e);
/* The same for submissions; the folder need not be there. */
uint32_t rundir_next_submission(const char *path);
/* Makes the run folder where it is missing, and takes no lock: jobs are queued behind the one that
 * runs there. Fails when the number is taken by now. */
int rundir_save_submission(const char *parent, const char *name, uint32_t number, const char *text,
			   struct err *e);
int rundir_save_plan(struct rundir *r, uint32_t generation, json_t *plan, struct err *e);
/* Before a generation starts: removes the flight recorders and timelines of those that are too
 * old. */
void rundir_prune_traces(const struct rundir *r, uint32_t generation);
/* Appends a line; adds time, mono and generation. Steal the reference to
 * `fields`, which may be NULL. A line that cannot be written (a full disk) is lost, and
 * rundir_lost counts it: the run itself goes on. */
void rundir_event(struct rundir *r, uint32_t generation, const char *event, json_t *fields);
void rundir_metrics(struct rundir *r, uint32_t generation, json_t *fields);
int rundir_lost(const struct rundir *r);

#endif
