/*
 * schedule — pipeline schedules: the table of steps, one row for each pipeline rank.
 *
 * The same table is checked before anything runs, simulated by the cost model, executed by
 * agent/engine/pipeline and drawn by `muster plan --schedule`. A rank holds `chunks` (virtual
 * stages) of the model; layout.h defines which. A step names its chunk and micro-batch. Sends never
 * wait: the executor keeps the buffers until they have left. Receives wait for their message.
 * Between two ranks there is one channel for activations and one for gradients in each direction. A
 * channel's messages are received in the order in which they were sent. Where a stage and the next
 * one are on one rank (the turn of the V, or a pipeline of one rank), there is no message: the
 * executor hands the buffer over.
 *
 * Every schedule runs the forward passes of a chunk in the order of the micro-batches, and also the
 * backward passes that add to its gradients. So all schedules sum gradients in the same order.
 * kinds.h lists the schedules.
 *
 * To add a schedule, there are 3 things to do:
 *   1. Add to kinds.h a line of the list (name, row, the value of parallel.schedule, help) and a
 *      line of its comment (the paper).
 *   2. Write plan/spec/schedule/<name>.c. It defines the row, `const struct schedule_kind
 *      schedule_<row>`, and the two functions that the row needs: the generator (order.h) and the
 *      closed form of its time (closed_form.h). breadth_first.c is a short example.
 *   3. Add to tests/unit/plan/test_schedule_kinds.c: a golden row, the paper's bubble and the bound
 *      on live activations. (If the closed form errs by more than 3 % in the mean or 20 % in one
 *      case, tests/unit/plan/test_step.c needs a line with its bounds.)
 * Everything else reads the table: the job keys, their checks and help, the layout, the search, the
 * cost model, the executor, the drawing. The tests that run over all schedules (tables that pass
 * the check, simulation, closed form, equality with one process) pick up the new one by themselves.
 */
#ifndef MUSTER_PLAN_SPEC_SCHEDULE_SCHEDULE_H
#define MUSTER_PLAN_SPEC_SCHEDULE_SCHEDULE_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"

#include <stdbool.h>

struct order;
struct pipeline_times;
struct timeline;

/* One schedule's traits. A member that is left out is 0 or false. */
struct schedule_kind {
	/* Lists the passes of one rank (order.h). */
	void (*list_passes)(struct order *o);
	/* Seconds of a run in closed form (closed_form.h). */
	double (*seconds)(const struct pipeline_times *p, int chunks, int micros, double hop);
	/* The bound on live activations: a number of micro-batches, at most `micros`, that keeps as
	 * many alive on each chunk as `micros` do. NULL: all micro-batches are alive at once. */
	int (*enough_micros)(int pp, int micros);
	int chunks_least, chunks_most; /* virtual stages per rank; the least is the default */
	bool vee;                      /* two chunks per rank in the shape of a V (layout.h) */
	bool loops;                    /* the stages go round the ranks: it needs pp >= 2 */
	bool splits;                   /* backward passes come in two halves */
	bool searched;                 /* parallel.schedule = auto tries it */
	/* How complex the schedule is for a person, 0 to 3. Of two configurations that take equally
	 * long the search prefers the lower one. */
	int complexity;
};

extern const struct schedule_kind *const schedule_kinds[SCHEDULES];

enum sched_op {
	SCHED_RECV_ACT, /* the chunk's input, from the stage before */
	SCHED_FORWARD,
	SCHED_SEND_ACT,       /* to the stage after */
	SCHED_RECV_GRAD,      /* gradient of the chunk's output, from the stage after */
	SCHED_BACKWARD,       /* both halves */
	SCHED_BACKWARD_INPUT, /* the gradient of the chunk's input alone */
	/* the weights' gradients, after the BACKWARD_INPUT of the same micro-batch */
	SCHED_BACKWARD_WEIGHT,
	/* gradient of the chunk's input, to the stage before; after BACKWARD or BACKWARD_INPUT */
	SCHED_SEND_GRAD,
	/* this rank's gradients are complete; their reduction over replicas, which began unit by
	 * unit in the last backward passes, must end */
	SCHED_REDUCE,
	SCHED_OPS
};

struct sched_step {
	enum sched_op op;
	int chunk, micro; /* -1, -1: REDUCE, the last step of every row */
};

/* A micro-batch of a chunk takes a slot from its FORWARD to its BACKWARD or BACKWARD_WEIGHT. In a
 * table of forward passes alone it takes the slot until it was sent, or until the next chunk's
 * FORWARD has read it. */
struct sched_slots {
	int live[LAYOUT_CHUNKS_MAX]; /* most slots of each chunk that are taken at once */
	int most; /* most slots of all chunks together; at most the sum of `live` */
	/* most slots of each chunk whose backward pass has not begun, not even its first half */
	int whole[LAYOUT_CHUNKS_MAX];
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
	bool forwards_only;     /* the table of an evaluation */
	struct sched_row *rows; /* [layout.pp] */
};

/* The layout's chunks and vee must be those of the schedule (layout_of); otherwise the result is
 * ERR_INTERNAL. micros: micro-batches of one replica. */
int schedule_build(enum job_schedule kind, const struct layout *l, int micros, struct schedule *out,
		   struct err *e);
/* A table of forward passes alone, without REDUCE, for evaluations. It is the same for every
 * schedule. */
int schedule_build_forwards(const struct layout *l, int micros, struct schedule *out,
			    struct err *e);
void schedule_free(struct schedule *s);

/* The slots of one rank's row, without building the table. */
void schedule_slots(enum job_schedule kind, const struct layout *l, int micros, int pp,
		    struct sched_slots *out);
bool schedule_splits(enum job_schedule kind);
/* A number of micro-batches that keeps as many alive as `micros` do. */
int schedule_enough_micros(enum job_schedule kind, int pp, int micros);

/* Proves that the table can be executed: every micro-batch of every chunk has one forward and one
 * backward pass (whole or in two halves) in that order, the micro-batches come in order, each
 * receive matches its send in order, nothing deadlocks, and the slots are as stated. */
int schedule_check(const struct schedule *s, struct err *e);

struct sched_costs {
	/* Seconds of each pass on one micro-batch, [stages of the model]. A BACKWARD takes input +
	 * weight. */
	const double *forward, *input, *weight;
	double hop; /* seconds of a message between two ranks */
	/* For agents that share their node's cores: each `node_ranks` consecutive ranks of the
	 * pipeline are on one node, and a running pass keeps `load` of that node's cores busy (1:
	 * all of them). Passes that ask for more than 1 together get equal shares of the time and
	 * take longer. load 0: each rank has cores of its own. */
	double load;
	int node_ranks;
};

/* Simulates the table and returns its seconds. *idle (or NULL) receives the idle share of the ranks'
 * time. timeline: NULL, or an empty one that receives the passes (timeline.h). Returns -1 if
 * the table deadlocks or memory is lacking. */
double schedule_simulate(const struct schedule *s, const struct sched_costs *c,
			 struct timeline *timeline, double *idle);

const char *schedule_op_word(enum sched_op op);
/* SCHED_OPS if there is no such word. */
enum sched_op schedule_op_of(const char *word);

#endif
