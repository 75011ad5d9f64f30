/*
 * The backend's two streams: one for ops and for copies in their order, one for side copies.
 *
 * backend_put copies through a ring of pinned memory, so that the caller may change its memory at
 * once. It waits only if the device is a whole ring behind. Events mark when the device has finished
 * with a piece of the ring.
 */
#include "kernels/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	RING_BYTES = 32 << 20,
	RING_PIECE = 4 << 20, /* the largest piece of a put */
	RING_MARKS = 1024,
	RING_ALIGN = 64,
	SIDE_MARKS = 64
};

/* The pieces of the ring that are in use: `marks` of them, from mark `first` on. */
struct cuda_ring {
	char *base;
	size_t head, used; /* where the next piece begins; bytes that are not free */
	int first, marks;
	/* of each piece, with what was left unused at the ring's end */
	size_t bytes[RING_MARKS];
	cudaEvent_t done[RING_MARKS];
};

struct cuda_side {
	uint64_t copies;    /* so far; the ticket of copy i is i + 1 */
	cudaEvent_t before; /* the ops that a copy waits for */
	/* entry t % SIDE_MARKS is ticket t's, or a later one's that replaced it */
	cudaEvent_t done[SIDE_MARKS];
};

/* --- The ring ----------------------------------------------------------------------------- */

static void free_oldest_piece(struct backend *k, struct cuda_ring *r)
{
	cuda_ok(k, cudaEventSynchronize(r->done[r->first]), cuda_of(k)->last_op);
	r->used -= r->bytes[r->first];
	r->first = (r->first + 1) % RING_MARKS;
	r->marks--;
}

/* A piece of `bytes` bytes, at most RING_PIECE. May wait until the oldest pieces are free. */
static char *allocate_piece(struct backend *k, struct cuda_ring *r, size_t bytes)
{
	size_t end = RING_BYTES - r->head, skip = bytes > end ? end : 0;
	while (r->marks && (r->marks == RING_MARKS || r->used + skip + bytes > RING_BYTES))
		free_oldest_piece(k, r);
	size_t at = skip ? 0 : r->head;
	r->bytes[(r->first + r->marks) % RING_MARKS] = skip + bytes;
	r->used += skip + bytes;
	r->head = (at + bytes) % RING_BYTES;
	return r->base + at;
}

/* Marks the piece that was allocated last. */
static void mark_piece(struct backend *k, struct cuda_ring *r)
{
	cuda_ok(k, cudaEventRecord(r->done[(r->first + r->marks) % RING_MARKS], cuda_of(k)->stream),
		"backend_put");
	r->marks++;
}

static void put_piece(struct backend *k, char *to, const char *from, size_t bytes)
{
	struct cuda_ring *r = cuda_of(k)->ring;
	char *at = allocate_piece(k, r, (bytes + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN);
	memcpy(at, from, bytes);
	cuda_ok(k, cudaMemcpyAsync(to, at, bytes, cudaMemcpyHostToDevice, cuda_of(k)->stream),
		"backend_put");
	mark_piece(k, r);
}

/* --- In the order of the ops -------------------------------------------------------------- */

void cuda_put(struct backend *k, void *to, const void *from, size_t bytes)
{
	struct cuda_backend *c = cuda_of(k);
	if (c->recording) {
		cuda_fail(k, cudaErrorStreamCaptureUnsupported, "backend_put",
			  "it was called while a graph is recorded");
		return;
	}
	cuda_choose(k);
	for (size_t at = 0; at < bytes && c->first_error == cudaSuccess; at += RING_PIECE)
		put_piece(k, (char *)to + at, (const char *)from + at,
			  bytes - at < RING_PIECE ? bytes - at : RING_PIECE);
}

void cuda_copy(struct backend *k, void *to, const void *from, size_t bytes)
{
	cuda_choose(k);
	if (bytes)
		cuda_ok(k,
			cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
					cuda_of(k)->stream),
			"backend_copy");
}

void cuda_fail_queued(struct backend *k, cudaError_t rc, const char *where)
{
	char more[96];
	snprintf(more, sizeof more, "in work that was queued up to %s", cuda_of(k)->last_op);
	cuda_fail(k, rc, where, more);
}

static bool wait_for(struct backend *k, cudaStream_t stream)
{
	cudaError_t rc = cudaStreamSynchronize(stream);
	if (rc != cudaSuccess)
		cuda_fail_queued(k, rc, "waiting");
	return rc == cudaSuccess;
}

int cuda_get(struct backend *k, void *to, const void *from, size_t bytes, struct err *e)
{
	struct cuda_backend *c = cuda_of(k);
	if (c->recording)
		return err_set(e, ERR_INTERNAL,
			       "CUDA device %d: backend_get was called while a graph is recorded",
			       c->device);
	cuda_choose(k);
	if (cuda_failed(k, e))
		return -1;
	if (bytes && cuda_ok(k, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream),
			     "backend_get"))
		wait_for(k, c->stream);
	return cuda_failed(k, e);
}

int cuda_sync(struct backend *k, struct err *e)
{
	struct cuda_backend *c = cuda_of(k);
	if (c->recording)
		return err_set(e, ERR_INTERNAL,
			       "CUDA device %d: backend_sync was called while a graph is recorded",
			       c->device);
	cuda_choose(k);
	if (wait_for(k, c->stream))
		wait_for(k, c->side);
	return cuda_failed(k, e);
}

/* --- Side copies -------------------------------------------------------------------------- */

uint64_t cuda_side_copy(struct backend *k, void *to, const void *from, size_t bytes)
{
	struct cuda_backend *c = cuda_of(k);
	struct cuda_side *s = c->copies;
	cuda_choose(k);
	s->copies++;
	if (cuda_ok(k, cudaEventRecord(s->before, c->stream), "backend_side_copy") &&
	    cuda_ok(k, cudaStreamWaitEvent(c->side, s->before, 0), "backend_side_copy") &&
	    (!bytes || cuda_ok(k, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c->side),
			       "backend_side_copy")))
		cuda_ok(k, cudaEventRecord(s->done[s->copies % SIDE_MARKS], c->side),
			"backend_side_copy");
	return s->copies;
}

void cuda_side_wait(struct backend *k, uint64_t ticket)
{
	struct cuda_backend *c = cuda_of(k);
	cuda_choose(k);
	if (ticket)
		cuda_ok(k, cudaStreamWaitEvent(c->stream, c->copies->done[ticket % SIDE_MARKS], 0),
			"backend_side_wait");
}

int cuda_side_await(struct backend *k, uint64_t ticket, struct err *e)
{
	struct cuda_backend *c = cuda_of(k);
	cuda_choose(k);
	if (ticket && !cuda_failed(k, NULL)) {
		cudaError_t rc = cudaEventSynchronize(c->copies->done[ticket % SIDE_MARKS]);
		if (rc != cudaSuccess)
			cuda_fail_queued(k, rc, "waiting for a copy to the host");
	}
	return cuda_failed(k, e);
}

void cuda_side_join(struct backend *k)
{
	cuda_side_wait(k, cuda_of(k)->copies->copies);
}

/* --- Opening ------------------------------------------------------------------------------ */

static bool new_event(struct backend *k, cudaEvent_t *event)
{
	return cuda_ok(k, cudaEventCreateWithFlags(event, cudaEventDisableTiming),
		       "creating an event");
}

static bool new_streams(struct backend *k)
{
	struct cuda_backend *c = cuda_of(k);
	return cuda_ok(k, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking),
		       "creating a stream") &&
	       cuda_ok(k, cudaStreamCreateWithFlags(&c->side, cudaStreamNonBlocking),
		       "creating a stream") &&
	       cuda_ok(k, cudaHostAlloc((void **)&c->ring->base, RING_BYTES, cudaHostAllocPortable),
		       "allocating pinned host memory");
}

int cuda_stream_open(struct backend *k, struct err *e)
{
	struct cuda_backend *c = cuda_of(k);
	c->ring = calloc(1, sizeof *c->ring);
	c->copies = calloc(1, sizeof *c->copies);
	if (!c->ring || !c->copies)
		return err_set(e, ERR_NOMEM,
			       "backend cuda: no memory for its streams; close other programs");
	bool made = new_streams(k) && new_event(k, &c->copies->before);
	for (int i = 0; i < RING_MARKS; i++)
		made = made && new_event(k, &c->ring->done[i]);
	for (int i = 0; i < SIDE_MARKS; i++)
		made = made && new_event(k, &c->copies->done[i]);
	return cuda_failed(k, e);
}

static void destroy_events(cudaEvent_t *events, int n)
{
	for (int i = 0; i < n; i++)
		if (events[i])
			cudaEventDestroy(events[i]);
}

static void destroy_stream(cudaStream_t stream)
{
	if (!stream)
		return;
	cudaStreamSynchronize(stream);
	cudaStreamDestroy(stream);
}

void cuda_stream_close(struct backend *k)
{
	struct cuda_backend *c = cuda_of(k);
	destroy_stream(c->side);
	destroy_stream(c->stream);
	if (c->copies) {
		destroy_events(&c->copies->before, 1);
		destroy_events(c->copies->done, SIDE_MARKS);
	}
	if (c->ring) {
		destroy_events(c->ring->done, RING_MARKS);
		if (c->ring->base)
			cudaFreeHost(c->ring->base);
	}
	free(c->copies);
	free(c->ring);
}
