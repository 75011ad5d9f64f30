/*
 * cost — predicts the time of a step. For plan/cost and plan/search.
 *
 * The model:
 *   - A machine (machine.h) has rates for products, attention and passes over tensors. An engine
 *     (engine.h) has properties: which passes a layer makes, what it hides, what it recomputes.
 *     Every operation counts once, with its own shape: the linear layers forward and in both
 *     backward forms, attention, each pass.
 *   - An all-reduce over tp ranks is a ring: 2 (t - 1) messages of 1/t of the tensor. There are
 *     four per layer and micro-batch, of [tokens, hidden] each, one for the embedding and one for
 *     the head. Sequence parallelism transfers as much, and gathers two inputs again in the
 *     backward pass. What the engine starts beside products (parallel.overlap) hides behind them.
 *   - Keys and values go cp - 1 hops round the ring while attention computes. Only what attention
 *     does not hide counts.
 *   - Each token's rows go to their experts and back, an all-to-all each way. Loads are equal.
 *   - A step is the pipeline's time plus what is not hidden of the rest (step.h).
 * Links: plan/place/group_links.h, reduced to what transfers reach (cost_machine_links).
 */
#ifndef MUSTER_PLAN_COST_COST_H
#define MUSTER_PLAN_COST_COST_H

#include "plan/cost/engine.h"
#include "plan/cost/machine.h"
#include "plan/place/group_links.h"
#include "plan/plan.h"

/* The most elements that a rank can have of a unit of each kind: those of a tp rank (rank 0 has
 * the most) and of ep rank 0. For a tied head these are the elements of its copy on another
 * rank. Sequence parallelism splits rows, not parameters, so they do not depend on it. */
struct cost_units {
	int64_t elements[UNIT_KINDS];
	int64_t hidden[UNIT_KINDS]; /* of them, those of hidden matrices (optimizer_hidden) */
};
void cost_units_of(const struct model_shape *m, const struct layout *l, int tp_rank,
		   struct cost_units *out);

/* A rank's device. */
struct cost_device {
	const struct cost_machine *machine;
	double scale; /* its seconds of computation over those of the machine */
	double rate;  /* of the machine, by which unlike devices compare (unlike.h) */
	/* [GROUP_KINDS] of the groups of its kind of node; NULL: those of the case */
	const struct group_links *links;
};

/* Everything that a step's time depends on, for a plan or for a configuration of a search. Pointers
 * are borrowed. */
struct cost_case {
	const struct job *job; /* its degrees are not read; `layout` counts */
	const struct model_shape *shape;
	const struct layout *layout;
	const struct stage *stages; /* [layout_n_stages] */
	const struct cost_units *units;
	const struct group_links *group_links; /* [GROUP_KINDS], after cost_machine_links */
	const struct cost_machine *machine;    /* of the fastest agent */
	const struct cost_engine *engine;
	/* [pp] the slowest device of each pipeline rank of the slowest replica; NULL: all devices
	 * are equal */
	const struct cost_device *devices;
	int micros; /* micro-batches of the slowest replica */
	/* replicas on a node; parallel.zero_shard = node shards over them */
	int node_replicas;
};

/* Bytes of an element of weights and activations. */
double cost_width(const struct cost_case *c);
/* Seconds of one micro-batch on one stage, on the case's machine. They depend on job, shape,
 * machine and engine of the case, on the degrees tp, cp and ep and their links, and on the
 * stage's number of layers, how many of them recompute, and whether it is first or last. */
struct cost_pass {
	double fwd, bwd, weight; /* compute; weight: the part of bwd for the weights' gradients */
	/* what the backward pass recomputes, with its transfers; not included in bwd */
	double again;
	double tp_fwd, tp_bwd;
	double cp_fwd, cp_bwd;
	double ep_fwd, ep_bwd;
	/* what tp_bwd is if the two halves of the backward pass run apart, and how much of that is
	 * in the half for the weights' gradients */
	double tp_halves, tp_weight;
};
/* The backward pass is whole; cost_pass_halve cuts it. */
struct cost_pass cost_pass_of(const struct cost_case *c, const struct stage *stage);
/* Makes it the pass of a device that computes slower by this factor. Transfers between devices take
 * as long as before. */
void cost_pass_slow(struct cost_pass *t, double scale);
/* The device of a pipeline rank, and its pass over a stage: cost_pass_of on its machine, slowed. */
struct cost_device cost_device_at(const struct cost_case *c, int pp);
struct cost_pass cost_pass_on(const struct cost_case *c, const struct cost_device *d,
			      const struct stage *stage);
/* Makes it the pass of a schedule whose backward passes have two halves: `weight` is then all of
 * the second half. Transfers that hid behind the other half's products no longer do. */
void cost_pass_halve(struct cost_pass *t);

/* Seconds of a transfer that are not hidden by `shade` seconds of products. */
double cost_exposed(const struct cost_case *c, double transfer, double shade);

/* Sets p->slowest_replica of a plan whose job names speeds, from its ranks' devices. ERR_NOMEM. */
int cost_set_slowest(const struct job *job, const struct cluster *c, struct plan *p, struct err *e);
/* Predicts the passes and the step of a plan: sets p->costs, p->seconds and p->time. ERR_NOMEM. */
int cost_of_plan(const struct job *job, const struct cluster *cluster, struct plan *p,
		 struct err *e);

#endif
