/*
 * step — the time of a whole step from the passes of its stages.
 *
 *   - The pipeline's time is that of its schedule. A plan simulates the schedule's table
 *     (plan/spec/schedule/schedule.h); cost_step uses its closed form, for searching. Both share
 *     everything else, which is here.
 *   - Messages between stages travel while their ranks compute. An engine that waits for them is
 *     busy meanwhile.
 *   - The gradients' ring over the replicas (under ZeRO half of it, a reduce-scatter) hides behind
 *     the last micro-batch's backward pass, under ZeRO 2 and 3 behind each backward pass, if the
 *     engine supports it and the job allows it (parallel.overlap). What is longer than the pass
 *     counts, and at least the last bucket does. ZeRO 1 and 2 gather the new parameters at the end
 *     of the step, or ahead of their first use behind the next forward pass, except a device's
 *     first bucket. ZeRO 3 gathers before each pass, hidden behind the previous one. Transfers that
 *     hide behind the same pass add up. On a device, whole gradients and new parameters travel in
 *     buckets (zero_bucket), each of which has the fixed cost of one operation.
 *   - The two holders of a tied embedding all-reduce its gradients.
 *   - The optimizer reads and writes a number of words for each parameter that the rank owns (7 for
 *     AdamW, 5 for SGD). What is offloaded goes over the host's link.
 *   - ZeRO inside nodes gathers and scatters there, and once per step all-reduces the shards across
 *     nodes.
 *   - Ranks that share the work of a batch wait for the slowest one: the replicas once per step,
 *     the ranks of a context-parallel group in each layer. Their times vary, and the largest of n
 *     normally distributed times is about √(2 ln n) standard deviations above the mean. n counts
 *     both kinds of ranks, so the wait does not depend on how dp × cp is divided. What the ranks of
 *     a tensor-parallel group wait for each other is part of the machine's rates, because they were
 *     fitted to runs with such groups.
 */
#ifndef MUSTER_PLAN_COST_STEP_H
#define MUSTER_PLAN_COST_STEP_H

#include "plan/cost/cost.h"

/* Seconds for which a forward or backward pass keeps its pipeline rank busy. */
double cost_forward(const struct cost_pass *t);
double cost_backward(const struct cost_pass *t);
/* Adds n times t. */
void cost_add(struct cost_pass *sum, const struct cost_pass *t, double n);
/* Seconds that a message between two stages travels while its ranks compute; 0 if the ranks wait
 * for it. cost_wait is the time for which a rank is then blocked in each of the two transfers of a
 * pass. */
double cost_hop(const struct cost_case *c);
double cost_wait(const struct cost_case *c);
/* The additional seconds of a pass of `pass` seconds if more agents than cores share a node: its
 * rank sleeps until the neighbour's message comes and then needs a core that others are using. It
 * comes from the measured meetings (topo/measured.h); 0 if each agent has a core of its own. */
double cost_meeting(const struct cost_case *c, double pass);

/* For agents that share their node's cores: the share of the cores that a pass keeps busy, and the
 * number of pipeline ranks on a node. 0, 0: each agent has a device of its own. */
struct cost_sharing {
	double load;
	int node_ranks;
};
struct cost_sharing cost_sharing(const struct cost_case *c);
/* The pipeline's time on shared cores: the schedule's time, longer if one pass alone asks for more
 * than all cores, but at least the time of all ranks' work. busy: seconds of one micro-batch on all
 * pipeline ranks with their meetings. alone: the schedule's time if each rank has cores of its own;
 * it is the result if each agent has a device. */
double cost_shared(const struct cost_case *c, double busy, double alone);

/* One pipeline rank's share of a step: the layers of all its chunks, and their passes over one
 * micro-batch. */
struct cost_rank {
	int layers;
	bool first, last; /* holds the model's first, last stage */
	struct cost_device device;
	struct cost_pass pass; /* of all its chunks, on its device */
};

/* The figures that decide the step's time. It starts as {0}; each rank is added once, in any
 * order. */
struct cost_sum {
	struct cost_rank slow; /* the rank whose passes take the longest */
	double busy;           /* its seconds per micro-batch */
	double dp, optimizer;  /* the most of any rank */
};
/* Seconds of the optimizer on a rank. */
double cost_update(const struct cost_case *c, const struct cost_rank *r);
void cost_sum_add(const struct cost_case *c, const struct cost_rank *r, struct cost_sum *sum);
/* The parts of the step's time if the pipeline takes `whole` seconds. If agents share cores, each
 * part is as long as it takes among the others. */
void cost_sum_parts(const struct cost_case *c, const struct cost_sum *sum, double whole,
		    struct plan_time *out);

/* The whole step in closed form. If all stages take equally long and messages take no time, it is
 * exact for every schedule with its usual number of micro-batches. tests/unit/plan/test_step.c
 * states how close it is otherwise. */
void cost_step(const struct cost_case *c, struct plan_time *out);

#endif
