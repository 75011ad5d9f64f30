/*
 * tp — tensor and sequence parallelism's operators and the reductions of a cut vocabulary.
 *
 * Shoeybi et al., "Megatron-LM", arXiv 1909.08053: between a whole activation and one that each
 * rank holds a piece of stand f (identity forward, all-reduce backward, in front of a
 * column-parallel linear) and g (all-reduce forward, identity backward, behind a row-parallel one).
 * The identities need no code; f's backward and g's forward are the same sum.
 *
 * Sequence parallelism (Korthikanti et al., arXiv 2205.05198) cuts the rows of the residual stream
 * over the ranks: the identities become all-gathers, the sums reduce-scatters (f̄, ḡ). Rank r has
 * rows [r s, (r + 1) s) of n = size × s.
 *
 * The vocabulary-parallel embedding is a sum of pieces that are zero where the token belongs to
 * another rank; the cross-entropy needs a maximum and two sums of [rows] (kernels/ops.h): the
 * logits are never gathered.
 *
 * Every call gives all ranks of the group the same bits of what they share. One rank alone does
 * nothing.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_TP_H
#define MUSTER_AGENT_ENGINE_PARALLEL_TP_H

#include "base/err.h"
#include "libcomm/comm.h"

#include <stdbool.h>
#include <stddef.h>

struct tp {
	struct comm *comm; /* NULL: alone; borrowed */
	int rank, size;
	bool sp;             /* the stream's rows are cut */
	bool overlap;        /* transfers may go on beside matrix products */
	enum comm_type type; /* of activations */
	double seconds;      /* spent in here, waiting; the reader sets it back */
};

/* sp counts only where there is more than one rank. */
void tp_init(struct tp *t, struct comm *group, bool sp, bool overlap, enum comm_type type);

/* A transfer that may go on while its caller computes what does not touch its buffers. Small ones,
 * and all without `overlap`, are over when their start returns: handing over to another thread
 * costs more than they do. tp_wait ends one; NULL has ended. */
int tp_gather_start(struct tp *t, const void *shard, void *full, size_t count,
		    struct comm_request **req, struct err *e);
int tp_reduce_start(struct tp *t, void *full, void *shard, size_t count, struct comm_request **req,
		    struct err *e);
int tp_wait(struct tp *t, struct comm_request **req, struct err *e);

/* full[size × count] = every rank's shard[count]. Under sp only. */
int tp_gather(struct tp *t, const void *shard, void *full, size_t count, struct err *e);
/* The sum over the group of full; under sp each rank gets its rows of it, shard[count], else all of
 * it, in place (shard is full, count its length). */
int tp_reduce(struct tp *t, void *full, void *shard, size_t count, struct err *e);
/* In place over the group, fp32. */
int tp_all_reduce_sum(struct tp *t, float *x, size_t count, struct err *e);
int tp_all_reduce_max(struct tp *t, float *x, size_t count, struct err *e);

#endif
