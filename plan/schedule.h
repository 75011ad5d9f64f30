/*
 * schedule — the pipeline's table of steps, one row a stage.
 *
 * The same table is checked before anything runs, simulated by the cost model,
 * executed by agent/pipeline and drawn by `muster plan --schedule`. Sends
 * never wait (the executor keeps the buffers until they have left); receives
 * wait for their message; messages between two stages are matched in order.
 */
#ifndef MUSTER_PLAN_SCHEDULE_H
#define MUSTER_PLAN_SCHEDULE_H

#include "base/err.h"
#include "plan/job.h"

/* To add a schedule: a value in enum job_schedule and its word in job_keys.c, a row in schedule.c's table of kinds. */

enum sched_op {
	SCHED_RECV_ACT,  /* activations of `micro` from the stage before */
	SCHED_FORWARD,
	SCHED_SEND_ACT,  /* to the stage after */
	SCHED_RECV_GRAD, /* gradient of this stage's output from the stage after */
	SCHED_BACKWARD,
	SCHED_SEND_GRAD, /* gradient of this stage's input to the stage before */
	SCHED_REDUCE,    /* gradients of this stage are complete: their reduction over dp may start (during the last BACKWARD, layer by layer) and must end */
};

struct sched_step {
	enum sched_op op;
	int micro; /* -1: REDUCE, the last step of every row */
};

struct sched_row {
	struct sched_step *steps;
	int n;
	int live; /* most micro-batches whose activations this stage keeps at once */
};

struct schedule {
	enum job_schedule kind;
	int stages, micros;
	struct sched_row *rows; /* one a stage */
};

int schedule_build(enum job_schedule kind, int stages, int micros, struct schedule *out, struct err *e);
/* `live` of a row, without building the table. */
int schedule_live(enum job_schedule kind, int stages, int micros, int stage);
void schedule_free(struct schedule *s);

/* Proves: every micro-batch forward and backward once and in that order, each receive matched by its send in
 * order, no deadlock, live as stated. */
int schedule_check(const struct schedule *s, struct err *e);

/* Simulated time of the table when a forward of stage s takes fwd[s], a backward bwd[s], a message `hop` (all in
 * seconds); *bubble is the idle share of the stages' time. -1 when the table deadlocks or memory lacks. */
double schedule_simulate(const struct schedule *s, const double *fwd, const double *bwd, double hop, double *bubble);

const char *sched_op_word(enum sched_op op);

#endif
