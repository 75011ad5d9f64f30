/*
 * schedule — the pipeline's table of steps, one row a pipeline rank.
 *
 * The same table is checked before anything runs, simulated by the cost model, executed by
 * agent/pipeline and drawn by `muster plan --schedule`. A rank holds `chunks` of the model's stages
 * (layout.h says which); a step names its chunk and micro-batch. Sends never wait (the executor
 * keeps the buffers until they have left); receives wait for their message. Between two ranks there
 * is a channel for activations and one for gradients each way; a channel's messages are received in
 * the order in which they were sent. Where a stage and the next are on one rank (the turn of the V,
 * or one rank alone) there is no message: the executor hands the buffer over.
 *
 * Every schedule runs the forwards of a chunk in the order of the micro-batches, and so the
 * backwards that add to its gradients: all schedules sum in the same order.
 *
 *     naive        a micro-batch goes through all stages and back before the next begins
 *     gpipe        all forwards, then all backwards (Huang et al., arXiv 1811.06965)
 *     1f1b         as many forwards ahead as there are ranks behind, then one forward, one backward
 *                  (PipeDream-flush, Narayanan et al., arXiv 2006.09503)
 *     interleaved  1f1b over several chunks a rank (Narayanan et al., arXiv 2104.04473).
 *                  Micro-batches go in groups, at least as many as there are ranks in each: their
 *                  number need not be a multiple of the ranks'
 *     zb-h1        1f1b whose weights' gradients fill the bubble, within 1f1b's memory (Qi et al.,
 *                  arXiv 2401.10241)
 *     zb-v         two chunks a rank, there and back; where the three passes take equally long a
 *                  rank never waits between its first step and its last (the same, and arXiv
 *                  2405.15362)
 *
 * To add a schedule: a value in enum job_schedule, its word in keys.c, its order of passes and its
 * row in order.c, a line above, and the tests' tables of kinds.
 */
#ifndef MUSTER_PLAN_SPEC_SCHEDULE_SCHEDULE_H
#define MUSTER_PLAN_SPEC_SCHEDULE_SCHEDULE_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"

#include <stdbool.h>

struct timeline;

enum sched_op {
	SCHED_RECV_ACT, /* the chunk's input, from the stage before */
	SCHED_FORWARD,
	SCHED_SEND_ACT,       /* to the stage after */
	SCHED_RECV_GRAD,      /* gradient of the chunk's output, from the stage after */
	SCHED_BACKWARD,       /* both halves */
	SCHED_BACKWARD_INPUT, /* the gradient of the chunk's input alone */
	/* the weights' gradients of a micro-batch whose BACKWARD_INPUT was before */
	SCHED_BACKWARD_WEIGHT,
	/* gradient of the chunk's input, to the stage before; after BACKWARD or BACKWARD_INPUT */
	SCHED_SEND_GRAD,
	/* gradients of this rank are complete: their reduction over replicas (begun unit by unit
	 * in the last backward passes) must end */
	SCHED_REDUCE,
	SCHED_OPS
};

struct sched_step {
	enum sched_op op;
	int chunk, micro; /* -1, -1: REDUCE, the last step of every row */
};

/* A micro-batch of a chunk lives in a slot from its FORWARD to its BACKWARD or BACKWARD_WEIGHT; in
 * a table of forwards alone, until it was sent or the next chunk's FORWARD has read it. */
struct sched_slots {
	int live[LAYOUT_CHUNKS_MOST]; /* most slots of each chunk that are taken at once */
	/* of all chunks together, at once; the sum of `live` or less */
	int most;
};

struct sched_row {
	struct sched_step *steps;
	int n;
	struct sched_slots slots;
};

struct schedule {
	enum job_schedule kind;
	struct layout layout; /* pp, chunks and vee count */
	int micros;
	bool forwards_only;     /* an evaluation's */
	struct sched_row *rows; /* [layout.pp] */
};

/* The layout's chunks and vee must be the schedule's (layout_of; check.c refuses others).
 * micros: of one replica. */
int schedule_build(enum job_schedule kind, const struct layout *l, int micros, struct schedule *out,
		   struct err *e);
/* Forwards alone, without REDUCE: an evaluation's table, whatever the schedule. */
int schedule_build_forwards(const struct layout *l, int micros, struct schedule *out,
			    struct err *e);
void schedule_free(struct schedule *s);

/* The slots of one rank's row, without building the table. */
void schedule_slots(enum job_schedule kind, const struct layout *l, int micros, int pp,
		    struct sched_slots *out);
/* Whether backward passes come in two halves. */
bool schedule_splits(enum job_schedule kind);
/* How many chunks a rank may have under it; the least is what it has where the job asks for
 * none. */
void schedule_chunks(enum job_schedule kind, int *least, int *most);

/* Proves: every micro-batch of every chunk forward and backward once (in one pass or two halves)
 * and in that order, micro-batches in order, each receive matched by its send in order, no
 * deadlock, slots as stated. */
int schedule_check(const struct schedule *s, struct err *e);

/* Seconds of each pass on one micro-batch, [stages of the model], and of a message between two
 * ranks. */
struct sched_costs {
	const double *forward, *input, *weight; /* a BACKWARD takes input + weight */
	double hop;
	/* Where agents share their node's cores: `mates` ranks, one after the other in the
	 * pipeline, are on one node, and while a pass of one of them runs it keeps `load` of that
	 * node's cores busy, 1 being all of them. Passes that ask for more together get it in equal
	 * shares of the time that they then take longer. load 0: each rank has its own. */
	double load;
	int node_replicas;
};

/* Simulated time of the table; *bubble (or NULL) is the idle share of the ranks' time. timeline:
 * NULL, or an empty one that gets the passes (timeline.h). -1 when the table deadlocks or memory
 * lacks. */
double schedule_simulate(const struct schedule *s, const struct sched_costs *c,
			 struct timeline *timeline, double *bubble);

const char *schedule_op_word(enum sched_op op);
/* SCHED_OPS when there is no such word. */
enum sched_op schedule_op_of(const char *word);

#endif
