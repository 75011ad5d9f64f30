/*
 * peer_memory — access to the memory of a rank on the same host.
 *
 * A rank sends its peers a buffer as a struct remote_buffer. They read it in place if it is in a
 * shared buffer of comm_alloc (comm_peer_memory_map). Otherwise they use cross-memory attach (CMA,
 * process_vm_readv): a single copy without the owner's help. The kernel may forbid CMA (Yama, a
 * container's seccomp profile, another user). Each rank tries it when it opens the world and
 * publishes the result in its line of the segment, so that all ranks of a group decide equally.
 *
 * A remote buffer may be read from the moment its owner publishes it (by a step or a message) until
 * the reader confirms, by a step or a message, that it is done. Such an exchange ends when all
 * ranks have come, or the operation fails. A rank that leaves a failed operation may free its
 * buffers while a peer still reads them. The peer gets an error of the kernel or stale bytes, and
 * its own operation cannot succeed either, because it still waits for a step to which the first
 * rank never comes. For the same reason nobody writes into a peer's private memory, which may
 * already be reused after a failed operation, except by rendezvous.h, where the owner waits for the
 * writer. Shared buffers may be written to; what a failed operation was about to write there is
 * undefined until the world is closed.
 *
 * Only the thread that runs the group's operations may call these functions.
 */
#ifndef MUSTER_LIBCOMM_SHM_PEER_MEMORY_H
#define MUSTER_LIBCOMM_SHM_PEER_MEMORY_H

#include "libcomm/group.h"
#include "libcomm/shm/shared_buffer.h"

/* Whether the kernel lets this process read that process's memory. */
bool comm_cma_probe(pid_t pid);

/* When the group opens: publishes to its ranks on this host what this rank can do. */
void comm_peer_memory_open(struct comm *c);
void comm_peer_memory_close(struct comm *c);

/* Whether all ranks of the group on this host can read each other's private memory. All of them get
 * the same answer, once the group is open on all. */
bool comm_cma_works(struct comm *c);

/* What peers read, and may write to, on this rank in an operation. 0 bytes: nothing. */
struct exposed_memory {
	const void *in, *out;
	size_t in_bytes, out_bytes;
};
struct exposed_memory comm_peer_memory_expose(const struct comm *c, const struct op *op);
/* Whether all of it is in shared buffers. */
bool comm_peer_memory_all_shared(const struct comm *c, const struct op *op);

/* This rank's buffer, to be sent to peers. */
static inline struct remote_buffer peer_memory_describe(const struct comm *c, const void *data,
							size_t bytes)
{
	return comm_shared_buffer_describe(c->world, data, bytes);
}

/* Where a peer's buffer is mapped in this process, with at least `bytes` bytes. NULL: it is in no
 * shared buffer, or that cannot be mapped. */
char *comm_peer_memory_map(struct comm *c, int rank, const struct remote_buffer *s, size_t bytes);
/* The error for a shared buffer that had to be mapped; returns -1. */
int comm_peer_memory_map_failed(struct comm *c, int rank, struct err *e);

/* to[bytes] = the rank's buffer from byte `at` on. */
int comm_peer_memory_read(struct comm *c, int rank, const struct remote_buffer *s, size_t at,
			  void *to, size_t bytes, struct err *e);

#endif
