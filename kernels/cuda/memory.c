/*
 * Device memory: large chunks from cudaMalloc, split into extents. cudaMalloc and cudaFree wait for
 * the device. So a chunk is kept until the backend closes, or until there is no other memory, and
 * what a training step allocates and frees comes from existing chunks.
 *
 * A freed extent may be allocated again at once, since its next use is queued after its last one.
 */
#include "base/numbers.h"
#include "kernels/cuda/cuda.h"

#include <stdlib.h>

/* The extents of a chunk are consecutive and fill it. Two neighbours are never both free. */
struct extent {
	struct extent *next;
	char *at;
	size_t bytes;
	bool used;
};

struct chunk {
	struct chunk *next;
	char *base;
	size_t bytes;
	struct extent *extents;
};

struct cuda_pool {
	struct chunk *chunks;
};

static const size_t chunk_bytes = (size_t)64 << 20, page = (size_t)2 << 20;

/* --- Chunks ------------------------------------------------------------------------------- */

static struct extent *new_extent(struct extent *next, char *at, size_t bytes)
{
	struct extent *s = malloc(sizeof *s);
	if (s)
		*s = (struct extent){ .next = next, .at = at, .bytes = bytes };
	return s;
}

static void free_chunk(struct chunk *c)
{
	cudaFree(c->base);
	while (c->extents) {
		struct extent *next = c->extents->next;
		free(c->extents);
		c->extents = next;
	}
	free(c);
}

static struct chunk *new_chunk(size_t bytes)
{
	struct chunk *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->bytes = bytes;
	if (cudaMalloc((void **)&c->base, bytes) != cudaSuccess) {
		cudaGetLastError(); /* the caller gets NULL instead */
		free(c);
		return NULL;
	}
	c->extents = new_extent(NULL, c->base, bytes);
	if (!c->extents) {
		free_chunk(c);
		return NULL;
	}
	return c;
}

/* Frees the chunks of which nothing is used. */
static void free_unused_chunks(struct cuda_pool *p)
{
	for (struct chunk **at = &p->chunks; *at;) {
		struct chunk *c = *at;
		if (c->extents->used || c->extents->next) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free_chunk(c);
	}
}

/* Adds a chunk of at least `bytes` bytes; a larger one if there is enough memory. */
static bool grow_pool(struct cuda_pool *p, size_t bytes)
{
	size_t exact = round_up_size(bytes, page), wanted = max_size(exact, chunk_bytes);
	struct chunk *c = new_chunk(wanted);
	if (!c) {
		free_unused_chunks(p);
		c = new_chunk(wanted);
	}
	if (!c && wanted > exact)
		c = new_chunk(exact);
	if (!c)
		return false;
	c->next = p->chunks;
	p->chunks = c;
	return true;
}

/* --- Extents ------------------------------------------------------------------------------ */

/* The smallest free extent of at least `bytes` bytes. */
static struct extent *find_extent(const struct cuda_pool *p, size_t bytes)
{
	struct extent *best = NULL;
	for (const struct chunk *c = p->chunks; c; c = c->next)
		for (struct extent *s = c->extents; s; s = s->next)
			if (!s->used && s->bytes >= bytes && (!best || s->bytes < best->bytes))
				best = s;
	return best;
}

/* Without memory for an entry of the rest, the extent keeps it. */
static void split_extent(struct extent *s, size_t bytes)
{
	struct extent *rest = s->bytes > bytes
				      ? new_extent(s->next, s->at + bytes, s->bytes - bytes)
				      : NULL;
	if (!rest)
		return;
	s->next = rest;
	s->bytes = bytes;
}

static void join_extent(struct extent *s)
{
	struct extent *after = s->next;
	if (!after || s->used || after->used)
		return;
	s->bytes += after->bytes;
	s->next = after->next;
	free(after);
}

static bool free_extent(struct chunk *c, const void *p)
{
	struct extent *before = NULL;
	for (struct extent *s = c->extents; s; before = s, s = s->next) {
		if (s->at != p)
			continue;
		s->used = false;
		join_extent(s);
		if (before)
			join_extent(before);
		return true;
	}
	return false;
}

/* --- The backend's memory ----------------------------------------------------------------- */

void *cuda_memory_alloc(struct backend *k, size_t bytes)
{
	struct cuda_pool *p = cuda_of(k)->pool;
	bytes = round_up_size(bytes ? bytes : 1, CUDA_ALIGN);
	cuda_choose(k);
	struct extent *s = find_extent(p, bytes);
	if (!s && grow_pool(p, bytes))
		s = find_extent(p, bytes);
	if (!s)
		return NULL;
	split_extent(s, bytes);
	s->used = true;
	cuda_memory_zero(k, s->at, bytes);
	return s->at;
}

void cuda_memory_free(struct backend *k, void *at)
{
	cuda_choose(k);
	cuda_side_join(k);
	for (struct chunk *c = cuda_of(k)->pool->chunks; c; c = c->next)
		if ((char *)at >= c->base && (char *)at < c->base + c->bytes && free_extent(c, at))
			return;
}

void cuda_memory_zero(struct backend *k, void *p, size_t bytes)
{
	cuda_choose(k);
	if (bytes)
		cuda_ok(k, cudaMemsetAsync(p, 0, bytes, cuda_of(k)->stream), "backend_zero");
}

int cuda_memory_open(struct backend *k, struct err *e)
{
	struct cuda_backend *c = cuda_of(k);
	c->pool = calloc(1, sizeof *c->pool);
	if (!c->pool)
		return err_set(e, ERR_NOMEM,
			       "backend cuda: no memory to manage the device's; close other "
			       "programs");
	c->scratch = cuda_memory_alloc(k, CUDA_SCRATCH);
	if (!c->scratch)
		cuda_fail(k, cudaErrorMemoryAllocation, "allocating the scratch", NULL);
	return cuda_failed(k, e);
}

void cuda_memory_close(struct backend *k)
{
	struct cuda_backend *c = cuda_of(k);
	while (c->pool && c->pool->chunks) {
		struct chunk *next = c->pool->chunks->next;
		free_chunk(c->pool->chunks);
		c->pool->chunks = next;
	}
	free(c->pool);
	c->pool = NULL;
}

/* --- Pinned host memory ---------------------------------------------------------------- */

void *cuda_host_alloc(struct backend *k, size_t bytes)
{
	void *p = NULL;
	cuda_choose(k);
	if (cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocPortable) == cudaSuccess)
		return p;
	cudaGetLastError();
	return NULL;
}

/* Waits for the copies from and to it. */
void cuda_host_free(struct backend *k, void *p)
{
	if (!p)
		return;
	cuda_sync(k, NULL);
	cudaFreeHost(p);
}
