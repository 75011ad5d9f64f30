/*
 * uploads — copies the run's checkpoints to checkpoint.remote, behind training.
 *
 * A child process copies one checkpoint and ends (muster-agent ckpt upload, agent/tools). The
 * supervisor starts it when the run starts, because an earlier one may have left something, after
 * each commit, and again as long as it finds something to copy. A failure is reported once until a
 * copy succeeds; tries follow at growing intervals, and training never depends on them.
 *
 * At the end of a run, SUP_UPLOADING waits for what is left, for at most checkpoint.remote_wait. A
 * stop ends the wait, and a run that was stopped does not wait: the next one continues. The run's
 * exit status does not depend on the copies.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_UPLOADS_H
#define MUSTER_LAUNCHER_SUPERVISE_UPLOADS_H

#include <stdbool.h>
#include <stdint.h>

struct supervisor;
struct child;

struct uploads_state {
	struct child *child; /* NULL: none runs */
	bool again;          /* a checkpoint was committed while it ran */
	double next_at;      /* when the next one starts; 0: there is nothing to copy */
	int failures;        /* since the last success */
	bool denied;         /* trying again would not help */
	int64_t left;        /* checkpoints to copy, as last heard; -1: unknown */
};

/* The run starts, or has committed a checkpoint. Nothing if the job has no checkpoint.remote. */
void supervise_uploads_look(struct supervisor *s);
void supervise_uploads_tick(struct supervisor *s);
/* Whether the end of the run, of this exit status, waits for copies. If so, it says so. */
bool supervise_uploads_wait(struct supervisor *s, int status);
/* The wait is over: stops the copy, and says what is left. */
void supervise_uploads_leave(struct supervisor *s);
void supervise_uploads_close(struct supervisor *s);

#endif
