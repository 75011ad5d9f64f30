/* The transport to a rank of the same host: a ring of bytes in shared memory for each direction. */
#include "base/numbers.h"
#include "libcomm/p2p/exchange.h"
#include "libcomm/shm/futex.h"

#include <string.h>

/* One call moves at most this many bytes, so that the other side can begin. */
enum { PIECE = 16 << 10 };

/* The peer announces that it sleeps, checks once more, and then sleeps. This rank changes
 * something, and then checks whether the peer sleeps. All four are in one order (seq_cst).
 * Therefore, either this rank sees that the peer sleeps, or the peer's last check sees the
 * change. */
void comm_ring_wake_peer(const struct endpoint *l)
{
	struct seg_line *line = l->ring.line;
	if (!atomic_load(&line->sleeping) || !atomic_exchange(&line->sleeping, 0))
		return;
	if (l->ring.wakeup >= 0) {
		comm_wakeup_signal(l->ring.wakeup);
		return;
	}
	atomic_fetch_add(&line->doorbell, 1);
	futex_wake_all(&line->doorbell);
}

static void copy_in(struct ring *r, size_t cap, uint64_t head, const char *data, size_t len)
{
	size_t at = head & (cap - 1), first = len < cap - at ? len : cap - at;
	memcpy(r->data + at, data, first);
	if (first < len)
		memcpy(r->data, data + first, len - first);
}

static void copy_out(const struct ring *r, size_t cap, uint64_t tail, char *data, size_t len)
{
	size_t at = tail & (cap - 1), first = len < cap - at ? len : cap - at;
	memcpy(data, r->data + at, first);
	if (first < len)
		memcpy(data + first, r->data, len - first);
}

/* A short message is also stored next to the head, which the reader polls. The reader uses that
 * copy if last_end, which is written before it and read after it, belongs to the same head. */
static void put_last(struct ring *r, uint64_t head, const struct iovec *v, size_t bytes)
{
	uint64_t words[RING_LAST / 8];
	char *at = (char *)words;
	for (size_t left = bytes; left; left -= min_uint64(left, v->iov_len), v++) {
		memcpy(at, v->iov_base, min_uint64(left, v->iov_len));
		at += min_uint64(left, v->iov_len);
	}
	atomic_store_explicit(&r->last_end, head << 8 | bytes, memory_order_relaxed);
	for (size_t i = 0; i * 8 < bytes; i++)
		atomic_store_explicit(&r->last[i], words[i], memory_order_release);
}

/* The bytes from tail to head, if that copy holds them; otherwise NULL. */
static const char *get_last(struct ring *r, uint64_t head, uint64_t bytes,
			    uint64_t words[RING_LAST / 8])
{
	uint64_t end = atomic_load_explicit(&r->last_end, memory_order_relaxed), len = end & 0xff;
	if (end >> 8 != head << 8 >> 8 || bytes > len || len > RING_LAST)
		return NULL;
	for (size_t i = 0; i * 8 < len; i++)
		words[i] = atomic_load_explicit(&r->last[i], memory_order_acquire);
	return atomic_load_explicit(&r->last_end, memory_order_relaxed) == end
		       ? (char *)words + len - bytes
		       : NULL;
}

static ssize_t ring_put(struct endpoint *l, int lane, const struct iovec *v, int n, struct err *e)
{
	(void)lane;
	(void)e;
	struct ring *r = l->ring.tx;
	size_t cap = l->ring.bytes;
	uint64_t start = atomic_load_explicit(&r->head, memory_order_relaxed), head = start;
	if (head - l->ring.tail > cap - PIECE)
		l->ring.tail = atomic_load(&r->tail);
	uint64_t room = min_uint64(cap - (head - l->ring.tail), PIECE);
	for (int i = 0; i < n && room; i++) {
		size_t len = min_uint64(v[i].iov_len, room);
		copy_in(r, cap, head, v[i].iov_base, len);
		head += len;
		room -= len;
	}
	if (head == start)
		return 0;
	if (head - start <= RING_LAST)
		put_last(r, head, v, head - start);
	atomic_store(&r->head, head);
	comm_ring_wake_peer(l);
	return (ssize_t)(head - start);
}

static ssize_t ring_get(struct endpoint *l, int lane, const struct iovec *v, int n, struct err *e)
{
	(void)lane;
	(void)e;
	struct ring *r = l->ring.rx;
	size_t cap = l->ring.bytes;
	uint64_t start = atomic_load_explicit(&r->tail, memory_order_relaxed), tail = start;
	if (tail == l->ring.head)
		l->ring.head = atomic_load(&r->head);
	uint64_t here = min_uint64(l->ring.head - tail, PIECE), words[RING_LAST / 8];
	const char *last = here && here <= RING_LAST ? get_last(r, l->ring.head, here, words)
						     : NULL;
	for (int i = 0; i < n && here; i++) {
		size_t len = min_uint64(v[i].iov_len, here);
		if (last)
			memcpy(v[i].iov_base, last + (tail - start), len);
		else
			copy_out(r, cap, tail, v[i].iov_base, len);
		tail += len;
		here -= len;
	}
	if (tail == start)
		return 0;
	atomic_store(&r->tail, tail);
	comm_ring_wake_peer(l);
	return (ssize_t)(tail - start);
}

static bool ring_poll(const struct endpoint *l, int lane, struct pollfd *p)
{
	(void)l;
	(void)lane;
	(void)p;
	return false;
}

static void ring_cut(struct endpoint *l)
{
	/* A sleeper that polls does not watch the segment; it checks when its wake-up pipe is
	 * signalled. */
	if (l->ring.wakeup >= 0)
		comm_wakeup_signal(l->ring.wakeup);
}

static void ring_close(struct endpoint *l)
{
	ring_cut(l);
	if (l->ring.wakeup >= 0)
		close(l->ring.wakeup);
}

const struct transport_ops comm_ring_transport = { ring_put, ring_get, ring_poll, ring_cut,
						   ring_close };
