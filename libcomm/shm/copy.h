/*
 * copy — copies into a buffer that this core does not need soon.
 *
 * An ordinary store reads a line before it writes it. If an operation fills more than the caches
 * hold, non-temporal stores save that traffic: about a sixth of one core's copy bandwidth, and
 * almost half if the data exceeds the last-level cache.
 */
#ifndef MUSTER_LIBCOMM_SHM_COPY_H
#define MUSTER_LIBCOMM_SHM_COPY_H

#include <stddef.h>

/* to[bytes] = from[bytes], which may not overlap. all: the bytes that the operation writes on this
 * rank. */
void comm_copy_streaming(void *to, const void *from, size_t bytes, size_t all);

#endif
