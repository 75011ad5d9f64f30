/*
 * device — what libcomm needs from an accelerator: one table per kind of device. The main header of
 * libcomm/device: device_group.h runs a group on a device, staged.c through the host, native.h
 * through the device's library.
 *
 * libcomm itself knows no accelerator. Whoever opens the world passes a table (comm_on_device),
 * which the agent takes from libmuster-cuda.so; libcomm/device/cuda/ is built into that library.
 * The first half of the table, copies and events, is enough for the staged backend. The second half
 * is optional: collectives of the device's own library, such as NCCL.
 *
 * Any thread may call any function. A stream runs what is queued on it in order; an event marks a
 * position in a stream. Both are pointers of the device's own kind, and NULL is its default stream.
 * Only `stream_close` and `unpin` wait for the device.
 *
 * There are three things to do to add a kind of device:
 *   1. Write a folder libcomm/device/<kind>/ that fills a struct comm_device like cuda/cuda.c and
 *      exports `muster_comm_<kind>`.
 *   2. Build it into libmuster-<kind>.so, as the Makefile does for libmuster-cuda.so.
 *   3. Add its row to tests/gpu/conform.c.
 * tests/unit/libcomm/fake_device.c is the smallest such table.
 */
#ifndef MUSTER_LIBCOMM_DEVICE_DEVICE_H
#define MUSTER_LIBCOMM_DEVICE_DEVICE_H

#include "libcomm/op.h"

enum { DEVICE_ID = 64, DEVICE_KEY = 128 };

struct device;      /* an opened device */
struct device_comm; /* a communicator of the device's own library */

/* How a library can register memory that it allocated, from the least to the best. */
enum device_reach {
	REACH_NONE,
	REACH_LOCAL,     /* each rank its own */
	REACH_SYMMETRIC, /* all ranks buffers of one size together, which the library needs for its
	                  * fastest operations */
};

struct comm_device {
	const char *name; /* "cuda" */

	/* Opens the index-th device that this process sees. */
	int (*open)(int index, struct device **out, struct err *e);
	void (*close)(struct device *d);
	/* Printable, without blanks; equal in every process that opened this device, different for
	 * every other device of every host. */
	void (*identify)(struct device *d, char id[DEVICE_ID]);

	/* For transfers: what is queued there goes before the kernels of a computation. */
	int (*stream_open)(struct device *d, void **stream, struct err *e);
	/* After the work that is queued on it. */
	void (*stream_close)(struct device *d, void *stream);
	int (*event_open)(struct device *d, void **event, struct err *e);
	void (*event_close)(struct device *d, void *event);
	/* The event stands for all work that is queued on the stream so far. */
	int (*event_record)(struct device *d, void *event, void *stream, struct err *e);
	/* 1: that work is done, or the event was never recorded; 0: not yet; -1: the device
	 * failed. */
	int (*event_done)(struct device *d, void *event, struct err *e);
	/* Work that is queued on the stream from now on begins after the event, as last
	 * recorded. */
	int (*stream_wait)(struct device *d, void *stream, void *event, struct err *e);
	/* For a stream that is captured: whenever the graph runs, it waits at this place for the
	 * event as last recorded before the launch. NULL: the device cannot. */
	int (*graph_wait)(struct device *d, void *stream, void *event, struct err *e);

	/* Lets the device copy from and to this host memory at full speed, and without blocking the
	 * thread that queues the copy. unpin: after the copies that are queued. */
	int (*pin)(struct device *d, void *memory, size_t bytes, struct err *e);
	void (*unpin)(struct device *d, void *memory);
	/* Queues a copy. One side is pinned host memory, the other one device memory. */
	int (*copy)(struct device *d, void *to, const void *from, size_t bytes, void *stream,
		    struct err *e);

	const struct device_collectives *collectives; /* NULL: none */
};

struct device_comm_options {
	const char *name; /* for the library's messages and profiles; valid until the close */
	int processors;   /* of the device, at most, in an operation; 0: the library's choice */
};

/*
 * Communicators of the device's own library. Calls for one communicator do not overlap. After a
 * call that "begins", only `ready` and `close` may follow until `ready` has returned 1 or -1. No
 * call waits for another rank. *out is set as soon as there is something to close, also if the call
 * fails.
 */
struct device_collectives {
	const char *name; /* "nccl" */
	/* Whether they can be used at all; otherwise why not. */
	int (*usable)(struct device *d, struct err *e);
	/* What the ranks of a new communicator must share; one rank makes it. */
	int (*new_key)(struct device *d, unsigned char key[DEVICE_KEY], struct err *e);
	/* Begins. */
	int (*open)(struct device *d, const unsigned char key[DEVICE_KEY], int ranks, int rank,
		    const struct device_comm_options *opt, struct device_comm **out, struct err *e);
	/* Begins, on the parent too, which remains usable. color and key are as in comm_split. On a
	 * rank with a color < 0 the result becomes ready like the others and can only be closed.
	 * The parent may be closed once the result is ready. Operations of the two can run at the
	 * same time, unless the user asks the library to share resources between them. */
	int (*split)(struct device_comm *parent, int color, int key,
		     const struct device_comm_options *opt, struct device_comm **out,
		     struct err *e);
	/* Optional, all three. The best way that `register_memory` accepts. */
	enum device_reach (*reach)(void);
	/* Begins: lets operations read and write the memory without copies, until `deregister`, which
	 * precedes `finish`. A close without `finish` forgets it. All ranks call it in the same order,
	 * with memory of `alloc`. *handle must remain until `ready`; NULL then: there is nothing to
	 * deregister, and REACH_SYMMETRIC has not registered the memory. A failure of
	 * REACH_SYMMETRIC is one of the communicator. */
	int (*register_memory)(struct device_comm *dc, const struct comm_memory *m,
			       enum device_reach how, void **handle, struct err *e);
	void (*deregister)(struct device_comm *dc, void *handle, enum device_reach how);
	/* Optional, both: memory of the device that the library can reach from other ranks,
	 * once it is registered. *memory NULL: the library has no such function. release: after
	 * the work of the device that uses it, and after the close of the communicators that
	 * have it registered. */
	int (*alloc)(struct device *d, size_t bytes, void **memory, struct err *e);
	void (*release)(struct device *d, void *memory);
	/* Begins: queues n operations on the stream, which may run at the same time. Reductions
	 * have the library's own order. */
	int (*queue)(struct device_comm *dc, const struct op *ops, int n, void *stream,
		     struct err *e);
	/* 1: what was begun has completed and nothing has failed since; 0: not yet; -1: it failed,
	 * or what was queued has. */
	int (*ready)(struct device_comm *dc, struct err *e);
	/* Begins: sends what peers still need of the operations that are done here. Only close may
	 * follow. */
	int (*finish)(struct device_comm *dc, struct err *e);
	/* Ends what is in progress, on this rank alone. */
	void (*close)(struct device_comm *dc);
};

#endif
