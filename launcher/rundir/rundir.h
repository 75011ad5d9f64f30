/*
 * rundir — a run's folder, <job.run_dir>/<job.name>. It is private to its user.
 *
 * muster refuses a folder that belongs to another user or that others may write to. It makes a
 * folder private if others may read it.
 *
 *     job.ini                 the resolved job with every default. Its first line is RUNDIR_MARK. A
 *                             job.ini without that line belongs to a person and is never replaced
 *     submit-<n>.ini          the resolved job of each submission: a queued job runs what was
 *                             submitted
 *     submit-<n>.sbatch       the batch script of each submission
 *     submissions.jsonl       the queued jobs of the run (launcher/rundir/submissions.h)
 *     plan-<generation>.json  the plan that the generation was started with
 *     preflight.json          the figures of every node, if launch.preflight = full has measured them
 *                             (launcher/supervise/burn_in_report.c)
 *     choices                 the algorithms that the run chose by measurement, with device = cuda
 *                             (base/choices.h, agent/engine/train/agree_choices.h)
 *     events.jsonl            what happened (launcher/rundir/events.h)
 *     metrics.jsonl           one line per step: time, mono and generation as in an event, the
 *                             fields of the message `metrics` (base/messages.h), and predicted_s.
 *                             After a restart a step may appear again; its last line counts
 *     health.jsonl            why ranks are slow, and defects of their nodes (struct rundir_health of
 *                             launcher/rundir/events.h): a line per window and rank in which that
 *                             changed. The file exists once there is such a line
 *     time.jsonl              where the time of all ranks went so far (launcher/rundir/time.h)
 *     metrics.<n>.jsonl       earlier lines of metrics.jsonl, and events.<n>.jsonl and so on: these
 *                             files are split (launcher/rundir/output.h) and old parts are thinned
 *                             (launcher/rundir/thin.h)
 *     rollbacks.jsonl         what is skipped because numbers became bad (launcher/rundir/rollbacks.h)
 *     ledger.jsonl            what the agents consumed (agent/engine/data/ledger_lines.h); ledger.<n>.jsonl
 *                             are earlier parts (agent/engine/data/ledger_parts.h)
 *     logs/                   <node>-<rank>.log of each agent, unless it stays on its node (log.local),
 *                             for which id has a random number (plan/spec/job/node_path.h);
 *                             <node>-<rank>.<n>.log are earlier parts (agent/log_parts.h);
 *                             launch-<generation>.log: what agents and srun print outside these logs; slurm-<id>.out of a submission
 *     trace/gen-<generation>/ comm-<rank>.json: the flight recorder of a rank, written if an
 *                             operation failed or the generation hung; timeline-<rank>.json: what
 *                             the rank did in the last step of a pipeline that ended well
 *                             (plan/spec/schedule/timeline.h); steps-<rank>.json: what the rank did
 *                             in the steps of [trace] steps or muster trace --next
 *                             (agent/engine/train/step_trace.h). muster keeps the last RUNDIR_TRACES
 *                             generations
 *     tensorboard/            events.out.tfevents.*: one for each muster run, if the job asks for them
 *                             (launcher/exports/tensorboard.h)
 *     ckpt/                   checkpoints, unless the job names another folder
 *     state.json              what the run does now, or how it ended (launcher/rundir/state.h)
 *     control                 while it runs: where its supervisor is reached, with a secret
 *                             (launcher/rundir/control.h)
 *     .pmix/                  the embedded PMIx server's files while it runs
 *     lock                    locked by the muster that runs here; it contains that muster's pid
 *
 * base/run_paths.h builds these paths.
 *
 * Both muster and a tool of the agent use this room: muster writes the folder, and `muster trace`
 * (agent/tools/trace.c) reads from it. So one room holds the writers and the readers of its files.
 *
 * Every file that muster opens here is a regular file (base/file.h, FILE_OWN), and logs/ and trace/
 * are folders: a symbolic link, a FIFO or a device of that name is refused. The run folder itself
 * and ckpt/ may be symbolic links to folders.
 *
 * A run that is started again continues in its folder: files are appended to, and generations are
 * numbered on.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_RUNDIR_H
#define MUSTER_LAUNCHER_RUNDIR_RUNDIR_H

#include "base/err.h"
#include "base/messages.h"
#include "launcher/rundir/thin.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define RUNDIR_MARK "; written by muster"

struct rundir;

/* Creates what is missing and takes the lock. ERR_ABORTED: another run holds it. */
int rundir_open(const char *parent, const char *name, struct rundir **out, struct err *e);
void rundir_close(struct rundir *r);

const char *rundir_path(const struct rundir *r); /* absolute */
/* The number after the highest generation in the folder; 1 in a new one. */
uint32_t rundir_next_generation(const struct rundir *r);

int rundir_save_job(struct rundir *r, const char *text, struct err *e);
int rundir_save_plan(struct rundir *r, uint32_t generation, json_t *plan, struct err *e);
/* Borrows `figures`. */
int rundir_save_preflight(struct rundir *r, json_t *figures, struct err *e);

/* The number after the highest submission in the run folder `path`, which need not exist. */
uint32_t rundir_next_submission(const char *path);
/* Creates the run folder if it is missing and writes submit-<number>.ini, the job, and
 * submit-<number>.sbatch, its batch script. Takes no lock, because a submission waits behind the
 * muster that runs there. ERR_ABORTED: the number is taken. */
int rundir_save_submission(const char *parent, const char *name, uint32_t number, const char *job,
			   const char *script, struct err *e);

/* Removes the files of a submission that was refused; number 0: it has none. created: the
 * submission has created the run folder, which is removed with its folders if they are empty. */
void rundir_drop_submission(const char *path, uint32_t number, bool created);

/* clang-format off */

/* What a line of metrics.jsonl has besides the message `metrics`. */
#define RUNDIR_PREDICTED_FIELDS(F) \
	F(predicted_s, NUMBER, REQUIRED, "seconds of a step by the plan; not finite: the job runs a program")

#define RUNDIR_METRICS_FIELDS(F) \
	MSG_METRICS_FIELDS(F) \
	RUNDIR_PREDICTED_FIELDS(F)

/* clang-format on */

/* Appends a line to metrics.jsonl, as rundir_event_*() does to events.jsonl. predicted_s: seconds
 * of a step by the plan. */
void rundir_metrics(struct rundir *r, uint32_t generation, const struct msg_metrics *m,
		    double predicted_s);
/* For a simulation of a run: the clocks of all lines, and who sees them. */
struct rundir_watch {
	double (*wall)(void), (*mono)(void); /* seconds, as `time` and `mono` of an event */
	/* A line of this file is written; text: the same. event: NULL in all files but events.jsonl. */
	void (*line)(void *arg, enum rundir_file file, const char *event, const json_t *line,
		     const char *text);
	void *arg;
};
void rundir_set_watch(struct rundir *r, const struct rundir_watch *w);

/* The most bytes that the files of JSON lines may take ([metrics] keep); RUNDIR_KEEP until it is
 * called. */
void rundir_set_keep(struct rundir *r, int64_t keep);
/* Whether old lines may have to be thinned (launcher/rundir/thin.h): a file was split, or had been
 * before the folder was opened. */
bool rundir_thin_due(const struct rundir *r);
/* Fills in what rundir_thin() needs, which the caller runs on another thread; none is due then. */
void rundir_thin_begin(struct rundir *r, struct rundir_thinning *out);
/* Lines that could not be written. */
int rundir_lost(const struct rundir *r);
/* Somebody may delete files while the run goes on. A line whose file was deleted begins a new file;
 * without the run folder it is lost. Returns, once for each such event, what people should know,
 * valid until the next line; otherwise NULL. */
const char *rundir_trouble(struct rundir *r);
/* Makes the file RUN_LOGS_ID, unless it exists. */
int rundir_make_logs_id(struct rundir *r, struct err *e);
/* Makes logs/ and ckpt/ again if they were deleted. ERR_NOTFOUND: the run folder or its lock
 * was. */
int rundir_renew(struct rundir *r, struct err *e);

/* Appends a line with the fields of a table to a file whose lines have no event; creates the file if
 * it is missing. */
void rundir_append(struct rundir *r, enum rundir_file file, uint32_t generation,
		   const struct fields_row *rows, const void *fields);
/* For launcher/rundir/events.c: appends a line to events.jsonl. */
void rundir_append_event(struct rundir *r, uint32_t generation, const char *name,
			 const struct fields_row *rows, const void *fields);

#endif
