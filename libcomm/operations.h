/*
 * operations — the two tables that people extend: OPERATIONS and ALGORITHMS.
 *
 * There are two things to do to add an algorithm for an operation:
 *   1. Write `algorithm_fn comm_<name>` in a file of libcomm/algorithms/. algorithms.h says what it
 *      may rely on.
 *   2. Add its row to ALGORITHMS below. If no name in ALGORITHM_NAMES describes it, add a name.
 * Its declaration, the option [network] algorithm, the flight recorder and the conformance test
 * follow from the tables.
 *
 * There are four things to do to add a collective:
 *   1. Add its row to OPERATIONS below.
 *   2. Declare comm_<name> and comm_<name>_start in comm.h.
 *   3. Add its OPERATION to comm.c, which defines both.
 *   4. Add at least one algorithm, as above. The last row of an operation must fit every group of
 *      every backend.
 * Argument checks, asynchronous calls, access to peers' memory, staging of device memory, the
 * flight recorder and its diagnosis follow from the row. On device memory it runs staged until
 * device/cuda/nccl.c has a function for it: with the backend "nccl" the call is refused. The
 * conformance test takes its cases from tests/conform/comm_forms.c and the expected results from
 * tests/conform/comm_reference.c.
 */
#ifndef MUSTER_LIBCOMM_OPERATIONS_H
#define MUSTER_LIBCOMM_OPERATIONS_H

/* Which part of the vector a buffer of a rank holds. */
enum op_share {
	SHARE_NONE,  /* the rank has no such buffer */
	SHARE_BLOCK, /* the rank's own block */
	SHARE_WHOLE, /* the blocks of all ranks, in rank order */
};

enum comm_op_traits {
	OP_REDUCES = 1,    /* takes a reduction (enum comm_op) */
	OP_ROOTED = 2,     /* takes a root */
	OP_ONE_BLOCK = 4,  /* the vector is one block: it is not divided among the ranks */
	OP_ONE_BUFFER = 8, /* `in` and `out` are the same buffer */
	/* Each pair of ranks has a block of its own, whose size only these two know; `in` and `out`
	 * have different counts and may not be the same buffer. */
	OP_PAIRWISE = 16,
};

/* kind, its name in errors and dumps; what a rank's `in` and `out` hold; what the root's hold;
 * traits. The order is part of the wire format. */
/* clang-format off */
#define OPERATIONS(X) \
	X(OP_ALL_REDUCE,     "all_reduce",     SHARE_WHOLE, SHARE_WHOLE, SHARE_WHOLE, SHARE_WHOLE, OP_REDUCES | OP_ONE_BLOCK) \
	X(OP_REDUCE,         "reduce",         SHARE_WHOLE, SHARE_NONE,  SHARE_WHOLE, SHARE_WHOLE, OP_REDUCES | OP_ROOTED | OP_ONE_BLOCK) \
	X(OP_BROADCAST,      "broadcast",      SHARE_NONE,  SHARE_WHOLE, SHARE_WHOLE, SHARE_NONE,  OP_ROOTED | OP_ONE_BLOCK | OP_ONE_BUFFER) \
	X(OP_ALL_GATHER,     "all_gather",     SHARE_BLOCK, SHARE_WHOLE, SHARE_BLOCK, SHARE_WHOLE, 0) \
	X(OP_REDUCE_SCATTER, "reduce_scatter", SHARE_WHOLE, SHARE_BLOCK, SHARE_WHOLE, SHARE_BLOCK, OP_REDUCES) \
	X(OP_ALL_TO_ALL,     "all_to_all",     SHARE_WHOLE, SHARE_WHOLE, SHARE_WHOLE, SHARE_WHOLE, OP_PAIRWISE) \
	X(OP_GATHER,         "gather",         SHARE_BLOCK, SHARE_NONE,  SHARE_BLOCK, SHARE_WHOLE, OP_ROOTED) \
	X(OP_SCATTER,        "scatter",        SHARE_NONE,  SHARE_BLOCK, SHARE_WHOLE, SHARE_BLOCK, OP_ROOTED) \
	X(OP_BARRIER,        "barrier",        SHARE_NONE,  SHARE_NONE,  SHARE_NONE,  SHARE_NONE,  0) \
	X(OP_P2P,            "send/recv",      SHARE_NONE,  SHARE_NONE,  SHARE_NONE,  SHARE_NONE,  0)
/* clang-format on */

/* The names that comm_options.algorithm takes. One name may stand for the algorithms of several
 * operations. */
/* clang-format off */
#define ALGORITHM_NAMES(X) \
	X(ALG_ONCE, "once")         /* one host: one step, every rank reads everything */ \
	X(ALG_SLOTS, "slots")       /* one host: chunks through shared slots, one step per chunk */ \
	X(ALG_READERS, "readers")   /* one host: ranks read each other's buffers */ \
	X(ALG_DIRECT, "direct")     /* messages: all pairs concerned at once */ \
	X(ALG_TREE, "tree")         /* messages: whole vectors, log n of them on the longest path */ \
	X(ALG_SHARES, "shares")     /* messages: one share per rank, then an all-gather */ \
	X(ALG_DOUBLING, "doubling") /* 2^k ranks: k messages of whole vectors per rank */ \
	X(ALG_HALVING, "halving")   /* 2^k ranks: 2k messages of half a vector or less per rank */ \
	X(ALG_RING, "ring")         /* messages from rank to rank; no reductions: a ring's order is not that of comm.h */ \
	X(ALG_PAIRWISE, "pairwise") /* messages: a few partners at a time */ \
	X(ALG_LEADERS, "leaders")   /* several hosts: one rank of each host uses the network */ \
	X(ALG_HYBRID, "hybrid")     /* several hosts: data crosses the network once per host; all its ranks carry a part */
/* clang-format on */

/*
 * The algorithms of each operation. The first row that matches is chosen, unless
 * comm_options.algorithm names another that can run. Columns:
 *
 *     kind, function
 *     name       of ALGORITHM_NAMES
 *     backends   that it works on; ANY: all
 *     fits       further condition (algorithms.h, algorithms.c); NULL: none
 *     ranks      chosen up to this group size; 0: any size
 *     bytes      chosen up to this size of the whole vector; ALL: any size
 *
 * The choice may depend only on what all ranks know. A message algorithm costs α for each message
 * on its longest chain and β for each byte that a rank sends. With a vector of V bytes, an
 * all-reduce costs: doubling log n (α + Vβ); halving 2 log n α + 2Vβ; tree 2 log n (α + Vβ); direct
 * α + (n - 1)Vβ; shares 2α + 2Vβ, but 2(n - 1) messages, whose own cost decides where cores are
 * few. Over H hosts, leaders costs α + (H - 1)Vβ, or as much as the tree if there are more than a
 * few hosts; hybrid costs 2α + 2(H - 1)/H Vβ, which is the minimum. The limits were measured with
 * 4, 8 and 16 ranks over TCP on the loopback interface of two cores, where α is a wake-up and β a
 * copy.
 */
/* clang-format off */
#define BY_SLOTS   ALG_SLOTS, GROUP_SHM, slots_fit
#define BY_READERS ALG_READERS, GROUP_SHM, slots_fit
#define BY_LEADERS ALG_LEADERS, GROUP_HYBRID, comm_leaders_fit, 0
#define BY_HYBRID  ALG_HYBRID, GROUP_HYBRID, hybrid_fits, 0, ALL
#define ALGORITHMS(X) \
	X(OP_P2P,            comm_message_p2p,               ALG_DIRECT, ANY, NULL, 0, ALL) \
	X(OP_ALL_REDUCE,     comm_slots_all_reduce_once,     ALG_ONCE, GROUP_SHM, one_slot_fits, 2, 128 * KIB) \
	X(OP_ALL_REDUCE,     comm_slots_all_reduce_once,     ALG_ONCE, GROUP_SHM, one_slot_fits, 0, 4 * KIB) \
	X(OP_ALL_REDUCE,     comm_slots_reduce,              BY_SLOTS, 0, 128 * KIB) \
	X(OP_ALL_REDUCE,     comm_readers_all_reduce,        BY_READERS, 3, ALL) \
	X(OP_ALL_REDUCE,     comm_slots_reduce,              BY_SLOTS, 0, ALL) \
	X(OP_ALL_REDUCE,     comm_leaders_reduce,            BY_LEADERS, 64 * KIB) \
	X(OP_ALL_REDUCE,     comm_halving_all_reduce,        ALG_HALVING, GROUP_HYBRID, flat_halving_costs_less, 0, 256 * KIB) \
	X(OP_ALL_REDUCE,     comm_message_all_reduce_shares, ALG_SHARES, GROUP_HYBRID, flat_costs_less, 0, 1024 * KIB) \
	X(OP_ALL_REDUCE,     comm_hybrid_flow,               BY_HYBRID) \
	X(OP_ALL_REDUCE,     comm_doubling_all_reduce,       ALG_DOUBLING, ANY, comm_halving_fits, 0, 16 * KIB) \
	X(OP_ALL_REDUCE,     comm_halving_all_reduce,        ALG_HALVING, ANY, comm_halving_fits, 0, 1024 * KIB) \
	X(OP_ALL_REDUCE,     comm_message_all_reduce_direct, ALG_DIRECT, ANY, NULL, 4, 16 * KIB) \
	X(OP_ALL_REDUCE,     comm_message_all_reduce_tree,   ALG_TREE, ANY, NULL, 0, 64 * KIB) \
	X(OP_ALL_REDUCE,     comm_message_all_reduce_shares, ALG_SHARES, ANY, NULL, 0, ALL) \
	X(OP_REDUCE,         comm_slots_reduce,              BY_SLOTS, 0, 128 * KIB) \
	X(OP_REDUCE,         comm_readers_reduce,            BY_READERS, 3, ALL) \
	X(OP_REDUCE,         comm_slots_reduce,              BY_SLOTS, 0, ALL) \
	X(OP_REDUCE,         comm_leaders_reduce,            BY_LEADERS, 64 * KIB) \
	X(OP_REDUCE,         comm_message_reduce_shares,     ALG_SHARES, GROUP_HYBRID, flat_costs_less, 0, 1024 * KIB) \
	X(OP_REDUCE,         comm_hybrid_flow,               BY_HYBRID) \
	X(OP_REDUCE,         comm_message_reduce_tree,       ALG_TREE, ANY, NULL, 0, 16 * KIB) \
	X(OP_REDUCE,         comm_message_reduce_shares,     ALG_SHARES, ANY, NULL, 0, ALL) \
	X(OP_REDUCE_SCATTER, comm_slots_reduce_scatter,      BY_SLOTS, 0, 16 * KIB) \
	X(OP_REDUCE_SCATTER, comm_readers_reduce_scatter,    BY_READERS, 2, ALL) \
	X(OP_REDUCE_SCATTER, comm_slots_reduce_scatter,      BY_SLOTS, 0, ALL) \
	X(OP_REDUCE_SCATTER, comm_message_reduce_scatter,    ALG_DIRECT, GROUP_HYBRID, flat_costs_less, 0, 1024 * KIB) \
	X(OP_REDUCE_SCATTER, comm_hybrid_reduce_scatter,     ALG_HYBRID, GROUP_HYBRID, comm_hybrid_scatter_fits, 0, ALL) \
	X(OP_REDUCE_SCATTER, comm_message_reduce_scatter,    ALG_DIRECT, ANY, NULL, 0, ALL) \
	X(OP_BROADCAST,      comm_slots_broadcast,           BY_SLOTS, 0, ALL) \
	X(OP_BROADCAST,      comm_readers_broadcast,         BY_READERS, 0, ALL) \
	X(OP_BROADCAST,      comm_leaders_broadcast,         BY_LEADERS, 64 * KIB) \
	X(OP_BROADCAST,      comm_hybrid_flow,               BY_HYBRID) \
	X(OP_BROADCAST,      comm_message_broadcast_tree,    ALG_TREE, ANY, NULL, 2, ALL) \
	X(OP_BROADCAST,      comm_message_broadcast_tree,    ALG_TREE, ANY, NULL, 0, 64 * KIB) \
	X(OP_BROADCAST,      comm_message_broadcast_shares,  ALG_SHARES, ANY, NULL, 0, 4096 * KIB) \
	X(OP_BROADCAST,      comm_ring_broadcast,            ALG_RING, ANY, NULL, 16, ALL) \
	X(OP_BROADCAST,      comm_message_broadcast_shares,  ALG_SHARES, ANY, NULL, 0, ALL) \
	X(OP_ALL_GATHER,     comm_slots_all_gather,          BY_SLOTS, 0, 8 * KIB) \
	X(OP_ALL_GATHER,     comm_readers_all_gather,        BY_READERS, 2, ALL) \
	X(OP_ALL_GATHER,     comm_slots_all_gather,          BY_SLOTS, 0, 256 * KIB) \
	X(OP_ALL_GATHER,     comm_readers_all_gather,        BY_READERS, 4, ALL) \
	X(OP_ALL_GATHER,     comm_slots_all_gather,          BY_SLOTS, 0, ALL) \
	X(OP_ALL_GATHER,     comm_hybrid_all_gather,         ALG_HYBRID, GROUP_HYBRID, comm_hybrid_gather_fits, 0, ALL) \
	X(OP_ALL_GATHER,     comm_doubling_all_gather,       ALG_DOUBLING, ANY, comm_halving_fits, 0, 256 * KIB) \
	X(OP_ALL_GATHER,     comm_message_all_gather,        ALG_DIRECT, ANY, NULL, 64, ALL) \
	X(OP_ALL_GATHER,     comm_message_all_gather,        ALG_DIRECT, ANY, NULL, 0, 1024 * KIB) \
	X(OP_ALL_GATHER,     comm_ring_all_gather,           ALG_RING, ANY, NULL, 0, ALL) \
	X(OP_ALL_TO_ALL,     comm_readers_all_to_all,        BY_READERS, 0, ALL) \
	X(OP_ALL_TO_ALL,     comm_slots_all_to_all,          BY_SLOTS, 0, ALL) \
	X(OP_ALL_TO_ALL,     comm_message_all_to_all,        ALG_DIRECT, ANY, NULL, 32, ALL) \
	X(OP_ALL_TO_ALL,     comm_pairwise_all_to_all,       ALG_PAIRWISE, ANY, NULL, 0, ALL) \
	X(OP_GATHER,         comm_slots_gather,              BY_SLOTS, 0, 16 * KIB) \
	X(OP_GATHER,         comm_readers_gather,            BY_READERS, 2, ALL) \
	X(OP_GATHER,         comm_slots_gather,              BY_SLOTS, 0, 512 * KIB) \
	X(OP_GATHER,         comm_readers_gather,            BY_READERS, 0, ALL) \
	X(OP_GATHER,         comm_message_gather,            ALG_DIRECT, ANY, NULL, 0, ALL) \
	X(OP_SCATTER,        comm_slots_scatter,             BY_SLOTS, 0, 16 * KIB) \
	X(OP_SCATTER,        comm_readers_scatter,           BY_READERS, 2, ALL) \
	X(OP_SCATTER,        comm_slots_scatter,             BY_SLOTS, 0, 128 * KIB) \
	X(OP_SCATTER,        comm_readers_scatter,           BY_READERS, 0, ALL) \
	X(OP_SCATTER,        comm_message_scatter,           ALG_DIRECT, ANY, NULL, 0, ALL) \
	X(OP_BARRIER,        comm_slots_barrier,             BY_SLOTS, 0, ALL) \
	X(OP_BARRIER,        comm_leaders_barrier,           BY_LEADERS, ALL) \
	X(OP_BARRIER,        comm_message_barrier,           ALG_TREE, ANY, NULL, 0, ALL)
/* clang-format on */

#endif
