/*
 * pipe — the time of a pipeline's schedule table in closed form, for searching: no table, no
 * memory.
 *
 * Each form is the longest of a few paths through the table: through the busiest rank, and through
 * the messages that go down the pipeline and back. Where all stages take equally long and messages
 * take no time it is the textbook's (schedule.h names them) and equal to the simulated table;
 * tests/unit/plan/test_step.c says how near it is otherwise.
 */
#ifndef MUSTER_PLAN_COST_PIPE_H
#define MUSTER_PLAN_COST_PIPE_H

#include "plan/spec/job/job.h"

/* Seconds of one micro-batch on a pipeline rank: of all its chunks, and of its first and its
 * last one. */
struct pipeline_rank_times {
	double forward, input, weight;
	double first, last; /* forward and backward of one chunk */
};

/* What the forms read of all ranks; begin with {0}, add them in the order of the pipeline. */
struct pipe {
	int ranks;
	/* of all; the busiest; the pipeline's first and last */
	struct pipeline_rank_times sum, slow, head, tail;
	double most_forward, most_backward;
	double busy;          /* of the busiest: forward + input + weight */
	int at, heavy;        /* its place; how many are as busy */
	double before, after; /* forward + input of the ranks before and after it */
	/* of the ranks before it their first chunk's passes, of those after it their last
	 * chunk's */
	double fill;
};
void schedule_times_add(struct pipe *p, const struct pipeline_rank_times *r);

/* chunks: of each rank. hop: seconds of a message between neighbours. */
double schedule_seconds(const struct pipe *p, enum job_schedule kind, int chunks, int micros,
		      double hop);

#endif
