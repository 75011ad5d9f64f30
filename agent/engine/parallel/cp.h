/*
 * cp — context parallelism: the ranks of a group share each sequence.
 *
 * A sequence of seq tokens is cut into 2 × size pieces; rank r has pieces r and 2 size - 1 - r
 * (zig-zag), so that under the causal mask all have the same to do. A rank's tokens of a sequence
 * lie in the order of their positions: first the early piece, then the late one. One rank alone has
 * the whole sequence.
 *
 * Attention goes round a ring (Liu, Zaharia, Abbeel, arXiv 2310.01889): keys and values pass from
 * rank to rank, each adds what its queries see of them and merges by the log-sum-exps; the backward
 * pass sends the keys' and values' gradients along.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_CP_H
#define MUSTER_AGENT_ENGINE_PARALLEL_CP_H

#include "base/err.h"
#include "kernels/ops.h"
#include "libcomm/comm.h"

#include <stdint.h>

/* What goes round and what one piece gives, for the n tokens of a rank; borrowed. Sizes:
 * plan/spec/model/activations.h, SCRATCH_RING_*. */
struct cp_buffers {
	void *kv, *dkv; /* [2, n, 2 kv_heads dim] */
	void *o;        /* [n, heads dim] */
	float *lse;     /* [heads n] */
};

struct cp {
	struct comm *comm;   /* NULL: alone; borrowed */
	struct comm *values; /* the same ranks, for numbers in the host's memory */
	int rank, size;
	enum comm_type type; /* of activations */
	struct cp_buffers buffers;
	double seconds; /* spent waiting in here; the reader sets it back */
};

void cp_init(struct cp *c, struct comm *group, struct comm *values, enum comm_type type);

/* The position in its sequence, of seq tokens, of this rank's token t, 0 <= t < seq / size. */
int64_t cp_position(const struct cp *c, int64_t seq, int64_t t);

/* Attention of this rank's queries over the whole sequences. qkv: this rank's rows of the fused
 * projection, [batch × seq / size, w]. s: batch, heads, kv_heads, dim, and what concerns dropout
 * and documents (starts [batch, seq / size], of this rank's tokens); the rest is set here. o [rows,
 * heads × dim], lse [heads × rows], laid out piece by piece. */
int cp_attention_forward(struct cp *c, struct backend *k, void *o, float *lse, const void *qkv,
			 const struct attn_shape *s, struct err *e);
/* Sets dqkv. */
int cp_attention_backward(struct cp *c, struct backend *k, void *dqkv, const void *dout,
			  const void *o, const float *lse, const void *qkv,
			  const struct attn_shape *s, struct err *e);

#endif
