/*
 * engine — the habits of a training engine, as far as a step's time depends on them: what a layer
 * does besides its matrix products, what hides behind what, and how wide things are. The machine's
 * rates are in machine.h, the job in job.h.
 *
 * cost_engine_muster is what agent/ does. The others are there to hold the model against published
 * measurements: what they do was read in Megatron-LM's public history, at the commits that were
 * current when the measurements were made.
 */
#ifndef MUSTER_PLAN_COST_ENGINE_H
#define MUSTER_PLAN_COST_ENGINE_H

#include "plan/cost/machine.h"

#include <stdbool.h>

/* A layer's tensors on one rank. */
enum engine_tensor {
	/* [s, c] the residual stream; s = n / tp under sequence parallelism, else n */
	TENSOR_STREAM,
	TENSOR_ROWS,    /* [n, c] the stream's rows of all */
	TENSOR_QKV,     /* [n, q + 2 kv] */
	TENSOR_ROTATED, /* [n, q + kv] */
	TENSOR_HEADS,   /* [n, q] */
	TENSOR_UP,      /* [rows, u] */
	TENSOR_ACT,     /* [rows, f] */
	TENSOR_ROUTED,  /* [rows, c] of a mixture; 0 in a dense layer */
	TENSOR_SCORES,  /* [sequences, heads, seq, keys here] */
	TENSORS
};

/* What must be so for a pass to be made. */
enum engine_need {
	NEED_NOTHING,
	NEED_DROPOUT,
	NEED_NO_DROPOUT,
	NEED_ATTN_DROPOUT,
	NEED_GELU,
	NEED_SWIGLU,
	NEED_ROPE,
	NEED_BIAS,
	NEED_QKV_BIAS,
	NEED_QK_NORM
};

enum engine_phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_AGAIN /* of selective recomputation */ };

/* Operations over whole tensors, one row a sort. */
struct engine_pass {
	enum engine_phase phase;
	enum rate_class class;
	enum engine_need need;
	int times;             /* a layer */
	double moves[TENSORS]; /* elements read and written, for each element of the tensor */
};

struct engine {
	const char *name;
	const struct engine_pass *passes; /* of a layer; ends with one of times 0 */
	/* scores never reach memory and masked ones are not computed; else the whole square goes
	 * through memory */
	bool fused_attention;
	/* behind the backward products, Korthikanti et al., arXiv 2205.05198, section 4.2.2 */
	bool hides_tp;
	/* a gathered input's own rows are multiplied while the others' come */
	bool own_rows_first;
	bool stops_short; /* full recomputation leaves out the layer's last product */
	/* gradients' sums behind the last backward pass; false: only without a pipeline */
	bool hides_dp;
	/* ZeRO 1 and 2: new parameters behind the next step's first forward pass; false: before
	 * it */
	bool gathers_ahead;
	bool waits; /* for its messages between stages, its host too */
	/* of such a message, whole on every tp rank, each sends its part, and the receivers
	 * gather it */
	bool scatters;
	/* bytes moved a parameter and micro-batch to add gradients up, beside the products */
	double accumulate;
	double embed_fwd, embed_bwd; /* passes over [n, c] */
	double loss;                 /* bytes moved a logit; 0: five elements' (RATE_XENT) */
	double grad_width; /* bytes of an element of gradients that are summed over replicas */
	/* bytes moved a parameter by an optimizer step; 0: by the optimizer's kind */
	double update;
};

extern const struct engine cost_engine_muster, cost_engine_megatron_2021, cost_engine_megatron_2022,
	cost_engine_megatron_core;

#endif
