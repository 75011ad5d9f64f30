/*
 * queue — submits batch scripts to Slurm's queue, and cancels jobs that wait there, by sbatch and
 * scancel.
 */
#ifndef MUSTER_LAUNCHER_SLURM_QUEUE_H
#define MUSTER_LAUNCHER_SLURM_QUEUE_H

#include "base/buf.h"
#include "base/err.h"
#include "launcher/launch.h"

/* Submits the text of a batch script and returns the id of the job. dependency: replaces the one in
 * the script; NULL: the script's. */
int slurm_queue_submit(const char *script, const char *dependency, char id[LAUNCH_JOB_ID],
		       struct err *e);

/* launch_slurm's operation job_waits (launcher/launch.h). */
bool slurm_queue_waits(const char *id);

/* Cancels those of the user's jobs with these ids that still wait in the queue. The others are left
 * alone. */
int slurm_queue_cancel(const char *const *ids, int n, struct err *e);

/* launch_slurm's operations of the same names (launcher/launch.h). */
const char *slurm_own_job(void);
int slurm_queue_next(uv_loop_t *loop, const char *script,
		     void (*done)(void *arg, const char *id, const char *why), void *arg,
		     struct queueing **out, struct err *e);
void slurm_queue_next_end(struct queueing *q);
int slurm_queue_submit_again(const char *script, char id[LAUNCH_JOB_ID], struct err *e);
int slurm_comment(uv_loop_t *loop, const char *text,
		  void (*ended)(void *arg, int status, const char *output), void *arg,
		  struct child **out, struct err *e);

/* The environment for a new job: this process's, without the variables of the job, step, array or
 * heterogeneous job in which this process may run: `muster run` would take them for its own. NULL: no
 * memory. The caller frees the list. */
char **slurm_queue_environment(void);

/* Appends when Slurm expects to start the script, as a line. Nothing if Slurm does not answer. */
void slurm_queue_start(const char *script, struct buf *out);

/* The remedy for what sbatch or sinfo said, "; …", or "". */
const char *slurm_queue_remedy(const char *text);

#endif
