/*
 * activations — memory of the forward and backward passes on one rank: the tensors that a layer
 * keeps for its backward pass, the tensors of a micro-batch, and scratch.
 *
 * The engine allocates by these tables (agent/engine/model/activations.c), so that the planner's
 * sum is exactly what a run allocates.
 *
 * Each tensor of a layer has one of these homes:
 *
 *     slot     one copy per (micro-batch in flight, layer), kept until the backward pass. With
 *              offload.activations it is in host memory, and the device holds staging memory for
 *              two layers, which take turns
 *     work     one copy for all layers of the rank that recompute: written in the forward pass, and
 *              again before the backward pass. With FP8 also one copy, for all layers, of an input
 *              that is kept in 8 bits
 *     nowhere  the tensor is not needed
 *
 * Selective recomputation repeats norms, activation functions and the attention core (Korthikanti
 * et al., arXiv 2205.05198; muster's core has no seq × seq tensors). Full recomputation repeats the
 * whole layer from its input.
 *
 * Shapes: s rows of the residual stream (n / tp with sequence parallelism, otherwise n); n = micro
 * × seq / cp tokens; c hidden; H and K this shard's query and kv heads of width d; w = (H + 2K) d;
 * f this shard's ffn; u = 2f with a gate, otherwise f.
 */
#ifndef MUSTER_PLAN_SPEC_MODEL_ACTIVATIONS_H
#define MUSTER_PLAN_SPEC_MODEL_ACTIVATIONS_H

#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * The rows that a rank exchanges with the ranks that have a layer's experts, for a micro-batch.
 *
 * Their number depends on the routing, and is only known on the device. A capacity limits it: a rank
 * then sends each expert a block of as many rows as the capacity allows, padded with zeros, so that
 * the host need not know how many there are (agent/engine/parallel/ep.h). This is so only on a
 * device with ep > 1 and cp = 1, with 16-bit numbers, if the blocks have at most ACT_PADDING times the
 * rows of an even load, and if an expert's group is smaller than ACT_GROUP_LARGE rows. Larger groups
 * are faster as products of the device's library, which needs the counts on the host.
 */
enum { ACT_PADDING = 2, ACT_GROUP_LARGE = 2048 };
struct act_expert_rows {
	int64_t capacity; /* tokens of a sequence that an expert takes at most; INT64_MAX: all */
	int64_t ranks;    /* that have the experts */
	int64_t mine;     /* experts of the rank that has most */
	int64_t block;    /* rows to each expert; 0: as many as the routing gives */
	/* rows to and from all ranks: of the blocks, or of an even load of all experts */
	int64_t sent, received;
};
struct act_expert_rows activations_expert_rows(const struct job *job, const struct model_shape *m,
					       const struct layout *l);

/* Sizes of one tp rank's shard of a micro-batch. */
struct act_dims {
	int64_t s, n, c, micro, seq;    /* seq: tokens of a sequence on this rank, seq / cp */
	int64_t heads, kv_heads, dim;   /* H, K, d */
	int64_t q, qkv, up, act, vocab; /* H d, w, u, f, this shard's vocabulary */
	int64_t act_divisor;            /* of f on every tp rank */
	/* logits: elements from one row to the next; rows at once */
	int64_t logits_row, rows;
	/* statistics that a norm keeps per row: 1 (rstd) or 2 (mean, rstd) */
	int64_t stats;
	int64_t experts, top; /* 0: no mixture of experts */
	struct act_expert_rows routed;
	int64_t width; /* bytes of a storage element */
	bool sp, cp, dropout, moe, split, offload, qk_norm;
	bool fp8;                   /* linear layers multiply in 8 bits */
	bool fp8_weights;           /* 8-bit copies of the weights are kept from step to step */
	int64_t fp8_delayed_layers; /* of the whole model, with delayed scaling; otherwise 0 */
	/* the tensors are in a device's memory, which then also holds the micro-batch's tokens */
	bool device;
	enum job_recompute mode;
	int64_t every;
};

/* split: backward passes have two halves (zero bubble). */
void activations_dims_of(const struct job *job, const struct model_shape *m, const struct layout *l,
			 int tp_rank, bool split, struct act_dims *out);

/*
 * Chunks of logits. Each chunk reads the head's weights twice, and reads and writes their fp32
 * gradient; the first chunk of a step only writes it. On a processor a chunk has as many rows as
 * 256 MiB of fp32 hold, about 1000 for a vocabulary of 50,000: that is small beside the chunk's
 * products, and the buffer is small beside a micro-batch's activations. A device computes so fast
 * that the gradient's bytes would be an eighth of the head's time. There batch.logits is the limit;
 * rows are multiples of 256, the products' largest tile, and each begins at a multiple of 128
 * elements, because products are slow where the size or the stride of a matrix is not a multiple of
 * 16 bytes.
 */
enum { ACT_LOGITS_ROW = 128, ACT_LOGITS_ROWS = 256 };
/* Elements from one row to the next, for a shard's vocabulary. */
int64_t activations_logits_row(const struct job *job, int64_t vocab);
/* How many of n tokens are one chunk, for the largest shard of the vocabulary. */
int64_t activations_logits_rows(const struct job *job, int64_t n, int64_t vocab);

/* Numbers in a row of a transposed 8-bit copy, of which n are the tensor's and the others zero:
 * cuBLASLt has no 8-bit products whose rows are not multiples of ACT_FP8_ROW. */
enum { ACT_FP8_ROW = 16 };
int64_t activations_fp8_row(int64_t n);

/* Rounds up to whole 64-byte lines. */
int64_t activations_lines(int64_t bytes);
/* Global number of the shard's first query head. */
int64_t activations_first_head(const struct model_shape *m, const struct layout *l, int tp_rank);
/* Bytes of the rotary positions' cosines and sines, [2, seq, d / 2] fp32. */
int64_t activations_rope_bytes(const struct act_dims *d);

/* Tensors of a layer. */
enum act {
	/* [s, c] the residual stream at the layer's input. A chunk's first layer uses SLOT_INPUT */
	ACT_NORM1_X,
	ACT_NORM1_STATS, /* [stats, s] fp32 */
	ACT_Y1,          /* [s, c] normalized: the input of q, k, v */
	ACT_QKV,         /* [n, w] after the rotation */
	/* families that normalize q and k: q [n, H d], then k [n, K d], before their norms */
	ACT_QK,
	ACT_QK_STATS,    /* [(H + K) n] fp32: rstd of each head */
	ACT_O,           /* [n, H d] */
	ACT_LSE,         /* [H n] fp32 */
	ACT_NORM2_X,     /* [s, c] */
	ACT_NORM2_STATS, /* [stats, s] fp32 */
	ACT_Y2,          /* [s, c] normalized: the input of up */
	ACT_UP,          /* [n, u] */
	ACT_ACT,         /* [n, f] */
	/* gradients for the second half of a split backward pass: */
	ACT_DATTN, /* [s, c] of the attention sublayer's result */
	ACT_DQKV,  /* [n, w] of q, k, v */
	ACT_DMLP,  /* [s, c] of the feed-forward sublayer's result */
	ACT_DUP,   /* [n, u] of up */
	/* FP8: the transposed 8-bit inputs of q, k, v, of up and of down: [c, n'], [c, n'],
	 * [f, n'], where n' is activations_fp8_row(n). They replace the tensors in the storage
	 * type, which then share one copy. With sequence parallelism and for experts there is
	 * none */
	ACT_Y1_FP8,
	ACT_Y2_FP8,
	ACT_ACT_FP8,
	ACT_FP8_SCALES, /* FP8: of the layer's inputs, one per linear */
	ACTS
};
enum act_storage { ACT_NONE, ACT_SAVED, ACT_SHARED };

/* Returns what the layer recomputes; `layer` counts through the whole model. */
enum job_recompute activations_mode(const struct act_dims *d, int layer);
/* first: the layer is the first of its chunk. */
enum act_storage activations_home(const struct act_dims *d, int layer, bool first, enum act a);
/* Like all sizes here, a multiple of 64 bytes. */
int64_t activations_bytes(const struct act_dims *d, enum act a);

/* Bytes of a layer's tensors in the slot home. */
int64_t activations_layer_bytes(const struct act_dims *d, int layer, bool first);

/* Tensors of a micro-batch in a chunk. */
enum act_slot {
	SLOT_INPUT, /* [s, c] */
	/* [s, c] the last sublayer's result, which is not yet added to the residual stream */
	SLOT_PENDING,
	SLOT_GRAD,       /* [s, c] */
	SLOT_NORM_X,     /* [s, c] last stage: input of the final norm */
	SLOT_NORM_STATS, /* [stats, s] fp32, last stage */
	SLOT_Y,          /* [n, c] last stage: its output, later overwritten by its gradient */
	SLOT_INPUTS,     /* device only: the tensors of enum act_input, one after the other */
	SLOTS
};
int64_t activations_slot_bytes(const struct act_dims *d, const struct stage *stage,
			       enum act_slot a);

/* The slot's tokens and their positions in the run, in the device's memory. */
enum act_input {
	PLACE_SAMPLES, /* [micro] int64: the sequences' numbers in the run */
	PLACE_ROWS,    /* [s] int64: the stream rows' numbers in the run; with dropout only */
	PLACE_INPUTS,  /* [n] int32 */
	PLACE_TARGETS, /* [n] int32 */
	PLACE_STARTS,  /* [n] int32 */
	PLACES
};
int64_t activations_place_bytes(const struct act_dims *d, enum act_input a);

/* Scratch of the rank. Its contents last for one call. */
enum act_scratch {
	SCRATCH_FULL, /* [n, c] with sp: a tensor that was gathered or will be reduce-scattered */
	/* [n, c] with sp: a tensor in a reduce-scatter while SCRATCH_FULL is being gathered */
	SCRATCH_SENT,
	SCRATCH_SUB,    /* [s, c] with dropout: gradient of a sublayer's result before dropout */
	SCRATCH_HIDDEN, /* [s, c] */
	SCRATCH_MAX,    /* [rows] fp32, last stage only, like the next one */
	SCRATCH_SUMS,   /* [2 rows] fp32: sums, then the targets' logits; one all-reduce */
	/* tp exchanges those above, which are equally large on all of its ranks */
	SCRATCH_WIDE, /* [n, max(w, u)] */
	SCRATCH_EXCHANGED = SCRATCH_WIDE,
	SCRATCH_NARROW, /* [n, max(H d, f)] */
	SCRATCH_HEADS,  /* [n, H d] families that normalize q and k */
	/* [s] int64, with dropout: the stream rows' numbers in the run; host only (PLACE_ROWS) */
	SCRATCH_ROWS,
	SCRATCH_POSITIONS, /* [n] int32: the tokens' positions; device only */
	SCRATCH_LOSS,      /* [3] double: sums of the losses; device only */
	SCRATCH_LOGITS,    /* [rows, logits_row] last stage only, like the next one */
	/* [logits_row, c] the head's weights, and zeros after them; only if the logits' rows have
	 * gaps, so that products compute whole rows */
	SCRATCH_HEAD,
	/* [2, n, 2 K d] context parallelism: keys and values of the ring, one set in use and one
	 * being received */
	SCRATCH_RING_KV,
	SCRATCH_RING_DKV, /* [2, n, 2 K d] their gradients */
	SCRATCH_RING_O,   /* [n, H d] attention over one piece of them */
	SCRATCH_RING_LSE, /* [H n] fp32 */
	/* FP8: [n, widest of c, w, H d, u, f] or [widest, n']: left operand of a linear's product */
	SCRATCH_FP8_ROWS,
	SCRATCH_FP8_TRANSPOSED, /* FP8: [widest, n'], the transposed gradient */
	SCRATCH_FP8_WEIGHT,     /* FP8: a linear's weights, unless copies are kept */
	SCRATCH_FP8_SCALES,     /* FP8: of the gradients, one per linear, then of those weights */
	SCRATCH_FP8_SUMS,       /* FP8, delayed scaling: fp32 [c], sums of a gradient's columns */
	SCRATCHES
};
/* A layer's linears that multiply in 8 bits, and the bytes of a scale. */
enum act_linear { ACT_LINEAR_QKV, ACT_LINEAR_O, ACT_LINEAR_UP, ACT_LINEAR_DOWN, ACT_LINEARS };
enum { ACT_FP8_SCALE_BYTES = 80 };
/* How the names of the scales' tensors in a checkpoint begin. */
#define ACT_FP8_TENSORS "fp8."
/* last: the rank holds the last stage. */
int64_t activations_scratch_bytes(const struct act_dims *d, bool last, enum act_scratch a);

/* Memory of a mixture of experts as agent/engine/model/moe.c allocates it at the start, for the rows
 * of act_expert_rows. kept: what a layer keeps of a micro-batch in place of
 * ACT_UP, ACT_ACT and ACT_DUP; layers that recompute it share one copy. scratch: the rank's. */
int64_t activations_experts_kept(const struct act_dims *d);
int64_t activations_experts_scratch(const struct act_dims *d);

/* Whether a layer recomputes its mixture: with full recomputation, unless the backward pass is
 * split. The second half of a split pass would find the shared copy overwritten by the next layer,
 * and a copy per layer saves nothing over keeping everything. */
bool activations_experts_recompute(const struct act_dims *d, int layer);

/* FP8: bytes of the 8-bit copies of a layer's weights, each as it is and transposed, with their
 * scales. They are computed once per step. 0: there are none, because parameters are gathered for
 * each pass (zero 3). activations_fp8_weight(): the bytes of one of the two copies of a linear's
 * weights, 0 if the layer has no such linear. */
int64_t activations_fp8_weight(const struct act_dims *d, enum act_linear l, bool transposed);
int64_t activations_fp8_weights(const struct act_dims *d);

/* Delayed scaling: bytes of the scales of inputs and gradients, which every rank has of all layers
 * of the model, and of those of the step before. 0 without it. */
int64_t activations_fp8_table(const struct act_dims *d);

/* Bytes of one slot of a chunk: in the device's memory and, with offload, in the host's. */
int64_t activations_slot_total(const struct act_dims *d, const struct stage *stage);
int64_t activations_offloaded(const struct act_dims *d, const struct stage *stage);
/* Staging memory of offloaded layers: STAGED times the largest layer. activations_staged() is the
 * size of one. */
enum { STAGED = 2 };
int64_t activations_staged(const struct act_dims *d, const struct stage *chunks, int n_chunks);
/* Bytes that all slots of the rank share: the work home, staging, scratch, 8-bit copies of weights
 * and, with rope, the tables of rotary positions. */
int64_t activations_shared_total(const struct act_dims *d, const struct stage *chunks, int n_chunks,
				 bool rope);

#endif
