/*
 * cost — what a step takes, predicted. For plan/cost and plan/search.
 *
 * The model:
 *   - A machine (machine.h) has rates for products, attention and passes over tensors; an engine
 *     (engine.h) has habits: which passes a layer makes, what it hides, what it does again. Every
 *     operation counts once, with its own shape: the linears forward and in both backward forms,
 *     attention, each pass.
 *   - A sum over tp ranks is a ring: 2 (t - 1) messages of 1/t of the tensor. Four a layer and
 *     micro-batch, of [tokens, hidden] each; one for the embedding, one for the head. Sequence
 *     parallelism moves as much, and in the backward pass gathers two inputs again. Behind products
 *     hides what the engine starts beside them (parallel.overlap).
 *   - Keys and values go cp - 1 hops round the ring while attention computes: what that does not
 *     hide counts.
 *   - Each token's rows go to their experts and back, an all-to-all each way; loads are equal.
 *   - A step is the pipeline's time and what shows of the rest (step.h).
 * Links: plan/place/group_links.h, at what transfers reach of them (cost_machine_links).
 */
#ifndef MUSTER_PLAN_COST_COST_H
#define MUSTER_PLAN_COST_COST_H

#include "plan/cost/engine.h"
#include "plan/cost/machine.h"
#include "plan/place/group_links.h"
#include "plan/plan.h"

/* Elements of the units of each kind that a rank may have (tp and ep rank 0's); of a tied head,
 * those of its copy on another rank. */
struct cost_units {
	int64_t elements[UNIT_KINDS];
};
void cost_units_of(const struct model_shape *m, const struct layout *l, bool sp,
		   struct cost_units *out);

/* All that a step's time depends on: a plan's, or one that a search considers. Pointers are
 * borrowed. */
struct cost_case {
	const struct job *job; /* its layout is not read, but `layout` */
	const struct model_shape *shape;
	const struct layout *layout;
	const struct stage *stages; /* [layout_n_stages] */
	const struct cost_units *units;
	const struct group_links *group_links; /* [GROUP_KINDS], after cost_machine_links */
	const struct cost_machine *machine;    /* of the fastest agent */
	const struct engine *engine;
	/* [pp] seconds on the slowest replica's devices over those on the fastest; NULL: all
	 * alike */
	const double *scale;
	int micros; /* micro-batches of the slowest replica */
	/* replicas on a node; parallel.zero_shard = node shards over them */
	int node_replicas;
};

/* Bytes of an element of weights and activations. */
double cost_width(const struct cost_case *c);
/* Seconds of one micro-batch on one stage, on the fastest agent. Of the case it reads job, shape,
 * machine, engine, the degrees tp, cp and ep and their links; of the stage how many layers it has
 * and how many of them recompute, and whether it is first or last. */
struct cost_pass {
	double fwd, bwd, weight; /* compute; weight: of bwd, the weights' gradients alone */
	/* what the backward pass recomputes, its transfers too; not in bwd */
	double again;
	double tp_fwd, tp_bwd;
	double cp_fwd, cp_bwd;
	double ep_fwd, ep_bwd;
};
struct cost_pass cost_pass_of(const struct cost_case *c, const struct stage *stage);

/* Predicts the passes and the step of a plan: sets p->costs, p->seconds and p->time. ERR_NOMEM. */
int cost_of_plan(const struct job *job, const struct cluster *cluster, struct plan *p,
		 struct err *e);

#endif
