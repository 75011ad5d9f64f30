/*
 * reach — reading the memory of a rank of this host.
 *
 * A rank tells its peers a buffer as a struct remote_buffer. They then read it in place when it lies in a
 * window of comm_alloc (comm_peer_memory_map), else by process_vm_readv, a single copy without the
 * owner's help. The kernel may forbid the second (Yama, a container's seccomp profile, another
 * user): each rank tries it when it opens the world and says the outcome in its line of the
 * segment, so that all ranks of a group take the same way.
 *
 * When a span may be read: from its owner's word (a step, a message) until the reader has told it,
 * by a step or a message, that it is done. Such an exchange ends with all having come, or the
 * operation fails; a rank that leaves a failed operation may free its buffers while a peer still
 * reads them. That peer gets an error of the kernel or stale bytes, and its own operation cannot
 * succeed either, because it still has a step to wait for that the first one never comes to. For
 * the same reason nobody writes into a peer's private memory (after a failed operation that memory
 * may already serve another purpose), but for handoff.h, where the owner waits for the writer.
 * Windows may be written to; what a failed operation was about to write there is undefined until
 * the world is closed.
 *
 * For a group's one thread, like its other operations.
 */
#ifndef MUSTER_LIBCOMM_SHM_PEER_MEMORY_H
#define MUSTER_LIBCOMM_SHM_PEER_MEMORY_H

#include "libcomm/group.h"
#include "libcomm/shm/shared_buffer.h"

/* Whether the kernel lets this process read that one's memory. */
bool comm_cma_probe(pid_t pid);

/* When the group opens: says to its ranks on this host what this rank can. */
void comm_peer_memory_open(struct comm *c);
void comm_peer_memory_close(struct comm *c);

/* Whether all the group's ranks of this host can read each other's private memory. The same answer
 * on all of them, once the group is open on all. */
bool comm_cma_works(struct comm *c);

/* What the others look at, and may write to, on this rank in an operation. No bytes: nothing. */
struct exposed_memory {
	const void *in, *out;
	size_t in_bytes, out_bytes;
};
struct exposed_memory comm_peer_memory_expose(const struct comm *c, const struct op *op);
/* Whether all of it lies in windows. */
bool comm_peer_memory_all_shared(const struct comm *c, const struct op *op);

/* This rank's buffer, to be told to peers. */
static inline struct remote_buffer peer_memory_describe(const struct comm *c, const void *data,
							size_t bytes)
{
	return comm_shared_buffer_describe(c->world, data, bytes);
}

/* Where a peer's span lies in this process, at least `bytes` long; NULL: it lies in no window, or
 * that cannot be mapped. */
char *comm_peer_memory_map(struct comm *c, int rank, const struct remote_buffer *s, size_t bytes);
/* The error for a window that had to be mapped; returns -1. */
int comm_peer_memory_map_failed(struct comm *c, int rank, struct err *e);

/* to[bytes] = rank's span from byte `at` on. */
int comm_peer_memory_read(struct comm *c, int rank, const struct remote_buffer *s, size_t at,
			  void *to, size_t bytes, struct err *e);

#endif
