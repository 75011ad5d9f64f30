/*
 * cp — context parallelism: the ranks of a group share each sequence.
 *
 * A sequence of seq tokens is cut into 2 × size pieces. Rank r has the pieces r and 2 size - 1 - r
 * (zig-zag), so that all ranks have the same amount of work under the causal mask. A rank stores
 * its tokens of a sequence in the order of their positions: first the early piece, then the late
 * one. One rank alone has the whole sequence.
 *
 * Attention uses a ring (Liu, Zaharia, Abbeel, arXiv 2310.01889). Keys and values pass from rank to
 * rank. Each rank attends to them with its queries and merges the results by their log-sum-exps.
 * The backward pass sends the gradients of keys and values along with them.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_CP_H
#define MUSTER_AGENT_ENGINE_PARALLEL_CP_H

#include "base/err.h"
#include "kernels/ops.h"
#include "libcomm/comm.h"

#include <stdint.h>

/* Scratch for the n tokens of a rank: the data that passes along the ring, and the result of one
 * piece. Borrowed. plan/spec/model/activations.h has the sizes (SCRATCH_RING_*). */
struct cp_buffers {
	void *kv, *dkv; /* [2, n, 2 kv_heads dim] */
	void *o;        /* [n, heads dim] */
	float *lse;     /* [heads n] */
};

struct cp {
	struct comm *comm;   /* NULL: one rank; borrowed */
	struct comm *values; /* the same ranks, for numbers in the host's memory */
	int rank, size;
	enum comm_type type; /* of activations */
	struct cp_buffers buffers;
	double seconds; /* waited here; the reader resets it */
};

void cp_init(struct cp *c, struct comm *group, struct comm *values, enum comm_type type);

/* The position of this rank's token t, 0 <= t < seq / size, in its sequence of seq tokens. */
int64_t cp_position(const struct cp *c, int64_t seq, int64_t t);

/* Attention of this rank's queries over the whole sequences. qkv: this rank's rows of the fused
 * projection, [batch × seq / size, w]. The caller sets batch, heads, kv_heads, dim, seq, and the
 * members about dropout and documents of *s (starts is [batch, seq / size], for this rank's
 * tokens); the function sets the others. Sets o [rows, heads × dim] and lse [heads × rows], piece
 * by piece. */
int cp_attention_forward(struct cp *c, struct backend *k, void *o, float *lse, const void *qkv,
			 const struct attn_shape *s, struct err *e);
/* Sets dqkv. */
int cp_attention_backward(struct cp *c, struct backend *k, void *dqkv, const void *dout,
			  const void *o, const float *lse, const void *qkv,
			  const struct attn_shape *s, struct err *e);

#endif
