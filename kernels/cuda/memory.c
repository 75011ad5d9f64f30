/*
 * Memory of the device: large chunks of cudaMalloc, cut into spans. cudaMalloc and cudaFree wait
 * for the device, so a chunk stays until the backend ends, or until there is no room elsewhere; what a
 * step takes and gives back is cut from what is there.
 *
 * A span that is given back may be handed out at once: whoever uses it next is queued after whoever
 * used it last.
 */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>

/* Spans of a chunk lie one behind the other and fill it. Two free ones are never neighbours. */
struct span {
	struct span *next;
	char *at;
	size_t bytes;
	bool used;
};

struct chunk {
	struct chunk *next;
	char *base;
	size_t bytes;
	struct span *spans;
};

struct cuda_pool {
	struct chunk *chunks;
};

static const size_t chunk_bytes = (size_t)64 << 20, page = (size_t)2 << 20;

static size_t round_up(size_t bytes, size_t to)
{
	return (bytes + to - 1) / to * to;
}

/* --- Chunks
 * ------------------------------------------------------------------------------------ */

static struct span *span_new(struct span *next, char *at, size_t bytes)
{
	struct span *s = malloc(sizeof *s);
	if (s)
		*s = (struct span){ .next = next, .at = at, .bytes = bytes };
	return s;
}

static void chunk_close(struct chunk *c)
{
	cudaFree(c->base);
	while (c->spans) {
		struct span *next = c->spans->next;
		free(c->spans);
		c->spans = next;
	}
	free(c);
}

static struct chunk *chunk_open(size_t bytes)
{
	struct chunk *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->bytes = bytes;
	if (cudaMalloc((void **)&c->base, bytes) != cudaSuccess) {
		cudaGetLastError(); /* who asked gets NULL instead */
		free(c);
		return NULL;
	}
	c->spans = span_new(NULL, c->base, bytes);
	if (!c->spans) {
		chunk_close(c);
		return NULL;
	}
	return c;
}

/* Gives chunks in which nothing is used back to the device. */
static void chunks_release(struct cuda_pool *p)
{
	for (struct chunk **at = &p->chunks; *at;) {
		struct chunk *c = *at;
		if (c->spans->used || c->spans->next) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		chunk_close(c);
	}
}

/* A new chunk with room for that many bytes: larger than they are where there is memory enough. */
static bool pool_grow(struct cuda_pool *p, size_t bytes)
{
	size_t exact = round_up(bytes, page), wanted = exact > chunk_bytes ? exact : chunk_bytes;
	struct chunk *c = chunk_open(wanted);
	if (!c) {
		chunks_release(p);
		c = chunk_open(wanted);
	}
	if (!c && wanted > exact)
		c = chunk_open(exact);
	if (!c)
		return false;
	c->next = p->chunks;
	p->chunks = c;
	return true;
}

/* --- Spans
 * --------------------------------------------------------------------------------------- */

/* The smallest free span that holds so many bytes. */
static struct span *span_find(const struct cuda_pool *p, size_t bytes)
{
	struct span *best = NULL;
	for (const struct chunk *c = p->chunks; c; c = c->next)
		for (struct span *s = c->spans; s; s = s->next)
			if (!s->used && s->bytes >= bytes && (!best || s->bytes < best->bytes))
				best = s;
	return best;
}

/* Without memory for the rest's own entry the span keeps it. */
static void span_cut(struct span *s, size_t bytes)
{
	struct span *rest = s->bytes > bytes ? span_new(s->next, s->at + bytes, s->bytes - bytes)
					     : NULL;
	if (!rest)
		return;
	s->next = rest;
	s->bytes = bytes;
}

static void span_join(struct span *s)
{
	struct span *after = s->next;
	if (!after || s->used || after->used)
		return;
	s->bytes += after->bytes;
	s->next = after->next;
	free(after);
}

static bool span_give(struct chunk *c, const void *p)
{
	struct span *before = NULL;
	for (struct span *s = c->spans; s; before = s, s = s->next) {
		if (s->at != p)
			continue;
		s->used = false;
		span_join(s);
		if (before)
			span_join(before);
		return true;
	}
	return false;
}

/* --- The backend's memory
 * ------------------------------------------------------------------------------ */

void *cuda_memory_alloc(struct backend *k, size_t bytes)
{
	struct cuda_pool *p = cuda_of(k)->pool;
	bytes = round_up(bytes ? bytes : 1, CUDA_ALIGN);
	cuda_choose(k);
	struct span *s = span_find(p, bytes);
	if (!s && pool_grow(p, bytes))
		s = span_find(p, bytes);
	if (!s)
		return NULL;
	span_cut(s, bytes);
	s->used = true;
	cuda_memory_zero(k, s->at, bytes);
	return s->at;
}

void cuda_memory_free(struct backend *k, void *at)
{
	cuda_choose(k);
	cuda_side_join(k);
	for (struct chunk *c = cuda_of(k)->pool->chunks; c; c = c->next)
		if ((char *)at >= c->base && (char *)at < c->base + c->bytes && span_give(c, at))
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
			       "backend cuda: no memory for an account of the device's; close "
			       "other programs");
	c->scratch = cuda_memory_alloc(k, CUDA_SCRATCH);
	if (!c->scratch)
		cuda_fail(k, cudaErrorMemoryAllocation, "taking its scratch", NULL);
	return cuda_failed(k, e);
}

void cuda_memory_close(struct backend *k)
{
	struct cuda_backend *c = cuda_of(k);
	while (c->pool && c->pool->chunks) {
		struct chunk *next = c->pool->chunks->next;
		chunk_close(c->pool->chunks);
		c->pool->chunks = next;
	}
	free(c->pool);
	c->pool = NULL;
}

/* --- Memory of the host that the device reaches
 * ------------------------------------------------------- */

void *cuda_host_alloc(struct backend *k, size_t bytes)
{
	void *p = NULL;
	cuda_choose(k);
	if (cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocPortable) == cudaSuccess)
		return p;
	cudaGetLastError();
	return NULL;
}

/* After the copies from and to it. */
void cuda_host_free(struct backend *k, void *p)
{
	if (!p)
		return;
	cuda_sync(k, NULL);
	cudaFreeHost(p);
}
