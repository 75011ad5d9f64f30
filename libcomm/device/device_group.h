/*
 * device_group — the device's part of a group that comm_on_device made.
 *
 * Such a group is a group like any other, with its segment and endpoints. It also has a struct
 * device_group: the device, the stream of the caller's work, and one of two ways to run an
 * operation on device memory:
 *
 *     native   the device's own library (NCCL), one rank per device, on a stream of the group's
 *              own; a thread watches what is queued (native.h)
 *     staged   chunks through pinned host memory and this group's host operations (staged.c)
 *
 * The way is chosen when the group opens, from what all ranks publish, so that all make the same
 * choice.
 *
 * A mark is one operation's position in the caller's stream: the operation waits for `begin`, and
 * later work waits for `end`. The caller takes the mark when it calls, passes it on in op->mark,
 * and finally makes its stream wait for it.
 */
#ifndef MUSTER_LIBCOMM_DEVICE_DEVICE_GROUP_H
#define MUSTER_LIBCOMM_DEVICE_DEVICE_GROUP_H

#include "libcomm/device/device.h"
#include "libcomm/group.h"

struct native;
struct staged;

struct stream_mark {
	void *begin, *end;
	int users;                       /* 0: free */
	bool recorded;                   /* its events were captured in a graph last */
	struct stream_mark *next, *made; /* of the free ones; of all */
};

struct device_group {
	const struct comm_device *api;
	struct device *device; /* opened anew by each group, so that groups may close in any
			        * order */
	int index;
	char backend[16];     /* the requested one */
	void *stream;         /* the caller's */
	int own;              /* processors of the first group; of the others, see the parent */
	int processors;       /* of groups that are split from this one */
	pthread_mutex_t lock; /* of the marks, and of native.h's state */
	struct stream_mark *free_marks, *marks;
	void *relay;           /* a stream that only waits (graph.h); NULL: none */
	struct native *native; /* exactly one of the two is set */
	struct staged *staged;
};

/* Collective over the parent. c is this rank's new group; NULL: it has none. */
int comm_device_group_split(struct comm *parent, int color, int key, struct comm *c, struct err *e);
void comm_device_group_close(struct comm *c);
/* Makes the group's waits check the world. Under the world's lock. */
void comm_device_group_interrupt(struct comm *c);

/* Runs n operations of one kind: the device's library all together, staged ones after each other.
 * Without a mark this is the caller's own thread, and its stream waits for the operations before
 * the call returns. */
int comm_device_group_run(struct comm *c, const struct op *ops, int n, struct err *e);
const char *comm_device_group_backend(const struct comm *c);

/* Sets op->mark to the current position of the caller's stream, before the operation is passed to
 * another thread. */
int comm_device_group_mark(struct comm *c, struct op *op, struct err *e);
/* Makes the caller's stream continue after the operation, and releases the mark. */
int comm_device_group_join(struct comm *c, struct stream_mark *m, struct err *e);

/* --- For staged.c and native.c ---------------------------------------------------------------- */

/* A wait on the device. It sleeps longer and longer, and ends with the world's first error or after
 * the world's time-out. */
struct device_wait {
	int64_t deadline;
	int looks;
};
void comm_device_wait_begin(struct comm *c, struct device_wait *p);
/* 0: check again; -1: what it waits for will not come. what: as in "%s did not end". */
int comm_device_wait_poll(struct comm *c, struct device_wait *p, const char *what, struct err *e);
/* Waits until the event is done. */
int comm_device_group_await(struct comm *c, void *event, const char *what, struct err *e);

/* Fails the world with this error, unless it has failed before. Returns -1. what: as in "%s of
 * group". */
int comm_device_group_fail(struct comm *c, const char *what, struct err *why, struct err *e);

/* Drops one reference to the mark; under the lock. */
void comm_stream_mark_unref(struct device_group *d, struct stream_mark *m);

int comm_staged_open(struct comm *c, struct err *e);
int comm_staged_run(struct comm *c, const struct op *op, struct stream_mark *m, struct err *e);
int comm_staged_sync(struct comm *c, struct err *e);
void comm_staged_close(struct comm *c);

/* key: equal on all ranks. */
int comm_native_open(struct comm *c, const unsigned char key[DEVICE_KEY], struct err *e);
int comm_native_split(struct comm *parent, int color, int key, struct comm *c, struct err *e);
int comm_native_run(struct comm *c, const struct op *ops, int n, struct stream_mark *m,
		    struct err *e);
int comm_native_sync(struct comm *c, struct err *e);
int comm_native_register(struct comm *c, const struct comm_memory *list, int n, struct err *e);
void comm_native_interrupt(struct comm *c);
void comm_native_close(struct comm *c);

#endif
