/*
 * schedule_closed_form — the time of a pipeline schedule in closed form, without its table.
 *
 * The search uses it: it allocates nothing and takes a few operations. Each schedule's form is the
 * longest of a few paths through its table: the path through the busiest rank, and the path of the
 * messages down the pipeline and back. If all stages take equally long and messages take no time,
 * the form is the one of the schedule's paper and equals the simulated time.
 * tests/unit/plan/test_step.c states how close it is otherwise.
 */
#ifndef MUSTER_PLAN_SPEC_SCHEDULE_CLOSED_FORM_H
#define MUSTER_PLAN_SPEC_SCHEDULE_CLOSED_FORM_H

#include "plan/spec/schedule/kinds.h"

/* Seconds of one micro-batch on a pipeline rank. */
struct pipeline_rank_times {
	double forward, input, weight; /* of all its chunks */
	/* forward and backward pass of its first chunk, of its last chunk */
	double first, last;
};

/* The figures of all ranks that the closed forms read. It starts as {0}; schedule_times_add adds
 * the ranks in the order of the pipeline. */
struct pipeline_times {
	int ranks;
	struct pipeline_rank_times sum;        /* of all ranks */
	struct pipeline_rank_times busiest;    /* the rank with the most work */
	struct pipeline_rank_times head, tail; /* the pipeline's first and last rank */
	double most_forward, most_backward;
	double busy;          /* of the busiest rank: forward + input + weight */
	int busiest_at;       /* its rank in the pipeline */
	int n_busiest;        /* how many ranks have as much work */
	double before, after; /* forward + input of the ranks before and after it */
	/* the passes of the first chunk of the ranks before it, and of the last chunk of the ranks
	 * after it */
	double fill;
};
void schedule_times_add(struct pipeline_times *p, const struct pipeline_rank_times *r);

/* Seconds of a whole run of `micros` micro-batches. chunks: virtual stages per rank. hop: seconds
 * of a message between neighbours. */
double schedule_seconds(const struct pipeline_times *p, enum job_schedule kind, int chunks,
			int micros, double hop);

/* --- Helpers of the schedules' forms ------------------------------------------ */

/* The first micro-batch down the pipeline and back. */
double schedule_seconds_through(const struct pipeline_times *p, double hop);
/* The form of schedules that go round the ranks `chunks` times: `group` micro-batches pass all
 * ranks before their next chunk begins. work: seconds of all micro-batches on the busiest rank;
 * forward, backward: its seconds of one micro-batch in each direction. */
double schedule_seconds_looped(const struct pipeline_times *p, int chunks, int group, double work,
			       double forward, double backward, double hop);

#endif
