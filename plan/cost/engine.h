/*
 * engine — the properties of a training engine on which a step's time depends: what a layer does
 * besides its matrix products, which transfers hide behind which work, and how wide elements are.
 * The machine's rates are in machine.h, the job in job.h.
 *
 * cost_engine_muster describes agent/engine. The others are there for users who run another
 * program (plan.engine), and to compare the model with published measurements. Those of
 * Megatron-LM were read in its public history, at the commits that were current when the
 * measurements were made; engine.c names the sources.
 */
#ifndef MUSTER_PLAN_COST_ENGINE_H
#define MUSTER_PLAN_COST_ENGINE_H

#include "plan/cost/attention.h"
#include "plan/cost/machine.h"
#include "plan/spec/job/job.h"

#include <stdbool.h>

/* A layer's tensors on one rank. */
enum engine_tensor {
	/* [s, c] the residual stream; s = n / tp under sequence parallelism, otherwise n */
	TENSOR_STREAM,
	TENSOR_ROWS,    /* [n, c] all rows of the stream */
	TENSOR_QKV,     /* [n, q + 2 kv] */
	TENSOR_ROTATED, /* [n, q + kv] */
	TENSOR_HEADS,   /* [n, q] */
	TENSOR_UP,      /* [rows, u] */
	TENSOR_ACT,     /* [rows, f] */
	/* of a mixture of experts, otherwise 0: [rows that this rank sends to experts, c]; [rows
	 * that its experts receive, c], 0 unless ranks send to several experts of one rank */
	TENSOR_ROUTED,
	TENSOR_SORTED,
	TENSOR_SCORES, /* [sequences, heads, seq, keys here] */
	TENSORS
};

/* The condition under which a pass is made. */
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
	/* biases whose gradients need a pass of their own: those of products in 8 bits do not */
	NEED_BIAS_SUMS,
	NEED_QKV_BIAS_SUMS,
	NEED_QK_NORM
};

enum engine_phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_AGAIN /* of selective recomputation */ };

/* Operations over whole tensors; one row for each kind of operation. */
struct cost_engine_pass {
	enum engine_phase phase;
	enum rate_class class;
	enum engine_need need;
	int times;             /* per layer */
	double moves[TENSORS]; /* elements read and written, for each element of the tensor */
};

enum linear { LINEAR_QKV, LINEAR_OUT, LINEAR_UP, LINEAR_DOWN, LINEARS };

/* Bytes moved to make the operands of a layer's products in 8 bits, per element, besides what the
 * passes that compute these tensors move in any case. */
struct engine_casts {
	double input[LINEARS], gradient[LINEARS];
	/* an input that tp ranks gather: for the forward pass, and for the weights' gradient. The
	 * latter also for attention's output */
	double gathered, again;
	/* extra for the gradient of a row-parallel linear that is not a norm's result as it is,
	 * because dropout or a gather changed it */
	double changed;
	double weights;      /* once per step, */
	double weights_pass; /* or in each forward and each backward pass */
};

struct cost_engine {
	const char *name;
	const struct cost_engine_pass *passes; /* of a layer; the last one has times 0 */
	/* fused: scores never reach memory and masked ones are not computed; ATTENTION_STORED: the
	 * whole square goes through memory */
	enum attention_kernel attention;
	/* tp transfers hide behind the backward products: Korthikanti et al., arXiv 2205.05198,
	 * section 4.2.2 */
	bool hides_tp;
	/* the rank's own rows of a gathered input are multiplied while the others arrive */
	bool own_rows_first;
	/* its schedules can split backward passes (zb-h1, zb-v); a search skips them otherwise */
	bool splits_backward;
	bool stops_short; /* full recomputation leaves out the layer's last product */
	/* the gradients' reduction hides behind the last backward pass; false: only without a
	 * pipeline */
	bool hides_dp;
	/* ZeRO 1 and 2: new parameters are gathered behind the next step's first forward pass;
	 * false: before it */
	bool gathers_ahead;
	/* The share of a pass in which the device computes. It idles while the host starts the
	 * kernels of a program that is not compiled, one by one, and while memory is allocated. 0:
	 * all of it */
	double busy;
	/* the share of a transfer that products hide; 0: the machine's (struct cost_machine) */
	double hides;
	/* the replicas' transfers use one adapter of each node after the other, not all together, at
	 * this share of its rate; 0: all together */
	double one_rail;
	/* how much longer attention takes if it goes round a ring, besides the ring's messages; 0:
	 * as long */
	double ring;
	/* with sequence parallelism a tp rank routes its own rows to the experts, where the ranks of
	 * a tp group gather them; false: each rank routes all rows */
	bool routes_own;
	/* a row goes to another node once, not once for each of its experts there (DeepEP) */
	bool routes_once;
	/* rows travel to their experts and back while another micro-batch is computed */
	bool hides_ep;
	/* seconds per layer and direction to sort and pad rows, beside moving them */
	double routing;
	/* seconds in which the host starts the kernels of a mixture's layer, in each direction; the
	 * layer takes at least as long. 0: they are started at once, as a CUDA graph */
	double starts;
	/* bytes moved to make an operand of a product in 8 bits, per element. Gradients have two,
	 * and so have inputs: one for the forward pass and one transposed for the weights' gradient */
	double cast;
	/* by enum job_fp8_scaling: what casts move, in place of `cast`; NULL: `cast` holds */
	const struct engine_casts *casts;
	/* weights are cast once per step, unless replicas gather them for each micro-batch
	 * (zero 3); otherwise they are cast with each micro-batch */
	bool casts_once;
	/* inputs of products in 8 bits are cast before tp ranks gather them: half the bytes */
	bool gathers_eight;
	/* replicas gather the parameters of such products in 8 bits */
	bool shards_eight;
	bool eight_experts; /* products of experts are in 8 bits, too */
	bool waits;         /* ranks and their hosts wait for the messages between stages */
	/* each tp rank sends its part of such a message, and the receivers gather it */
	bool scatters;
	/* bytes moved per parameter and micro-batch to add up gradients, besides the products */
	double accumulate;
	double embed_fwd, embed_bwd; /* passes over [n, c] */
	double loss;                 /* bytes moved per logit; 0: five elements (RATE_XENT) */
	double grad_width; /* bytes of an element of the gradients that replicas all-reduce */
	/* bytes moved per parameter by an optimizer step; 0: as the kind of optimizer needs */
	double update;
};

/* By enum job_engine. */
extern const struct cost_engine *const cost_engines[JOB_ENGINES];

extern const struct cost_engine cost_engine_muster, cost_engine_megatron_2021,
	cost_engine_megatron_2022, cost_engine_megatron_core;

#endif
