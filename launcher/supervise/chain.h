/*
 * chain — the jobs that wait in Slurm's queue to continue this run.
 *
 * Each of them starts when the jobs before it have ended, and continues from the last checkpoint.
 * `muster submit --chain N` queues all of them at once. With [slurm] chain = yes each job queues the
 * next one after its first step, so that it grows old in the queue while this one trains. It queues
 * none if CHAIN_FUTILE jobs before it began at the same step: the run makes no progress.
 *
 *     end of this job                       the waiting jobs
 *     all steps are done, the job failed    are cancelled
 *     a person stops it, scancel            are cancelled
 *     it gave up, or its time is over       stay if this job has committed a checkpoint
 *     preempted, requeued, anything else    stay
 *
 * The run's submissions.jsonl lists the jobs (launcher/rundir/submissions.h). Those that wait are the
 * ones after this job with the same submission.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_CHAIN_H
#define MUSTER_LAUNCHER_SUPERVISE_CHAIN_H

#include "launcher/launch.h"

#include <stdbool.h>

struct supervisor;
struct queueing;

enum {
	CHAIN_FUTILE = 3,
	CHAIN_AGAIN_S = 60, /* until another attempt to queue a job */
	RECORD_AGAIN_S = 1, /* until another look for this job's record, so often: */
	RECORD_LOOKS = 30,
};

struct chain_state {
	struct queueing *queueing; /* the next job is being submitted; NULL: none is */
	bool settled;              /* nothing is left to queue */
	bool warned;               /* that the next job cannot be queued */
	int submission;            /* of this job */
	double again;              /* the next attempt is not before this time */
	int looks;                 /* for this job's record, in vain */
};

/* While it trains: queues the next job if that is due. */
void supervise_chain_tick(struct supervisor *s);
/* The job that continues the run after this one. false: none waits. */
bool supervise_chain_next(const struct supervisor *s, char id[LAUNCH_JOB_ID]);
/* Queues another job of this submission, which continues the run: for a job that Slurm ends and that
 * cannot be requeued. It takes some seconds. */
int supervise_chain_submit_again(struct supervisor *s, struct err *e);
/* The run has ended, s->status is set: cancels the waiting jobs if nothing is left for them. */
void supervise_chain_end(struct supervisor *s);
void supervise_chain_close(struct supervisor *s);

#endif
