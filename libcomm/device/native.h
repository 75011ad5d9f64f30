/*
 * native — operations by the device's own library (NCCL). The caller queues; a thread of the group
 * watches. native.c queues operations, opens and closes; native_memory.c registers memory;
 * native_watch.c is the watcher.
 *
 * The library cannot report which rank is missing nor, everywhere, that one has died. Each rank
 * therefore publishes in its line of the segment which operation it has come to. The watcher
 * checks these lines, the processes of its host, the library's own errors and the clock. When it
 * finds a failure, it ends the world and then the communicator, which frees the device from
 * kernels that would wait for a peer forever. The clock of an operation starts when its inputs are
 * ready. Operations that are queued together are one flight with one clock. So are all collectives
 * of a group in a graph (graph.h), and all its messages.
 *
 * Nothing may reach the library once the end of the communicator has begun. A call to the library
 * is made under the lock. The launch of a graph is not: it can wait for room in the device's queue,
 * behind the very operation that only the end frees. So the end waits for a launch that has begun,
 * for LAUNCH_S at most. A launch that takes longer has reached the device and waits there.
 */
#ifndef MUSTER_LIBCOMM_DEVICE_NATIVE_H
#define MUSTER_LIBCOMM_DEVICE_NATIVE_H

#include "libcomm/device/device_group.h"

enum { FLIGHTS = 64, LAUNCH_S = 5 /* at most, the launch of a graph keeps the communicator */ };

struct native_flight { /* an operation that is not known to be done */
	enum op_kind kind;
	/* they differ for operations that the library launches together */
	uint32_t number, last;
	bool graph; /* in a graph, where other operations may come between them */
	struct stream_mark *mark;
	bool others;   /* other groups have operations in the same graph */
	bool queued;   /* the library has it, and its events are recorded */
	int64_t since; /* when the library or the device started it; 0: not yet */
	bool *with;    /* by rank: the operation needs it */
};

struct native_memory { /* that the library has registered */
	struct native_memory *next;
	enum device_reach how;
	void *handle;
};

struct native {                 /* under the group's lock */
	struct device_comm *dc; /* NULL: ended */
	void *stream;
	uint32_t collectives, messages;       /* called so far */
	struct native_flight flight[FLIGHTS]; /* a ring */
	int first, count;
	bool *with;        /* FLIGHTS rows */
	int64_t launching; /* since when a graph with operations of the group is; 0: none is */
	struct native_memory *registered;
	pthread_t thread;
	pthread_cond_t change;
	bool watched, leave;
};

const struct device_collectives *comm_native_library(const struct comm *c);
void comm_native_lock(struct comm *c);
void comm_native_unlock(struct comm *c);
/* A rank's line of the segment. NULL: it is on another host, or this rank is alone on its host. */
struct seg_line *comm_native_line(const struct comm *c, int rank);
/* Whether a rank's counter of collectives has come to `number`. */
bool comm_native_has_reached(const _Atomic uint32_t *word, uint32_t number);

/* Waits until what the library has begun is complete. what: as in "%s did not end", for a wait with
 * a time-out of its own that looks for dead ranks; NULL: the watcher ends the wait. */
int comm_native_await_library(struct comm *c, const char *what, struct err *e);
/* Deregisters the memory that was registered since `before` was the newest. ended: the library has
 * forgotten it. Under the lock. */
void comm_native_deregister(struct comm *c, const struct native_memory *before, bool ended);

/* Removes the operations that the device has completed. Fails once the communicator has been
 * ended, because the operations in flight then end without completing. Under the lock. */
int comm_native_reap(struct comm *c, struct err *e);

/* Starts the watcher's thread. */
int comm_native_watch(struct comm *c, struct err *e);
/* Ends the communicator on this rank. Under the lock, which it releases meanwhile. */
void comm_native_end_library(struct comm *c);

#endif
