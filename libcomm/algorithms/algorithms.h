/*
 * algorithms — how each operation is carried out on host memory. libcomm/operations.h holds the
 * table of algorithms and the recipe to add one.
 *
 * An algorithm is a function that runs one operation on one rank and returns when this rank's part
 * is done. It runs on the thread that called the operation, or on the group's own thread; at most
 * one runs in a group at a time. It can rely on checked arguments, on a group of at least two ranks
 * (messages: one), and on c->seq, which numbers the operation. It moves data by
 *
 *     shm/step.h        steps between the ranks of one host and the slots that they share
 *     shm/peer_memory.h reading and writing the buffers of ranks of the same host
 *     p2p/exchange.h    messages to any rank
 *     node_ranks.h      both, in groups over several hosts
 *
 * On failure it returns -1 with an error that describes the rank to blame; the caller adds the
 * operation and the group, and fails the world. Reductions must keep the order of comm.h: either
 * all raw contributions meet in comm_reduce_tree, or partial results pass up that same tree
 * (reduce.h, tree.h).
 */
#ifndef MUSTER_LIBCOMM_ALGORITHMS_ALGORITHMS_H
#define MUSTER_LIBCOMM_ALGORITHMS_ALGORITHMS_H

#include "libcomm/group.h"

typedef int algorithm_fn(struct comm *c, const struct op *op, struct err *e);

/* Every function of the table. Some rows share one. */
#define ALGORITHM_DECLARE(kind, run, ...) algorithm_fn run;
ALGORITHMS(ALGORITHM_DECLARE)
#undef ALGORITHM_DECLARE

enum algorithm_name {
	ALG_BY_TABLE = -1,
#define ALG_ENUM(name, word) name,
	ALGORITHM_NAMES(ALG_ENUM)
#undef ALG_ENUM
		ALG_COUNT
};

/* NULL and "" are ALG_BY_TABLE. An unknown word is ERR_USAGE; the error lists the known ones. */
int comm_algorithm_parse(const char *word, int *out, struct err *e);

/* --- Conditions of the table (column `fits`). bytes: of the whole vector ------------------- */

/* The largest group that uses slots: a slot is cut into one piece per rank, and each rank looks at
 * every other rank in each step. */
enum { SLOTS_RANKS = 256 };
/* The group has 2^k ranks. */
bool comm_halving_fits(const struct comm *c, size_t bytes);
/* The blocks fit into the slots of the largest host. */
bool comm_hybrid_scatter_fits(const struct comm *c, size_t bytes);
bool comm_hybrid_gather_fits(const struct comm *c, size_t bytes);
bool comm_leaders_fit(const struct comm *c, size_t bytes);

/* --- What several algorithms share ------------------------------------------------------- */

/* The rank i places after this one: ranks take their peers in different orders, so that not all
 * access the same one first. */
int comm_nth_peer(const struct comm *c, int i);
/* Divides count elements into one share per rank, in whole cache lines; off[0..size] in bytes. */
void comm_split_evenly(const struct comm *c, size_t count, size_t element, size_t *off);
/* data[off[size]]: sends this rank's block to all ranks and receives theirs. */
int comm_exchange_blocks(struct comm *c, const struct op *op, char *data, const size_t *off,
			 struct err *e);
/* Copies this rank's own block from `in` to its place in `out`; c->off holds the block offsets. */
void comm_copy_own_block(const struct comm *c, const struct op *op);
/* A binomial broadcast of data[bytes] among ranks[0..n), from index root; `me` is this rank's
 * index. ranks NULL: all ranks of the group. */
int comm_broadcast_among(struct comm *c, const struct op *op, const int *ranks, int n, int root,
			 int me, void *data, size_t bytes, struct err *e);
/* A barrier among ranks[0..n), as above. */
int comm_barrier_among(struct comm *c, const struct op *op, const int *ranks, int n, int me,
		       struct err *e);
/* Fails if `given`, the bytes that rank's all-to-all block has, differs from what this rank expects
 * (c->off2). */
int comm_slots_check_size(struct comm *c, int rank, uint64_t given, struct err *e);

#endif
