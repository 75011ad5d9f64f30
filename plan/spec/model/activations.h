/*
 * activations — what a rank's memory holds of the passes: the tensors that a layer
 * keeps from its forward to its backward pass, those of a micro-batch, and scratch.
 *
 * The model carves its memory by these very tables (agent/engine/model/activations.c), so what the
 * planner adds up is what is allocated.
 *
 * A layer's tensor lives in one of these homes:
 *
 *     slot     one a (micro-batch in flight, layer): kept until the backward pass. With
 *              offload.activations, in host memory: then two layers' worth is staged in the
 *              device's, in turn
 *     work     one for all recomputing layers of the rank: written in the forward pass, again
 *              before the backward pass
 *     nowhere  the tensor is not needed
 *
 * Selective recomputation does norms, activation functions and the attention core again
 * (Korthikanti et al., arXiv 2205.05198, whose attention core has no seq × seq tensors any more in
 * ours); full does the whole layer again from its input.
 *
 * Shapes: s rows of the residual stream (n / tp under sequence parallelism, else n), n = micro ×
 * seq / cp tokens, c hidden, H, K this shard's query and k/v heads of width d, w = (H + 2K) d, f
 * this shard's ffn, u = 2f with a gate, else f.
 */
#ifndef MUSTER_PLAN_SPEC_MODEL_ACTIVATIONS_H
#define MUSTER_PLAN_SPEC_MODEL_ACTIVATIONS_H

#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

#include <stdbool.h>
#include <stdint.h>

/* What a tp rank's shard of a micro-batch measures. */
struct act_dims {
	int64_t s, n, c, micro, seq;    /* seq: of a sequence here, seq / cp */
	int64_t heads, kv_heads, dim;   /* H, K, d */
	int64_t q, qkv, up, act, vocab; /* H d, w, u, f, this shard's vocabulary */
	int64_t rows;                   /* of logits at once */
	/* numbers a row that a norm keeps: 1 (rstd), 2 (mean, rstd) */
	int64_t stats;
	int64_t experts, top; /* of a mixture; 0: none */
	int64_t width;        /* bytes of a storage element */
	bool sp, cp, dropout, moe, split, offload, qk_norm;
	bool fp8; /* linear layers multiply in 8 bits */
	/* the tensors' memory is a device's: what the host would give in place lies there too */
	bool device;
	enum job_recompute mode;
	int64_t every;
};

/* split: backward passes come in two halves (zero bubble). */
void activations_dims_of(const struct job *job, const struct model_shape *m, const struct layout *l,
			 int tp_rank, bool split, struct act_dims *out);

/* Whole 64-byte lines. */
int64_t activations_lines(int64_t bytes);
/* The first query head of the shard. */
int64_t activations_first_head(const struct model_shape *m, const struct layout *l, int tp_rank);
/* Cosines and sines of the rotary positions, [2, seq, d / 2] fp32. */
int64_t activations_rope_bytes(const struct act_dims *d);

/* Of a layer. */
enum act {
	/* [s, c] the residual stream at the layer's input; of a chunk's first layer the slot's
	 * input itself */
	ACT_NORM1_X,
	ACT_NORM1_STATS, /* [stats, s] fp32 */
	ACT_Y1,          /* [s, c] normed, input of q, k, v */
	ACT_QKV,         /* [n, w] rotated */
	/* families that normalize q and k: [n, H d], then [n, K d], as they were before */
	ACT_QK,
	ACT_QK_STATS,    /* [(H + K) n] fp32 their rstd */
	ACT_O,           /* [n, H d] */
	ACT_LSE,         /* [H n] fp32 */
	ACT_NORM2_X,     /* [s, c] */
	ACT_NORM2_STATS, /* [stats, s] fp32 */
	ACT_Y2,          /* [s, c] normed, input of up */
	ACT_UP,          /* [n, u] */
	ACT_ACT,         /* [n, f] */
	/* [s, c] gradient of the attention part's result: for the second half of a split
	 * backward pass */
	ACT_DATTN,
	ACT_DQKV, /* [n, w] the same of q, k, v */
	ACT_DMLP, /* [s, c] the same of the feed-forward part's result */
	ACT_DUP,  /* [n, u] the same of up */
	ACTS
};
enum act_home { ACT_NOWHERE, ACT_SLOT, ACT_WORK };

/* Whether the layer (of the model) recomputes, and what. */
enum job_recompute activations_mode(const struct act_dims *d, int layer);
/* first: the layer is its chunk's first. */
enum act_home activations_home(const struct act_dims *d, int layer, bool first, enum act a);
/* In whole 64-byte lines, as all here. */
int64_t activations_bytes(const struct act_dims *d, enum act a);

/* All that a layer has in the slot home. */
int64_t activations_layer_bytes(const struct act_dims *d, int layer, bool first);

/* Of a micro-batch in a chunk. */
enum act_slot {
	SLOT_INPUT, /* [s, c] */
	/* [s, c] the last sublayer's result, not yet added to the residual stream */
	SLOT_PENDING,
	SLOT_GRAD,       /* [s, c] */
	SLOT_NORM_X,     /* [s, c] last stage: the final norm's input */
	SLOT_NORM_STATS, /* [stats, s] fp32, last stage */
	SLOT_Y,          /* [n, c] last stage: normed, then in place its gradient */
	SLOT_PLACES,     /* a device's: which tokens these are, ACT_PLACES behind one another */
	SLOTS
};
int64_t activations_slot_bytes(const struct act_dims *d, const struct stage *stage,
			       enum act_slot a);

/* What the slot's tokens are, where the device reads it. */
enum act_place {
	PLACE_SAMPLES, /* [micro] int64: numbers of the sequences in the run */
	PLACE_ROWS,    /* [s] int64: the stream's rows in the run, with dropout */
	PLACE_INPUTS,  /* [n] int32 */
	PLACE_TARGETS, /* [n] int32 */
	PLACE_STARTS,  /* [n] int32 */
	PLACES
};
int64_t activations_place_bytes(const struct act_dims *d, enum act_place a);

/* Of the rank, used within one call. */
enum act_scratch {
	SCRATCH_FULL, /* [n, c] under sp: a gathered tensor, or one to be reduce-scattered */
	/* [n, c] under sp: a tensor that is being reduce-scattered while another one is gathered */
	SCRATCH_SENT,
	SCRATCH_SUB,    /* [s, c] with dropout: a sublayer's gradient behind it */
	SCRATCH_HIDDEN, /* [s, c] */
	SCRATCH_WIDE,   /* [n, max(w, u)] */
	SCRATCH_NARROW, /* [n, max(H d, f)] */
	SCRATCH_HEADS,  /* [n, H d] families that normalize q and k */
	/* [s] int64: the stream's rows in the run, with dropout; not a device's (PLACE_ROWS) */
	SCRATCH_ROWS,
	SCRATCH_POSITIONS, /* [n] int32: the tokens' positions, a device's */
	SCRATCH_LOSS,      /* [3] double: the sums of the losses, a device's */
	SCRATCH_LOGITS,    /* [rows, V] rank with the last stage, as are the next two */
	SCRATCH_MAX,       /* [rows] fp32 */
	SCRATCH_SUMS,      /* [2 rows] fp32: sums, then the targets' logits, reduced together */
	/* [2, n, 2 K d] context parallel: keys and values that go round, one in use and one on
	 * its way */
	SCRATCH_RING_KV,
	SCRATCH_RING_DKV, /* [2, n, 2 K d] their gradients */
	SCRATCH_RING_O,   /* [n, H d] what one piece of them gives */
	SCRATCH_RING_LSE, /* [H n] fp32 */
	/* [n, widest of c, w, H d, u, f] in 8 bits: the left operand of a linear's products; or
	 * [widest, n] */
	SCRATCH_8_ROWS,
	SCRATCH_8_TURNED, /* [widest, n] in 8 bits: the turned gradient */
	SCRATCH_8_WEIGHT, /* a linear's weights in 8 bits */
	SCRATCH_8_SCALES, /* their scales, of ACT_SCALE8 bytes each */
	SCRATCHES
};
enum { ACT_SCALE8 = 80, ACT_SCALES8 = 3 };
/* last: the rank has the last stage. */
int64_t activations_scratch_bytes(const struct act_dims *d, bool last, enum act_scratch a);

/* A mixture's part, as agent/engine/model/moe.c takes it when it opens: with as many rows as when
 * all experts' loads are equal. What a layer keeps of a micro-batch in place of ACT_UP and the like
 * (of layers that do it again, one home for the rank), and scratch. */
int64_t activations_experts_kept(const struct act_dims *d);
int64_t activations_experts_scratch(const struct act_dims *d);

/* Whether a layer does its mixture again: in full recomputation. Not when the backward pass is
 * split: what the second half needs would not outlive the next layer in the one home, and of its
 * own it can as well keep all. */
bool activations_experts_recompute(const struct act_dims *d, int layer);

/* Sums. One slot of a chunk, in the device's memory and, offloaded, in the host's. */
int64_t activations_slot_total(const struct act_dims *d, const struct stage *stage);
int64_t activations_offloaded(const struct act_dims *d, const struct stage *stage);
/* Staging of offloaded layers: STAGED places of the largest one. */
enum { STAGED = 2 };
int64_t activations_staged(const struct act_dims *d, const struct stage *chunks, int n_chunks);
/* What the rank's slots share: the work home, staged layers, scratch, tables of positions. rope:
 * the model has such. */
int64_t activations_shared_total(const struct act_dims *d, const struct stage *chunks, int n_chunks,
				 bool rope);

#endif
