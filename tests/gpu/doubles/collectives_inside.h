/*
 * collectives_inside — what the parts of NCCL's double share:
 *
 *     collectives.c         the operations, and what is asked of their callers
 *     collectives_order.c   in which order they run, and how many at the same time
 *     collectives_run.c     how they are carried out: collectives, and messages between two ranks
 *     collectives_comm.c    communicators: their begin, their splits, their end
 *     collectives_memory.c  memory that is allocated, registered, and in windows
 */
#ifndef MUSTER_TESTS_GPU_COLLECTIVES_INSIDE_H
#define MUSTER_TESTS_GPU_COLLECTIVES_INSIDE_H

#include "tests/gpu/doubles/collectives.h"
#include "tests/gpu/doubles/reduce.h"
#include "tests/gpu/doubles/runtime.h"

#include <stdatomic.h>

enum { RANKS = DOUBLE_DEVICES, SLOTS = 32, SPLITS = 2 };

enum call_kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

struct call { /* a rank's call, as its peers see it */
	enum call_kind kind;
	const void *in;
	void *out;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t op;
	int peer; /* the root, or the other end of a message */
	bool in_registered, out_registered;
};

struct slot { /* of the call with this number; reused when it has been read */
	_Atomic uint32_t came, read;
	struct call call;
	bool captured;
};

struct area { /* a communicator, shared by its ranks */
	_Atomic int joined[RANKS], finalized[RANKS], device[RANKS];
	_Atomic uint32_t windows[RANKS];    /* registered so far */
	_Atomic size_t window_bytes[RANKS]; /* the last one's */
	struct slot collective[RANKS][SLOTS];
	struct slot message[RANKS][RANKS][SLOTS]; /* from, to */
	struct split {
		_Atomic uint32_t came;
		_Atomic int color, key, child; /* child: by the first rank of a color */
	} split[SPLITS][RANKS];
};

struct registered {
	struct registered *next;
	const char *at;
	size_t bytes;
	bool window;
};

/* Of a rank: a communicator and those that were split from it, if they share resources. Otherwise
 * each has its own. */
struct family {
	_Atomic uint32_t queued, ended; /* their operations */
	_Atomic bool aborted;
	bool shared;
	int processors; /* of the first; 0: no limit */
};

struct ncclComm {
	struct area *area;
	struct family *family;
	bool shares; /* with those that are split from it */
	int ranks, rank, device;
	uint32_t collectives, sent[RANKS], received[RANKS], splits;
	int looks; /* until the last call is complete */
	bool begun, finalized;
	bool quiet; /* finalized, and the caller knows it */
	_Atomic bool
		over; /* destroyed or aborted; the memory stays, since a stream may refer to it */
	_Atomic int open;       /* steps on streams */
	_Atomic int recorded;   /* calls in graphs that exist */
	uint32_t queued, ended; /* groups of calls */
	struct registered *memory;
	void **window; /* where the handle of the one in progress goes */
	void *handle;
	uint32_t windows;
	ncclComm_t child; /* of a split in progress */
	bool splitting;
	int color, key;
};

struct part {
	struct call call;
	uint32_t number;
	bool posted, done;
	bool captured; /* in a graph */
	/* between reading and writing: with in-place buffers, all ranks read before any writes */
	void *result;
};

struct group {
	ncclComm_t comm;
	uint32_t turn;      /* among the communicator's */
	uint32_t in_family; /* its turn among those that share */
	bool begun;
	uint32_t launch; /* its number in the process */
	bool resident;
	int count;
	struct part part[];
};

extern _Atomic enum double_fault double_fault_now;

/* --- Communicators: collectives_comm.c --- */

/* Checks what all calls except ncclCommGetAsyncError and ncclCommAbort need. */
void double_comm_check(const struct ncclComm *c, const char *who);
/* A number that all ranks of the communicator share. */
int double_comm_number(const struct ncclComm *c);

/* --- The order of operations: collectives_order.c --- */

/* The group is launched: it gets its turns. */
void double_order_launch(struct group *g);
/* Whether the group runs now: those before it have ended, and the device has room. */
bool double_order_begin(struct group *g);
/* The group has ended, or will never run. */
void double_order_end(struct group *g);

/* --- Carrying out: collectives_run.c --- */

/* A step of a stream: the parts of a group progress at the same time. */
bool double_group_run(void *group);
/* Bytes that a collective writes on this rank. */
size_t double_result_bytes(const struct ncclComm *c, const struct call *call);

/* --- Memory: collectives_memory.c --- */

/* Counts a buffer that an operation uses. Returns whether it is registered. */
bool double_memory_use(const struct ncclComm *c, const void *at);
/* Completes the window in progress, if all ranks have called for it. */
void double_memory_progress(ncclComm_t c);
/* All registrations end with the communicator. */
void double_memory_end(ncclComm_t c);

#endif
