/*
 * device — what libcomm needs of an accelerator: one table a kind of device.
 *
 * libcomm itself knows no accelerator. Whoever opens the world gives a table (comm_on_device),
 * which the agent takes out of libmuster-cuda.so; libcomm/device/cuda/ is built into that. Over the
 * first half of the table, copies and events, runs the staged backend (staged.c). The second half
 * is optional: collectives that the device's own library has (native.c), NCCL's for instance.
 *
 * Every function may be called from any thread. A stream carries out what is queued on it in order,
 * an event marks a place in a stream; both are pointers of the device's own kind, and NULL is its
 * default stream. Nothing but `stream_close` and `unpin` waits for the device.
 *
 * There are three things to do to add a kind of device: (1) a folder libcomm/<kind>/ that fills a
 * table like the one of libcomm/device/cuda/cuda.c and exports `muster_comm_<kind>`; (2) its build
 * into libmuster-<kind>.so, as kernels/cuda/cuda.mk does; (3) its row in
 * tests/gpu/conform.c. tests/unit/libcomm/fake_device.c is the smallest table there is.
 */
#ifndef MUSTER_LIBCOMM_DEVICE_DEVICE_H
#define MUSTER_LIBCOMM_DEVICE_DEVICE_H

#include "libcomm/op.h"

enum { DEVICE_ID = 64, DEVICE_KEY = 128 };

struct device;      /* an opened device */
struct device_comm; /* a communicator of the device's own library */

struct comm_device {
	const char *name; /* "cuda" */

	/* The index-th device that this process sees. */
	int (*open)(int index, struct device **out, struct err *e);
	void (*close)(struct device *d);
	/* Printable without blanks; the same in every process that opened this device, another on
	 * every other device of every host. */
	void (*identify)(struct device *d, char id[DEVICE_ID]);

	int (*stream_open)(struct device *d, void **stream, struct err *e);
	/* After what is queued on it. */
	void (*stream_close)(struct device *d, void *stream);
	int (*event_open)(struct device *d, void **event, struct err *e);
	void (*event_close)(struct device *d, void *event);
	/* Event: all that is queued on the stream so far. */
	int (*event_record)(struct device *d, void *event, void *stream, struct err *e);
	/* 1: what the event stands for is done, as it is for one that was never recorded; 0: not
	 * yet; -1: the device failed. */
	int (*event_done)(struct device *d, void *event, struct err *e);
	/* What is queued on the stream from now on begins after the event as it was recorded
	 * last. */
	int (*stream_wait)(struct device *d, void *stream, void *event, struct err *e);

	/* Lets the device copy from and to this memory of the host at full speed, and without
	 * holding up who queues the copy. unpin: after the copies that are queued. */
	int (*pin)(struct device *d, void *memory, size_t bytes, struct err *e);
	void (*unpin)(struct device *d, void *memory);
	/* Queues a copy; one side is pinned memory of the host, the other the device's. */
	int (*copy)(struct device *d, void *to, const void *from, size_t bytes, void *stream,
		    struct err *e);

	const struct device_collectives *collectives; /* NULL: none */
};

/*
 * Communicators of the device's own library. Calls for one communicator do not overlap, and after
 * each that is marked "begins" none but `ready` and `close` follows until `ready` has said 1 or -1.
 * None waits for another rank. *out is set as soon as there is something to close, also when the
 * call fails.
 */
struct device_collectives {
	const char *name; /* "nccl" */
	/* Whether they can be used here at all; else why not. */
	int (*usable)(struct device *d, struct err *e);
	/* What the ranks of a new communicator must know in common; one rank makes it. */
	int (*new_key)(struct device *d, unsigned char key[DEVICE_KEY], struct err *e);
	/* Begins. */
	int (*open)(struct device *d, const unsigned char key[DEVICE_KEY], int ranks, int rank,
		    struct device_comm **out, struct err *e);
	/* Begins, on the parent as well, which stays as it is: comm_split's ways with color and
	 * key. On a rank with a color < 0 the result is ready like the others, and fit for nothing
	 * but close. The parent may be closed once it is ready. */
	int (*split)(struct device_comm *parent, int color, int key, struct device_comm **out,
		     struct err *e);
	/* Begins: queues the operation on the stream. Reductions have the library's own order. */
	int (*queue)(struct device_comm *dc, const struct op *op, void *stream, struct err *e);
	/* 1: what was begun has come to its end and nothing has failed since; 0: not yet; -1: it
	 * failed, or what was queued has. */
	int (*ready)(struct device_comm *dc, struct err *e);
	/* Begins: sends what peers still need of the operations that are done here. Nothing but
	 * close comes after. */
	int (*finish)(struct device_comm *dc, struct err *e);
	/* Ends what is under way, here alone. */
	void (*close)(struct device_comm *dc);
};

#endif
