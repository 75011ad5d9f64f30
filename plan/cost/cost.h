/*
 * cost — what a step takes, predicted. For plan/cost*.c.
 *
 * The model:
 *   - A matrix product takes its FLOPs at MATRIX_SHARE of the device's rate; everything between products takes its
 *     bytes at MEMORY_SHARE of the device's bandwidth; each operation takes OP_COST besides. Attention
 *     counts half of its square (causal), and once more in the backward pass, which recomputes it.
 *   - A backward pass does each product twice; where layers recompute, what they do again comes before it.
 *   - A sum over tp ranks is a ring: 2 (t - 1) messages of 1/t of the tensor. Four a layer and micro-batch, of
 *     [tokens, hidden] each; one for the embedding, one for the head. Sequence parallelism moves as much, and in the backward pass gathers
 *     two inputs again. That the engine hides some of it behind the products (parallel.overlap) is not counted.
 *   - Keys and values go cp - 1 hops round the ring while attention computes: what that does not hide counts.
 *   - Each token's rows go to their experts and back, an all-to-all each way; loads are equal.
 *   - The pipeline's time is the schedule table's own, simulated with these times (plan/schedule/schedule.h).
 *   - The gradients' ring over the replicas (for ZeRO, half of it: a reduce-scatter) hides behind the last micro-batch's backward, under ZeRO 2 and 3
 *     behind each one's; what is longer shows, and at least the last bucket does. ZeRO 1 and 2 gather the new parameters at
 *     the end of the step, ZeRO 3 before each pass, hidden behind the pass before.
 *   - The optimizer reads and writes seven (AdamW) or five (SGD) words for each parameter that the rank owns.
 * Links: plan/place/span.h. CPU agents share their node's cores by their
 * threads. fp32 products take a GPU twice as long as 2-byte ones (TF32). Figures that the cluster does not know are taken as one slow core's.
 */
#ifndef MUSTER_PLAN_COST_COST_H
#define MUSTER_PLAN_COST_COST_H

#include "plan/place/span.h"
#include "plan/plan.h"

/* Of the fastest agent. */
struct cost_rates {
	double flops, bandwidth;
};
struct cost_rates cost_rates_of(const struct job *job, const struct cluster *c, const struct plan *p);

/* An operation that moves so many bytes through memory. */
double cost_moved(const struct cost_rates *r, double bytes);
/* Seconds of one micro-batch on one stage, on the fastest agent. */
struct cost_pass {
	double fwd, bwd, weight;       /* compute; weight: of bwd, the weights' gradients alone */
	double again;                  /* what the backward pass recomputes, its transfers too; not in bwd */
	double tp_fwd, tp_bwd;
	double cp_fwd, cp_bwd;
	double ep_fwd, ep_bwd;
};
struct cost_pass cost_pass_of(const struct job *job, const struct plan *p, const struct cost_rates *r, const struct span spans[GROUP_KINDS],
			      const struct stage *stage);

#endif
