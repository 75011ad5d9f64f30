/* The link to a rank of the same host: a ring of bytes in shared memory each way. */
#include "libcomm/exchange.h"
#include "libcomm/futex.h"

#include <string.h>

/* The peer says that it sleeps, looks once more, then sleeps. Both sides change
 * the same word, so either this one reads 1 or the peer's last look sees the bytes. */
static void wake_peer(struct link *l)
{
	struct seg_line *line = l->ring.line;
	if (!atomic_exchange(&line->sleeping, 0))
		return;
	if (l->ring.bell >= 0) {
		bell_ring(l->ring.bell);
		return;
	}
	atomic_fetch_add(&line->doorbell, 1);
	futex_wake_all(&line->doorbell);
}

static ssize_t ring_put(struct link *l, int lane, const struct iovec *v, int n, struct err *e)
{
	(void)lane;
	(void)e;
	struct ring *r = l->ring.tx;
	size_t cap = l->ring.bytes;
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	uint64_t room = cap - (head - atomic_load_explicit(&r->tail, memory_order_acquire));
	uint64_t start = head;
	for (int i = 0; i < n && room; i++) {
		size_t len = v[i].iov_len < room ? v[i].iov_len : room;
		size_t at = head & (cap - 1), first = len < cap - at ? len : cap - at;
		memcpy(r->data + at, v[i].iov_base, first);
		memcpy(r->data, (char *)v[i].iov_base + first, len - first);
		head += len;
		room -= len;
	}
	if (head != start) {
		atomic_store_explicit(&r->head, head, memory_order_release);
		wake_peer(l);
	}
	return (ssize_t)(head - start);
}

static ssize_t ring_get(struct link *l, int lane, const struct iovec *v, int n, struct err *e)
{
	(void)lane;
	(void)e;
	struct ring *r = l->ring.rx;
	size_t cap = l->ring.bytes;
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	uint64_t here = atomic_load_explicit(&r->head, memory_order_acquire) - tail;
	uint64_t start = tail;
	for (int i = 0; i < n && here; i++) {
		size_t len = v[i].iov_len < here ? v[i].iov_len : here;
		size_t at = tail & (cap - 1), first = len < cap - at ? len : cap - at;
		memcpy(v[i].iov_base, r->data + at, first);
		memcpy((char *)v[i].iov_base + first, r->data, len - first);
		tail += len;
		here -= len;
	}
	if (tail != start) {
		atomic_store_explicit(&r->tail, tail, memory_order_release);
		wake_peer(l);
	}
	return (ssize_t)(tail - start);
}

static bool ring_poll(const struct link *l, int lane, struct pollfd *p)
{
	(void)l;
	(void)lane;
	(void)p;
	return false;
}

static void ring_cut(struct link *l)
{
	/* A sleeper that polls does not watch the segment: it looks when its bell rings. */
	if (l->ring.bell >= 0)
		bell_ring(l->ring.bell);
}

static void ring_close(struct link *l)
{
	ring_cut(l);
	if (l->ring.bell >= 0)
		close(l->ring.bell);
}

const struct link_ops ring_ops = { ring_put, ring_get, ring_poll, ring_cut, ring_close };
