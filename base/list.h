/*
 * list — arrays that grow.
 */
#ifndef MUSTER_BASE_LIST_H
#define MUSTER_BASE_LIST_H

#include <stdint.h>
#include <stdlib.h>

/* Makes room for one more element after the n of `list`, each of `size` bytes; *room is the number
 * of elements that fit, and the first time it becomes `first`. Returns the list, which may have
 * moved. NULL: no memory; the list and *room are unchanged. */
static inline void *list_grow(void *list, int64_t n, int64_t *room, int64_t first, size_t size)
{
	if (n < *room)
		return list;
	int64_t more = *room ? 2 * *room : first;
	size_t bytes;
	if (__builtin_mul_overflow((size_t)more, size, &bytes))
		return NULL;
	void *moved = realloc(list, bytes);
	if (moved)
		*room = more;
	return moved;
}

#endif
