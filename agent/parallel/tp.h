/*
 * tp — tensor parallelism's two operators and the reductions of a cut vocabulary.
 *
 * Shoeybi et al., "Megatron-LM", arXiv 1909.08053: between a whole activation
 * and one that each rank holds a piece of stand f (identity forward, all-reduce
 * backward, in front of a column-parallel linear) and g (all-reduce forward, identity backward,
 * behind a row-parallel one). The identities need no code; f's backward and g's forward are the
 * same sum, tp_sum. The bias of a row-parallel linear is added once, after it.
 *
 * The vocabulary-parallel embedding is a sum of pieces that are zero where the token belongs to another rank;
 * the cross-entropy needs a maximum and two sums of [rows] (kernels/ops.h): the logits are never gathered.
 *
 * Every call gives all ranks of the group the same bits. One rank alone does nothing.
 */
#ifndef MUSTER_AGENT_PARALLEL_TP_H
#define MUSTER_AGENT_PARALLEL_TP_H

#include "base/err.h"

#include <stddef.h>

struct comm;

struct tp {
	struct comm *comm; /* NULL: alone; borrowed */
	int rank, size;
	double seconds;    /* spent in reductions; the reader sets it back */
};

void tp_init(struct tp *t, struct comm *group);
/* In place over the group. */
int tp_sum(struct tp *t, float *x, size_t count, struct err *e);
int tp_max(struct tp *t, float *x, size_t count, struct err *e);

#endif
