/*
 * ondevice — the device's half of a group that comm_on_device made.
 *
 * Such a group is a group like any other, with its segment and links, and has besides a struct
 * ondevice: the device, the stream of the caller's work, and one of two ways to run an operation
 * whose buffers are the device's:
 *
 *     native   the device's own library (NCCL), one rank a device, on a stream of the group's own;
 *              a
 *              thread watches what is queued                                              native.c
 *     staged   chunks through pinned memory of the host and this group's host operations   staged.c
 *
 * The way is chosen when the group opens, from what all ranks tell each other, so that all choose
 * alike.
 *
 * A mark is one operation's place in the caller's stream: `begin` is what it waits for, `end` what
 * waits for it. The caller takes it when it calls, hands it over in op->mark, and joins its stream
 * to it in the end.
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
	struct stream_mark *next, *made; /* of the free ones, of all */
};

struct device_group {
	const struct comm_device *api;
	struct device *device; /* each group opens it anew, so that groups may close in any order */
	int index;
	char backend[16];     /* what was asked for */
	void *stream;         /* the caller's */
	pthread_mutex_t lock; /* of the marks, and of what native.c says */
	struct stream_mark *free_marks, *marks;
	struct native *native; /* one of the two */
	struct staged *staged;
};

/* Collective over the parent: c is this rank's part of it, NULL when it has none. */
int comm_device_group_split(struct comm *parent, int color, int key, struct comm *c, struct err *e);
void comm_device_group_close(struct comm *c);
/* Has the group's waits look at the world. Under the world's lock. */
void comm_device_group_interrupt(struct comm *c);

/* One operation; without a mark it is the caller's own thread, whose stream is joined before it
 * returns. */
int comm_device_group_run(struct comm *c, const struct op *op, struct err *e);
const char *comm_device_group_backend(const struct comm *c);

/* Sets op->mark to what the caller's stream holds so far, before the operation is handed to
 * another thread. */
int comm_device_group_mark(struct comm *c, struct op *op, struct err *e);
/* The caller's stream goes on after the operation; ends the mark. */
int comm_device_group_join(struct comm *c, struct stream_mark *m, struct err *e);

/* --- For the two ways --- */

/* A wait on the device: sleeps longer and longer, and ends with the world's first error or after
 * its time-out. */
struct device_wait {
	int64_t deadline;
	int looks;
};
void comm_device_wait_begin(struct comm *c, struct device_wait *p);
/* 0: look again; -1: what it waits for (`what`, as in "%s did not end") will not come. */
int comm_device_wait_poll(struct comm *c, struct device_wait *p, const char *what, struct err *e);
/* Until the event is done. */
int comm_device_group_await(struct comm *c, void *event, const char *what, struct err *e);

/* One user of the mark less; under the lock. */
void comm_stream_mark_unref(struct device_group *d, struct stream_mark *m);

int comm_staged_open(struct comm *c, struct err *e);
int comm_staged_run(struct comm *c, const struct op *op, struct stream_mark *m, struct err *e);
int comm_staged_sync(struct comm *c, struct err *e);
void comm_staged_close(struct comm *c);

/* key: the same on all ranks. */
int comm_native_open(struct comm *c, const unsigned char key[DEVICE_KEY], struct err *e);
int comm_native_split(struct comm *parent, int color, int key, struct comm *c, struct err *e);
int comm_native_run(struct comm *c, const struct op *op, struct stream_mark *m, struct err *e);
int comm_native_sync(struct comm *c, struct err *e);
void comm_native_interrupt(struct comm *c);
void comm_native_close(struct comm *c);

#endif
