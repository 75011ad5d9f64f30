/*
 * tree — partial results in the documented order of reductions (comm.h).
 *
 * The tree over n ranks is aligned: its nodes are the ranges of 2^k ranks that begin at a multiple
 * of 2^k, cut off at n. So whoever has the contributions of all ranks of a node may pass on their
 * sum, and nothing but their sum: one accumulator instead of 2^k vectors. The ranks of a host are
 * cut into the fewest such nodes, its parts: one for 2^k consecutive ranks that begin at a multiple
 * of 2^k, at most 2 log2 n for any consecutive ranks, and one per rank if neighbours are on
 * different hosts.
 */
#ifndef MUSTER_LIBCOMM_ALGORITHMS_TREE_H
#define MUSTER_LIBCOMM_ALGORITHMS_TREE_H

#include "libcomm/comm.h"

struct tree_part {
	int first, count; /* ranks */
};

/* Cuts the ranks [0, n) into the largest nodes whose ranks all have the same of[rank], in rank
 * order. parts has room for n. Returns how many there are. */
int comm_tree_parts(const int *of, int n, struct tree_part *parts);

struct tree_leaf {
	struct tree_part part;
	/* elements of one rank; otherwise an accumulator (reduce.h), which the sum overwrites */
	bool raw;
	union {
		char *data;
		const char *source; /* the same pointer; a raw leaf's elements are only read */
	};
};

/* out[count] = the reduction of the leaves, which are all parts of [0, n) in rank order. out may be
 * a raw leaf's data. */
void comm_tree_fold(enum comm_type type, enum comm_op op, const struct tree_leaf *leaves, int n,
		    void *out, size_t count);

#endif
