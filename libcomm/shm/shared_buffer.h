/*
 * shared_buffer — memory of comm_alloc, which a rank shares with the ranks of its host. comm_alloc
 * and comm_free are here.
 *
 * Each shared buffer is a memfd, in whole huge pages if it is that large. One more page behind the
 * data holds a flag that says that the buffer has been freed. The owner keeps the descriptor open.
 * A peer opens it through /proc/<pid>/fd. So it has no name, and the kernel frees it with its last
 * user.
 *
 * Freeing a shared buffer punches its pages out of the file, which keeps its length: a peer that
 * still reads it, in a failing operation, reads zeros instead of dying of SIGBUS. Numbers are never
 * reused, so nobody takes a new buffer for an old one.
 *
 * In a world without peers on this host the memory is ordinary memory.
 */
#ifndef MUSTER_LIBCOMM_SHM_SHARED_BUFFER_H
#define MUSTER_LIBCOMM_SHM_SHARED_BUFFER_H

#include "libcomm/world.h"

/* Whether this rank has any. */
static inline bool shared_buffers_live(struct world *w)
{
	return atomic_load_explicit(&w->shared_buffers_live, memory_order_relaxed) > 0;
}

/* The description of a buffer for peers. From any thread. */
struct remote_buffer comm_shared_buffer_describe(struct world *w, const void *data, size_t bytes);

/* Maps a peer's shared buffer of s->size bytes. NULL with errno if that fails; ENOENT says that the
 * peer has ended. Not for worlds without peers on this host. */
char *comm_shared_buffer_map(pid_t pid, const struct remote_buffer *s);
void comm_shared_buffer_unmap(char *base, size_t size);
bool comm_shared_buffer_is_freed(const char *base, size_t size);

/* Frees all that remain, when the world closes. */
void comm_shared_buffers_free(struct world *w);

#endif
