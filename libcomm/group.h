/*
 * group — struct comm, for libcomm's own folders only. Other rooms see comm.h.
 *
 * The way of an operation: comm.c turns the call into a struct op (op.h). If it is asynchronous,
 * async.h runs it on the group's own thread, or queues it for the device. algorithms.h chooses the
 * algorithm from the table in operations.h, and the algorithm moves data through shared memory,
 * through messages, or both:
 *
 *     shm/          memory that the ranks of a host share: the segment with its steps and slots;
 *                   shared buffers; access to a peer's memory (cross-memory attach)
 *     p2p/          messages: the exchange of many at once, endpoints to other ranks, rings in
 *                   shared memory, the rendezvous protocol for long messages
 *     tcp/          messages to other hosts: connections, handshakes, checked records; the
 *                   out-of-band connections over which ranks find the cause of a failure
 *     algorithms/   the choice from the table, and all algorithms on host memory
 *     device/       groups whose buffers are device memory: staged through the host, or run by
 *                   the device's library
 *     flight/       the recorder of operations, its dumps, and the diagnosis of all ranks' dumps
 *
 * A world (world.h) is what all groups of a process share: the peers and the first error. wire/ is how
 * it finds the peers.
 */
#ifndef MUSTER_LIBCOMM_GROUP_H
#define MUSTER_LIBCOMM_GROUP_H

#include "libcomm/world.h"

struct hosts;
struct endpoint;
struct recorder;
struct mapping;
struct pollfd;
struct worker;
struct device_group;
struct transfer;

enum group_backend { GROUP_SHM = 1, GROUP_TCP = 2, GROUP_HYBRID = 4 };

/* Which ranks the operation under way waits for, and since when. */
struct group_wait {
	bool *absent;          /* by rank: the operation waits for it */
	_Atomic int waits_for; /* world rank, told to ranks that ask (oob.h); -1: nobody */
	/* world rank that the failing operation blames and that may know the cause; -1: nobody */
	int accused;
	bool suspect;     /* an absent rank seems to be gone: check once more */
	int look;         /* the rank at which the next check begins */
	int64_t deadline; /* of the operation; 0: it has not slept yet */
	/* nanoseconds to wait beyond the deadline, so that a rank that knows more reports first */
	int64_t grace;
};

/* The list of messages of the operation under way (p2p/exchange.h). */
struct group_exchange {
	struct pollfd *polls; /* room for the wake-up pipe and all lanes; NULL without a pipe */
	struct transfer *transfers;
	int count, room;
};

struct comm {
	struct world *world;
	struct comm *next; /* in world->groups */
	char name[32];
	uint64_t id; /* equal on all ranks of the group, different in every other group */
	enum group_backend backend;
	int rank, size;
	int *members; /* by rank: its world rank */
	int *local;   /* by rank: its index in the segment; -1: on another host */

	/* Shared memory of this host's ranks */
	int memfd; /* what this rank offered to its host; -1: nothing */
	struct segment segment;
	uint32_t step;            /* steps passed so far (step.h) */
	uint32_t cma;             /* enum in peer_memory.c: whether all ranks can read each other */
	struct mapping *mappings; /* peers' shared buffers mapped here */
	/* bit per op_kind: all buffers of the last operation of the kind were shared, on all ranks
	 * */
	uint32_t in_shared_buffers;

	/* Messages */
	struct wakeup_pipe wakeup;
	struct endpoint *endpoints; /* by rank */
	struct group_exchange exchange;

	/* Groups over several hosts */
	struct hosts *hosts;
	/* this host's ranks as a group of their own on the same segment; NULL: this rank alone */
	struct comm *node_group;
	struct comm *parent_group; /* of a node group */

	/* The operation under way */
	uint32_t seq, messages; /* collectives, and send/recv calls, begun so far */
	struct op_signature sign;
	struct group_wait wait;
	size_t *off, *off2; /* [size + 1]: block offsets in bytes */
	void *scratch;
	size_t scratch_size;

	uint32_t splits; /* so far */
	struct recorder *recorder;
	_Atomic uint64_t sent;             /* bytes */
	struct device_group *device_group; /* NULL: buffers are host memory */
	struct worker *worker;             /* NULL until the first asynchronous operation */
	int open_requests;
};

/* Collective. cards: one for each rank of the group. mine is offered as memfd and wakeup, which the
 * group takes over in any case, also on failure. */
struct group_spec {
	struct world *world;
	uint64_t id;
	const char *name;
	const int *members;
	int rank, size;
	const struct card *cards;
	int memfd;
	struct wakeup_pipe wakeup;
};
int comm_group_open(const struct group_spec *spec, struct comm **out, struct err *e);
/* Leaves the group, and notifies the peers that still wait for this rank. */
void comm_group_free(struct comm *c);
/* Notifies all ranks that this rank gave up. Under the world's lock. */
void comm_group_interrupt(struct comm *c, const struct err *why);

/* Runs n operations on this thread, one after the other. A device group runs them as device_group.h
 * describes. */
int comm_group_run(struct comm *c, const struct op *ops, int n, struct err *e);
/* Runs one operation on host memory, whatever the group's own buffers are. */
int comm_group_run_host(struct comm *c, const struct op *op, struct err *e);

/* all[size][bytes] = mine of each rank, in host memory. */
int comm_group_all_gather_host(struct comm *c, const void *mine, void *all, size_t bytes,
			       struct err *e);

/* --- Waiting for other ranks ------------------------------------------------------------------ */

enum { SLICE_NS = 10000000 }; /* the longest sleep between two checks of the peers */

/* Whether to keep waiting for the ranks marked in c->wait.absent: 0, or -1 with the error. A rank
 * that is gone is reported at the second consecutive call that finds it absent, because its last
 * bytes may have arrived in between; the first call sets c->wait.suspect and the caller checks
 * again at once. thorough: also ask the kernel, about 16 ranks at most, and about the next ones in the
 * next call: of many ranks that wait for many, each asks about others. */
int comm_group_check_wait(struct comm *c, bool thorough, struct err *e);
/* 0, or the error that says how a rank of this host ended. thorough: also ask the kernel. */
int comm_group_check_rank(struct comm *c, int rank, bool thorough, struct err *e);
/* Nanoseconds to sleep now: SLICE_NS, or the rest of the time-out if that is shorter. */
int64_t comm_group_sleep_ns(struct comm *c);
/* Formats "rank 3 (world rank 7, host node2)". */
const char *comm_group_rank_text(const struct comm *c, int rank, char out[160]);
/* Working memory of at least `size` bytes, cache-line aligned and kept until the group closes. */
void *comm_group_scratch(struct comm *c, size_t size, struct err *e);

/* Only the thread that runs the operation writes c->sent. A locked addition would wait until all
 * data that this rank has just written is in its cache. */
static inline void group_count_sent(struct comm *c, uint64_t bytes)
{
	atomic_store_explicit(&c->sent,
			      atomic_load_explicit(&c->sent, memory_order_relaxed) + bytes,
			      memory_order_relaxed);
}

#endif
