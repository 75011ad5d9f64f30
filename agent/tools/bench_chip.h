/*
 * bench_chip — measures the GPUs of this host for the planner (topo/measured_chip.h).
 *
 *     bench_chip.c      the devices, and copies between them and the host
 *     bench_chip_ops.c  the operations and their sizes
 *     bench_chip_comm.c exchanges between the devices
 *
 * Everything runs in forked processes, because a process that has opened the driver must not fork.
 */
#ifndef MUSTER_AGENT_TOOLS_BENCH_CHIP_H
#define MUSTER_AGENT_TOOLS_BENCH_CHIP_H

#include "base/err.h"
#include "libcomm/comm.h"
#include "topo/measured_chip.h"

#include <stdbool.h>

enum { BENCH_CHIPS_MAX = 4, BENCH_DEVICES_MAX = 64 };

struct bench_chip {
	double seconds;   /* for each operation and size */
	int64_t elements; /* of the largest array that an operation reads or writes */
	/* Results: one chip for each model of device, in the order of the devices. */
	int devices, n;
	struct measured_chip chips[BENCH_CHIPS_MAX];
};

/* Adds the times of all operations in one storage type, at the sizes that are within b->elements.
 * Where products of 8 bits are not faster, it adds none of them. */
int bench_chip_ops(const struct bench_chip *b, int device, enum measured_storage storage,
		   struct measured_chip *out, struct err *e);
/* Collective, on one rank per device; the first 2, 4, 8, … of them take part. Rank 0 sets out's
 * exchanges. */
int bench_chip_exchanges(struct comm *world, const struct bench_chip *b, struct measured_chip *out,
			 struct err *e);
/* Measures all devices. b is in memory that forked processes share. ERR_NOTFOUND: there is none;
 * ERR_UNSUPPORTED: muster was built without CUDA. */
int bench_chip_run(struct bench_chip *b, struct err *e);
/* Whether there is a device and the library for it, asked in a process of its own. Fails as
 * bench_chip_run does. */
int bench_chip_look(struct err *e);

#endif
