/*
 * tp — the operators of tensor and sequence parallelism, and reductions over a sharded vocabulary.
 *
 * Shoeybi et al., "Megatron-LM", arXiv 1909.08053, has two operators between a whole activation and
 * one that is sharded over the ranks: f (identity forward, all-reduce backward) before a
 * column-parallel linear, and g (all-reduce forward, identity backward) after a row-parallel one.
 * The identities need no code. The backward of f and the forward of g are the same all-reduce.
 *
 * Sequence parallelism (Korthikanti et al., arXiv 2205.05198) shards the rows of the residual stream
 * over the ranks. The identities become all-gathers and the all-reduces become reduce-scatters (f̄,
 * ḡ). Rank r has the rows [r s, (r + 1) s) of n = size × s.
 *
 * The vocabulary-parallel embedding is an all-reduce of outputs that are zero where another rank has
 * the token. The cross-entropy needs a maximum and two sums of [rows] (kernels/ops.h); the logits
 * are never gathered.
 *
 * Every call gives all ranks of the group the same bits of the data that they share. With one rank
 * the calls do nothing.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_TP_H
#define MUSTER_AGENT_ENGINE_PARALLEL_TP_H

#include "base/err.h"
#include "libcomm/comm.h"

#include <stdbool.h>
#include <stddef.h>

struct tp {
	struct comm *comm; /* NULL: one rank; borrowed */
	int rank, size;
	bool sp;             /* the rows of the residual stream are sharded */
	bool overlap;        /* transfers may overlap matrix products */
	enum comm_type type; /* of activations */
	double seconds;      /* waited here; the reader resets it */
};

/* sp has no effect with one rank. */
void tp_init(struct tp *t, struct comm *group, bool sp, bool overlap, enum comm_type type);

/* Start a transfer that may continue while the caller computes without touching its buffers. Small
 * transfers, and all without `overlap`, are complete when the call returns, because handing them to
 * another thread costs more than they do. tp_wait completes a transfer; *req NULL is complete. */
int tp_gather_start(struct tp *t, const void *shard, void *full, size_t count,
		    struct comm_request **req, struct err *e);
int tp_reduce_start(struct tp *t, void *full, void *shard, size_t count, struct comm_request **req,
		    struct err *e);
int tp_wait(struct tp *t, struct comm_request **req, struct err *e);

/* full[size × count] = every rank's shard[count]. With sp only. */
int tp_gather(struct tp *t, const void *shard, void *full, size_t count, struct err *e);
/* Sums `full` over the group. With sp it is a reduce-scatter: each rank gets its rows, shard[count].
 * Otherwise it is an all-reduce in place: shard is full, and count is its length. */
int tp_reduce(struct tp *t, void *full, void *shard, size_t count, struct err *e);
/* All-reduces in place, fp32. */
int tp_all_reduce_sum(struct tp *t, float *x, size_t count, struct err *e);
int tp_all_reduce_max(struct tp *t, float *x, size_t count, struct err *e);

#endif
