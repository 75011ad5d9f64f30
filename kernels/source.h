/*
 * source — memory of a device that something else than its backend allocates, such as a library of
 * collectives that other ranks' operations then reach. The backend counts it and frees it like its
 * own.
 */
#ifndef MUSTER_KERNELS_SOURCE_H
#define MUSTER_KERNELS_SOURCE_H

#include "kernels/ops.h"

struct backend_source {
	void *(*alloc)(void *of, size_t bytes); /* NULL: it has none */
	void (*free)(void *of, void *p);        /* nothing on the device uses it any more */
	void *of;
};

/* Like backend_alloc, from the source if it has memory; otherwise, and with NULL, the backend's
 * own. backend_free then waits for all that is queued. The source must remain until that, or
 * until the backend is closed. On the host it is not asked. */
void *backend_alloc_from(struct backend *k, const struct backend_source *source, size_t bytes);
/* Whether the memory at p, as backend_alloc_from returned it, is a source's. */
bool backend_is_from_source(const struct backend *k, const void *p);

#endif
