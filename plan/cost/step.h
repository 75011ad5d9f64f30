/*
 * step — a whole step's time from the passes of its stages.
 *
 *   - The pipeline's time is the schedule table's own. A plan simulates the table
 *     (plan/spec/schedule/schedule.h); cost_step has a closed form of it, for searching: no table,
 *     no memory. Both share all else, here.
 *   - Messages between stages travel while their ranks compute; an engine that waits for them is
 *     busy meanwhile.
 *   - The gradients' ring over the replicas (for ZeRO, half of it: a reduce-scatter) hides, if the
 *     engine does so and the job lets it (parallel.overlap), behind the last micro-batch's
 *     backward, under ZeRO 2 and 3 behind each one's; what is longer shows, and at least the last
 *     bucket does. ZeRO 1 and 2 gather the new parameters at the end of the step, or ahead of their
 *     first use behind the next forward pass; ZeRO 3 before each pass, hidden behind the pass
 *     before. What hides behind the same pass adds up.
 *   - The two holders of a tied embedding sum its gradients.
 *   - The optimizer reads and writes seven (AdamW) or five (SGD) words for each parameter that the
 *     rank owns. What is offloaded goes over the host's link.
 *   - ZeRO inside nodes gathers and scatters there, and once a step sums the shards across nodes.
 *   - Replicas wait for the slowest of them: their times spread, and the largest of n normal draws
 *     lies about √(2 ln n) deviations over the mean.
 */
#ifndef MUSTER_PLAN_COST_STEP_H
#define MUSTER_PLAN_COST_STEP_H

#include "plan/cost/cost.h"

/* What a pass makes its pipeline rank busy for: [forward, backward]; input and weight are
 * backward's halves. */
double cost_forward(const struct cost_pass *t);
double cost_backward(const struct cost_pass *t);
void cost_add(struct cost_pass *sum, const struct cost_pass *t);
/* A message between two stages on its way; 0 where the ranks wait for it, and then cost_wait is
 * what each of a pass's two takes of its rank. */
double cost_hop(const struct cost_case *c);
double cost_wait(const struct cost_case *c);
/* What a pass of so many seconds costs besides where more agents than cores share a node: its rank
 * sleeps until the neighbour's message comes and then wants a core that others are busy on. As
 * measured of ranks that wait for one another (struct measured, its meetings); 0 where each has its
 * own. */
double cost_meeting(const struct cost_case *c, double pass);

/* Agents that share their node's cores: what a pass keeps busy of them, and how many pipeline
 * ranks are on a node; 0, 0: a device each. */
struct cost_sharing {
	double load;
	int node_ranks;
};
struct cost_sharing cost_sharing(const struct cost_case *c);
/* The pipeline's time there: the table's, longer where a pass alone asks for more than all cores,
 * but at least that of all ranks' work. busy: seconds of one micro-batch on all pipeline ranks,
 * their meetings too; alone: of the table where each has its own, which this is where agents have a
 * device each. */
double cost_shared(const struct cost_case *c, double busy, double alone);

/* One pipeline rank's share of a step: layers and ends of all its chunks, their passes over a
 * micro-batch. */
struct cost_rank {
	int layers;
	bool first, last;      /* holds the model's first, last stage */
	double scale;          /* of its device */
	struct cost_pass pass; /* of all its chunks, on the fastest device */
};

/* The ranks that decide: begin with {0}, add each rank once, in any order. */
struct cost_sum {
	struct cost_rank slow; /* whose passes take longest */
	double busy;           /* its seconds a micro-batch */
	double dp, optimizer;  /* the most of any rank */
};
/* Seconds of the optimizer on a rank. */
double cost_update(const struct cost_case *c, const struct cost_rank *r);
void cost_sum_add(const struct cost_case *c, const struct cost_rank *r, struct cost_sum *sum);
/* The parts, where the pipeline takes `whole` seconds: of agents that share cores, as long as
 * each takes among the others. */
void cost_sum_parts(const struct cost_case *c, const struct cost_sum *sum, double whole,
		    struct plan_time *out);

/* The whole step in closed form. Exact where all stages take equally long and messages take no
 * time, for every schedule at its usual number of micro-batches; else near
 * (tests/unit/plan/test_step.c holds it to the simulation, and says how near). */
void cost_step(const struct cost_case *c, struct plan_time *out);

#endif
