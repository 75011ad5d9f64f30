/*
 * look — what a run does now, or how it ended, from wherever that can be known.
 *
 *     its supervisor   answers within a time limit: the state of this moment
 *     state.json       otherwise; at most some seconds old while a supervisor is at work
 *     Slurm            for a run that waits in the queue, and for a supervisor that cannot be reached
 *
 * If the file says that a supervisor is at work, but none answers, the reader finds out whether it is
 * still there: by its process on this host, by its job in Slurm, or by the age of the file. A run
 * whose supervisor is gone is RUNDIR_STATE_LOST.
 */
#ifndef MUSTER_LAUNCHER_CONSOLE_LOOK_H
#define MUSTER_LAUNCHER_CONSOLE_LOOK_H

#include "base/err.h"
#include "base/run_paths.h"
#include "launcher/rundir/state.h"
#include "launcher/slurm/queue_jobs.h"

#include <stdbool.h>

/* Seconds that a supervisor may take to answer, and after which a file that nobody renews is old. */
#define LOOK_ANSWER_S 0.3
enum { LOOK_OLD_S = 30 };

/* How much Slurm is asked, which takes about 0.1 s for each job. */
enum look_depth {
	LOOK_QUICK, /* only if nothing else tells what the run does */
	LOOK_FULL   /* also whether a run that has stopped waits in the queue again */
};

struct look {
	char run[RUN_PATH];
	enum rundir_state_id id;   /* the state as people should see it */
	bool live;                 /* the supervisor has answered */
	json_t *object;            /* NULL: the run has no state.json yet */
	struct rundir_state state; /* borrows from `object`; zero without it */
	double age;                /* seconds since the object was made */
	char note[700];            /* what else is known about the supervisor; "": nothing */
	bool has_job;              /* Slurm was asked for a job, which it knows */
	struct queue_job job;
};

/* May be called from any thread. run: the run folder. ERR_DENIED: it is another user's. ERR_PROTO: state.json is damaged or of a newer
 * version. ERR_NOTFOUND: nothing is known about it. */
int console_look(const char *run, enum look_depth depth, struct look *out, struct err *e);
void console_look_fini(struct look *l);

/* queue.c: asks Slurm for the run's job: that of its last submission, or `id`, if it is not NULL.
 * ERR_NOTFOUND: the run has none, or Slurm does not know it (any more). */
int console_queue_ask(const char *run, const char *id, struct queue_job *out, struct err *e);
/* When the last job of the run was submitted, in seconds since 1970; 0: none was. */
double console_queue_submitted(const char *run);
/* Whether the job waits, or runs. */
bool console_queue_waits(const struct queue_job *j);
bool console_queue_runs(const struct queue_job *j);

#endif
