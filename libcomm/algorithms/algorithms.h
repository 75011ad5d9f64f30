/*
 * algorithms — the ways to carry out each operation.
 *
 * To add one: write `int name(struct comm *, const struct op *, struct err *)`, declare it here,
 * give it a name in ALGORITHMS, and add a row to the table in algorithms.c: the first row that fits
 * the operation, the group and the size is taken, unless comm_options.algorithm names another that
 * can do it. The choice may only depend on what all ranks know. Reductions must keep the order of
 * comm.h: have the raw contributions meet in comm_reduce_tree, or pass partial results up that same
 * tree.
 */
#ifndef MUSTER_LIBCOMM_ALGORITHMS_ALGORITHMS_H
#define MUSTER_LIBCOMM_ALGORITHMS_ALGORITHMS_H

#include "libcomm/group.h"

/* The names that comm_options.algorithm knows. One name may stand for a way through several
 * operations. */
#define ALGORITHMS(X) \
	X(ALG_ONCE, "once")         /* shared memory, one step: everybody reads everything */ \
	X(ALG_SLOTS, "slots")       /* shared memory, a step a chunk */ \
	X(ALG_READERS, "readers")   /* one host, out of each other's buffers */ \
	X(ALG_DIRECT, "direct")     /* everybody to whom it concerns, at once */ \
	X(ALG_TREE, "tree")         /* log n messages on the longest way, whole vectors */ \
	X(ALG_SHARES, "shares")     /* a share a rank, then all gather */ \
	X(ALG_DOUBLING, "doubling") /* 2^k ranks: k messages, whole vectors */ \
	X(ALG_HALVING, "halving")   /* 2^k ranks: 2 k messages, of half a vector and less */ \
	X(ALG_RING, \
	  "ring") /* from rank to rank; no reductions: it has another order than comm.h */ \
	X(ALG_PAIRWISE, "pairwise") /* a few partners at a time */ \
	X(ALG_LEADERS, "leaders")   /* several hosts: one rank of each speaks for it */ \
	X(ALG_HYBRID, "hybrid")     /* several hosts: once a host, all its ranks carry a part */

enum algorithm_name {
	ALG_BY_TABLE = -1,
#define ALG_ENUM(name, word) name,
	ALGORITHMS(ALG_ENUM)
#undef ALG_ENUM
		ALG_COUNT
};

/* NULL and "" are ALG_BY_TABLE; an unknown word is ERR_USAGE, which lists the known ones. */
int comm_algorithm_parse(const char *word, int *out, struct err *e);

typedef int algorithm_fn(struct comm *c, const struct op *op, struct err *e);

/* slots.c: all ranks on one host, over shared slots, a step a chunk. */
/* at most: a slot is cut into a piece a rank, at each step a rank looks at every other */
enum { SLOTS_RANKS = 256 };
algorithm_fn comm_slots_all_reduce_once; /* one step: everybody sums everything */
algorithm_fn comm_slots_reduce;          /* all_reduce and reduce: everybody sums a share */
algorithm_fn comm_slots_reduce_scatter, comm_slots_all_gather, comm_slots_gather,
	comm_slots_scatter, comm_slots_broadcast, comm_slots_all_to_all, comm_slots_barrier;
/* of an all_to_all's block */
int comm_slots_check_size(struct comm *c, int rank, uint64_t given, struct err *e);

/* readers.c: all ranks on one host, out of each other's buffers. */
algorithm_fn comm_readers_all_reduce, comm_readers_reduce, comm_readers_reduce_scatter,
	comm_readers_all_gather, comm_readers_gather, comm_readers_scatter, comm_readers_broadcast,
	comm_readers_all_to_all;

/* spread.c: over messages; data that is not reduced. */
algorithm_fn comm_message_broadcast_tree, comm_message_broadcast_shares, comm_message_all_gather,
	comm_message_all_to_all, comm_message_gather, comm_message_scatter, comm_message_barrier,
	comm_message_p2p;

/* combine.c: reductions over messages. */
algorithm_fn comm_message_all_reduce_direct; /* everybody gets everything and sums it */
algorithm_fn comm_message_all_reduce_tree;   /* partial sums up the tree, the result down */
algorithm_fn comm_message_all_reduce_shares; /* a share a rank, then all gather */
algorithm_fn comm_message_reduce_tree, comm_message_reduce_shares, comm_message_reduce_scatter;

/* halving.c: over messages, in groups of 2^k ranks. */
bool comm_halving_fits(const struct comm *c, size_t bytes);
algorithm_fn comm_doubling_all_reduce, comm_doubling_all_gather, comm_halving_all_reduce;

/* chain.c: over messages, few at a time. */
algorithm_fn comm_ring_all_gather, comm_ring_broadcast, comm_pairwise_all_to_all;

/* hybrid.c: several hosts of several ranks. */
bool comm_hybrid_scatter_fits(const struct comm *c, size_t bytes);
algorithm_fn comm_hybrid_flow; /* all_reduce, reduce, broadcast */
algorithm_fn comm_hybrid_reduce_scatter;
bool comm_hybrid_gather_fits(const struct comm *c, size_t bytes);
algorithm_fn comm_hybrid_all_gather; /* hybrid_gather.c */

/* leaders.c: the same, for few bytes. */
bool comm_leaders_fit(const struct comm *c, size_t bytes);
algorithm_fn comm_leaders_reduce; /* all_reduce and reduce */
algorithm_fn comm_leaders_broadcast, comm_leaders_barrier;

/* Cuts count elements into one share a rank; off[0..size] in bytes. */
void comm_split_evenly(const struct comm *c, size_t count, size_t element, size_t *off);
/* data[off[size]]: rank's block goes to everybody. */
int comm_exchange_blocks(struct comm *c, const struct op *op, char *data, const size_t *off,
			 struct err *e);
/* After an operation's blocks are in c->off: this rank's own from in to out. */
void comm_copy_own_block(const struct comm *c, const struct op *op);
/* Among ranks[0..n), of which this is number `me`; NULL: all of the group. data[bytes] goes from
 * number root to all, binomially. */
int comm_broadcast_among(struct comm *c, const struct op *op, const int *ranks, int n, int root,
			 int me, void *data, size_t bytes, struct err *e);
/* Likewise; returns when all have come. */
int comm_barrier_among(struct comm *c, const struct op *op, const int *ranks, int n, int me,
		       struct err *e);

#endif
