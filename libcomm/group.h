/*
 * group — the inside of a struct comm.
 *
 * The way of an operation: comm.c makes it a struct op (op.h), on a thread of the group's own if it
 * is asynchronous (async.h); algorithms.h has the table that says which algorithm serves it, and
 * each of these stands on one of a group's two ways to move data, or on both:
 *
 *     shm/      memory that the ranks of a host share: steps (a barrier), slots, windows, reading a
 *               peer's buffers
 *     link/     messages: an exchange of many at once over the links to other ranks, a ring of
 *               shared memory
 *     tcp/      or TCP connections each; what ranks tell each other beside the data
 *     algo/     the table, and the algorithms over messages and over several hosts
 *     device/   groups whose buffers are a device's memory: staged through the host, or the
 *               device's library
 *     flight/   the recorder of operations, and what all ranks' records come to
 *
 * A world (world.h) is what all groups of a process share: its peers, the first error.
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

struct comm {
	struct world *world;
	struct comm *next;
	char name[32];
	uint64_t id; /* the same on all its ranks, of no other group */
	enum group_backend backend;
	int rank, size;
	int *members; /* world ranks */
	int *local;   /* index in the segment, -1: on another host */
	int memfd;    /* what it offered its host, or -1 */
	struct segment segment;
	struct wakeup_pipe wakeup;
	struct endpoint *endpoints; /* by rank */
	struct hosts *hosts;        /* of a hybrid group */
	/* its ranks on this host as a group of their own, over its segment; NULL: this one alone */
	struct comm *node_group;
	struct comm *parent_group; /* of an inner group: the one it belongs to */
	uint32_t step;             /* barriers of the segment so far */
	uint32_t cma;              /* reach.c: whether all can read all, once known */
	struct mapping *mappings;  /* peers' windows that this rank has mapped */
	/* by op_kind: whether all buffers of the last one were, on all ranks */
	uint32_t in_shared_buffers;

	uint32_t seq, messages;   /* collectives, and calls that send and receive */
	struct op_signature sign; /* of the operation under way */
	uint32_t splits;
	struct recorder *recorder;
	bool *absent; /* whom the operation waits for */
	/* world rank whom the operation fails for and who may know more, -1: nobody */
	int accused;
	_Atomic int waits_for; /* world rank, for those who ask (side.h); -1: nobody */
	bool suspect;          /* someone absent is gone; look once more */
	int64_t deadline;      /* of the operation; 0: not yet known, it has not slept */
	/* what it waits beyond that, so that who knows more speaks first */
	int64_t grace;
	_Atomic uint64_t sent;

	struct pollfd *polls;       /* of its bell and links; NULL without a bell */
	struct transfer *transfers; /* of the exchange under way */
	int transfer_count, transfer_room;
	size_t *off, *off2; /* block offsets of the operation under way */
	void *scratch;
	size_t scratch_size;

	struct device_group *device_group; /* NULL: its buffers are the host's memory */
	struct worker *worker;             /* NULL until the first asynchronous operation */
	int open_requests;
};

/* Collective. cards: of each rank of the group; mine is offered as memfd and bell, which the group
 * takes over in any case. */
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
/* Leaves: peers that still wait for this rank are told. */
void comm_group_free(struct comm *c);
/* Tells everyone that this rank gave up. Under the world's lock. */
void comm_group_interrupt(struct comm *c, const struct err *why);

/* Runs one operation on this thread: local, then by the table; of a device group as ondevice.h
 * says. */
int comm_group_run(struct comm *c, const struct op *op, struct err *e);
/* The same on host memory, whatever the group's own buffers are. */
int comm_group_run_host(struct comm *c, const struct op *op, struct err *e);

/* all[size][bytes]: what each rank gives, in the host's memory too. */
int comm_group_all_gather_host(struct comm *c, const void *mine, void *all, size_t bytes,
			       struct err *e);

/* --- For waits ---------------------------------------------------------------- */

enum { SLICE_NS = 10000000 }; /* how long a sleep is before it looks around */

/* Whether it makes sense to wait on for the ranks marked in c->absent: 0, or -1 with the error.
 * A rank that has gone is reported at the second call in a row that finds it absent, because
 * its last bytes may have come in between; after the first one c->suspect is set
 * and the caller looks again at once. thorough: ask the kernel too. */
int comm_group_check_wait(struct comm *c, bool thorough, struct err *e);
/* How a rank of this host is gone, as an error; 0 when it is not. thorough: ask the kernel too. */
int comm_group_check_rank(struct comm *c, int rank, bool thorough, struct err *e);
/* Nanoseconds to sleep now: a slice, or what is left of the time-out. */
int64_t comm_group_sleep_ns(struct comm *c);
/* "rank 3 (world rank 7, node2)" */
const char *comm_group_rank_text(const struct comm *c, int rank, char out[160]);
/* At least size bytes, kept until the group closes. */
void *comm_group_scratch(struct comm *c, size_t size, struct err *e);

/* By the thread that runs the operation: it is the only one that writes, and a locked addition
 * would wait until all that this rank has just said is in its cache. */
static inline void group_count_sent(struct comm *c, uint64_t bytes)
{
	atomic_store_explicit(&c->sent,
			      atomic_load_explicit(&c->sent, memory_order_relaxed) + bytes,
			      memory_order_relaxed);
}

#endif
