#include "agent/engine/dcp/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 16, SMALLEST = 1 << 10 };

struct block {
	struct block *next;
	size_t used, size;
	alignas(max_align_t) char data[];
};

struct dcp_arena {
	struct block *blocks; /* the first one is being filled */
	size_t next_size;     /* blocks grow, because most pickles are tiny */
};

struct dcp_arena *dcp_arena_open(void)
{
	struct dcp_arena *a = calloc(1, sizeof *a);
	if (a)
		a->next_size = SMALLEST;
	return a;
}

void *dcp_arena_take(struct dcp_arena *a, size_t n)
{
	struct block *b = a->blocks;
	if (n > SIZE_MAX / 2)
		return NULL;
	n = (n + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
	if (!b || n > b->size - b->used) {
		size_t size = n > a->next_size ? n : a->next_size;
		b = malloc(sizeof *b + size);
		if (!b)
			return NULL;
		*b = (struct block){ .next = a->blocks, .size = size };
		a->blocks = b;
		a->next_size = size < BLOCK / 2 ? size * 2 : BLOCK;
	}
	void *at = b->data + b->used;
	b->used += n;
	return memset(at, 0, n);
}

void dcp_arena_close(struct dcp_arena *a)
{
	if (!a)
		return;
	for (struct block *b = a->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	free(a);
}
