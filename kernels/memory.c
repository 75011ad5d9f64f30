/* Memory of the CPU backends: zeroed pages from the kernel for what is large, huge where it offers them. */
#include "kernels/kern.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64 };
static const size_t huge = (size_t)2 << 20;

struct block {
	struct block *next;
	void *p;
	size_t bytes;   /* as asked for */
	void *map;      /* NULL when it came from the heap */
	size_t map_len;
};

static bool block_map(struct block *b, size_t bytes)
{
	b->map_len = bytes + huge;
	b->map = mmap(NULL, b->map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->map == MAP_FAILED)
		return false;
	uintptr_t at = ((uintptr_t)b->map + huge - 1) / huge * huge;
	b->p = (void *)at;
	madvise(b->p, bytes, MADV_HUGEPAGE); /* a kernel without them is only slower */
	return true;
}

static bool block_heap(struct block *b, size_t bytes)
{
	size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	b->p = aligned_alloc(ALIGN, rounded ? rounded : ALIGN);
	if (b->p)
		memset(b->p, 0, rounded);
	return b->p != NULL;
}

void *kern_alloc(struct kern *k, size_t bytes)
{
	struct block *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	if (bytes > SIZE_MAX / 2 || !(bytes >= huge ? block_map(b, bytes) : block_heap(b, bytes))) {
		free(b);
		return NULL;
	}
	b->bytes = bytes;
	b->next = k->blocks;
	k->blocks = b;
	k->bytes += bytes;
	if (k->bytes > k->peak)
		k->peak = k->bytes;
	return b->p;
}

static void block_release(struct block *b)
{
	if (b->map)
		munmap(b->map, b->map_len);
	else
		free(b->p);
	free(b);
}

void kern_free(struct kern *k, void *p)
{
	for (struct block **at = &k->blocks; *at; at = &(*at)->next) {
		struct block *b = *at;
		if (b->p != p)
			continue;
		*at = b->next;
		k->bytes -= b->bytes;
		block_release(b);
		return;
	}
}

void kern_free_all(struct kern *k)
{
	while (k->blocks)
		kern_free(k, k->blocks->p);
}

size_t kern_peak(const struct kern *k)
{
	return k->peak;
}

void kern_zero(struct kern *k, void *p, size_t bytes)
{
	(void)k;
	memset(p, 0, bytes);
}
