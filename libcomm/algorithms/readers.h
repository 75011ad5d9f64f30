/*
 * readers — collectives of ranks on one host that read each other's buffers in place: at most one
 * copy of the data, and none but the result in shared buffers.
 *
 * At the first step each rank publishes where its buffers are (comm_readers_begin); the last step
 * says that they have been read. If all of them are shared buffers, reductions also write the
 * results into the peers' buffers. If some memory is accessible in neither way, all ranks know it
 * after the first step and continue through the slots. readers.c moves data, readers_reduce.c
 * reduces it.
 */
#ifndef MUSTER_LIBCOMM_ALGORITHMS_READERS_H
#define MUSTER_LIBCOMM_ALGORITHMS_READERS_H

#include "libcomm/algorithms/algorithms.h"
#include "libcomm/shm/peer_memory.h"

enum readers_access {
	READERS_FAILED = -1,
	READERS_SLOTS,  /* some memory is not accessible: use the slots */
	READERS_READ,   /* peers' buffers can be read */
	READERS_SHARED, /* all buffers are mapped: they can be written to as well */
};

enum { READERS_IN, READERS_OUT };

/* Puts where this rank's buffers are into its cell of the next step. */
void comm_readers_expose(struct comm *c, const struct op *op);
/* After the first step: the same answer on all ranks. */
enum readers_access comm_readers_choose_access(struct comm *c);
/* Exposes the buffers, passes the first step, chooses the access. */
enum readers_access comm_readers_begin(struct comm *c, const struct op *op, struct err *e);
/* The buffer `which` that a rank exposed at the step `first`. It remains valid until the step after
 * the next one. */
const struct remote_buffer *comm_readers_buffer(const struct comm *c, uint32_t first, int rank,
						int which);

#endif
