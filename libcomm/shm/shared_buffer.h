/*
 * window — memory of comm_alloc: what a rank shares with the ranks of its host.
 *
 * Each is a memfd of its own, in whole huge pages where it is that large, with one more page behind
 * the data whose first word says that the window has been freed. The owner keeps the descriptor
 * open; a peer that reads a span of the window opens it through /proc/<pid>/fd. So it has no name,
 * and the kernel frees it with its last user.
 *
 * A freed window gives its pages back by punching them out of the file, which stays as long: a peer
 * that still looks, in an operation that is failing, reads zeros instead of dying of SIGBUS.
 * Numbers are never used twice, so that nobody takes a new window for an old one.
 *
 * In a world without peers on this host a window is plain memory. comm_alloc and comm_free are
 * here.
 */
#ifndef MUSTER_LIBCOMM_SHM_SHARED_BUFFER_H
#define MUSTER_LIBCOMM_SHM_SHARED_BUFFER_H

#include "libcomm/world.h"

/* Whether there are any. */
static inline bool shared_buffers_live(struct world *w)
{
	return atomic_load_explicit(&w->shared_buffers_live, memory_order_relaxed) > 0;
}

/* What to tell of a buffer. From any thread. */
struct remote_buffer comm_shared_buffer_describe(struct world *w, const void *data, size_t bytes);

/* A peer's window in this process: size bytes; NULL when it cannot be had, with errno: ENOENT says
 * that the peer has ended. Not for windows without peers. */
char *comm_shared_buffer_map(pid_t pid, const struct remote_buffer *s);
void comm_shared_buffer_unmap(char *base, size_t size);
bool comm_shared_buffer_is_freed(const char *base, size_t size);

/* All that are left, with the world. */
void comm_shared_buffers_free(struct world *w);

#endif
