/* Memory of a backend: its device's, or the host's. On the host, large blocks are zeroed pages of
 * their own, huge ones where the operating system has them. */
#include "kernels/backend.h"
#include "kernels/source.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64 };
static const size_t huge = (size_t)2 << 20;

struct block {
	struct block *next;
	void *p;
	size_t bytes; /* as requested */
	void *map;    /* NULL: from the heap, or from a device */
	size_t map_len;
	struct backend_source source; /* its free is NULL: the backend's own */
};

static bool map_block(struct block *b, size_t bytes)
{
	b->map_len = bytes + huge;
	b->map = mmap(NULL, b->map_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->map == MAP_FAILED)
		return false;
	uintptr_t at = ((uintptr_t)b->map + huge - 1) / huge * huge;
	b->p = (void *)at;
	madvise(b->p, bytes, MADV_HUGEPAGE); /* without them it is only slower */
	return true;
}

static bool allocate_block(struct block *b, size_t bytes)
{
	size_t rounded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	b->p = aligned_alloc(ALIGN, rounded ? rounded : ALIGN);
	if (b->p)
		memset(b->p, 0, rounded);
	return b->p != NULL;
}

static bool fill_block(struct backend *k, struct block *b, size_t bytes)
{
	if (k->device)
		return (b->p = k->device->alloc(k, bytes)) != NULL;
	return bytes >= huge ? map_block(b, bytes) : allocate_block(b, bytes);
}

static bool take_from(struct backend *k, struct block *b, const struct backend_source *source,
		      size_t bytes)
{
	if (!source || !k->device || !bytes || !(b->p = source->alloc(source->of, bytes)))
		return false;
	b->source = *source;
	k->device->zero(k, b->p, bytes);
	return true;
}

void *backend_alloc(struct backend *k, size_t bytes)
{
	return backend_alloc_from(k, NULL, bytes);
}

bool backend_is_from_source(const struct backend *k, const void *p)
{
	const struct block *b = k->blocks;
	while (b && b->p != p)
		b = b->next;
	return b && b->source.alloc;
}

void *backend_alloc_from(struct backend *k, const struct backend_source *source, size_t bytes)
{
	struct block *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	if (bytes > SIZE_MAX / 2 || (!take_from(k, b, source, bytes) && !fill_block(k, b, bytes))) {
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

static void free_block(struct backend *k, struct block *b)
{
	if (b->source.free) {
		k->device->sync(k, NULL);
		b->source.free(b->source.of, b->p);
	} else if (k->device)
		k->device->free(k, b->p);
	else if (b->map)
		munmap(b->map, b->map_len);
	else
		free(b->p);
	free(b);
}

void backend_free(struct backend *k, void *p)
{
	for (struct block **at = &k->blocks; *at; at = &(*at)->next) {
		struct block *b = *at;
		if (b->p != p)
			continue;
		*at = b->next;
		k->bytes -= b->bytes;
		free_block(k, b);
		return;
	}
}

void backend_free_all(struct backend *k)
{
	while (k->blocks)
		backend_free(k, k->blocks->p);
}

size_t backend_peak(const struct backend *k)
{
	return k->peak;
}

bool backend_on_host(const struct backend *k)
{
	return !k->device;
}

void backend_zero(struct backend *k, void *p, size_t bytes)
{
	if (k->device)
		k->device->zero(k, p, bytes);
	else
		memset(p, 0, bytes);
}

void backend_copy(struct backend *k, void *to, const void *from, size_t bytes)
{
	if (k->device)
		k->device->copy(k, to, from, bytes);
	else
		memcpy(to, from, bytes);
}

void backend_put(struct backend *k, void *to, const void *from, size_t bytes)
{
	if (k->device)
		k->device->put(k, to, from, bytes);
	else
		memcpy(to, from, bytes);
}

int backend_get(struct backend *k, void *to, const void *from, size_t bytes, struct err *e)
{
	if (k->device)
		return k->device->get(k, to, from, bytes, e);
	memcpy(to, from, bytes);
	return 0;
}

int backend_sync(struct backend *k, struct err *e)
{
	return k->device ? k->device->sync(k, e) : 0;
}

void *backend_stream(struct backend *k)
{
	return k->device ? k->device->stream(k) : NULL;
}

void *backend_host_alloc(struct backend *k, size_t bytes)
{
	if (k->device)
		return k->device->host_alloc(k, bytes);
	return aligned_alloc(ALIGN, bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN);
}

void backend_host_free(struct backend *k, void *p)
{
	if (k->device)
		k->device->host_free(k, p);
	else
		free(p);
}

uint64_t backend_side_copy(struct backend *k, void *to, const void *from, size_t bytes)
{
	if (k->device)
		return k->device->side_copy(k, to, from, bytes);
	memcpy(to, from, bytes);
	return 0;
}

void backend_side_wait(struct backend *k, uint64_t ticket)
{
	if (k->device)
		k->device->side_wait(k, ticket);
}

int backend_side_await(struct backend *k, uint64_t ticket, struct err *e)
{
	return k->device ? k->device->side_await(k, ticket, e) : 0;
}
