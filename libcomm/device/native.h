/*
 * Operations by the device's own library (NCCL): the caller queues, and a thread of the group
 * watches.
 *
 * The library can neither tell which rank did not come nor, everywhere, that one has died. So each
 * rank says in its line of the segment which operation it has come to, and the watcher looks there,
 * at the processes of its host, at the library's own errors and at the clock. What it finds ends
 * the world; then it ends the communicator, which frees the device from kernels that would wait for
 * a peer for ever. The clock of an operation runs from when its inputs are ready.
 *
 * native.c queues operations, opens and closes; native_watch.c is the watcher.
 */
#ifndef MUSTER_LIBCOMM_DEVICE_NATIVE_H
#define MUSTER_LIBCOMM_DEVICE_NATIVE_H

#include "libcomm/device/device_group.h"

enum { FLIGHTS = 64 };

struct native_flight { /* an operation that is not known to be done */
	enum op_kind kind;
	uint32_t number;
	struct stream_mark *mark;
	bool queued;   /* the library has it, its events are recorded */
	int64_t since; /* when the library or the device took it up; 0: not yet */
	bool *with;    /* whom it needs, by rank */
};

struct native {                 /* under the group's lock */
	struct device_comm *dc; /* NULL: ended */
	void *stream;
	uint32_t collectives, messages;       /* called so far */
	struct native_flight flight[FLIGHTS]; /* a ring */
	int first, count;
	bool *with; /* FLIGHTS rows */
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

/* Removes the operations that the device has completed. Fails once the communicator has been
 * ended, because the operations in flight then end without completing. Under the lock. */
int comm_native_reap(struct comm *c, struct err *e);

/* Starts the watcher's thread. */
int comm_native_watch(struct comm *c, struct err *e);
/* Ends the communicator on this rank. Under the lock, unless the watcher has ended. */
void comm_native_end_library(struct comm *c);

#endif
