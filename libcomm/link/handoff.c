#include "libcomm/link/handoff.h"

#include "base/clock.h"
#include "libcomm/link/exchange.h"
#include "libcomm/shm/reach.h"

#include <sched.h>
#include <string.h>

/* The system call's price is that of copying some KiB; two at work pay from some hundred on. */
enum {
	HANDOFF_FROM = 8 << 10,
	CHUNK_LEAST = 256 << 10,
	CHUNK_MOST = 512 << 10,
	GRACE_NS = 1000000000
};

static const uint64_t CLOSED = UINT32_MAX; /* no such chunk */

bool comm_handoff_fits(const struct link *l, size_t bytes)
{
	return l->handoff.tx && bytes >= HANDOFF_FROM;
}

/* --- Chunks --- */

static size_t chunk_size(size_t bytes)
{
	size_t half = (bytes / 2 + 4095) & ~(size_t)4095;
	return half < CHUNK_LEAST ? CHUNK_LEAST : half > CHUNK_MOST ? CHUNK_MOST : half;
}

static uint64_t chunk_count(size_t bytes)
{
	return (bytes + chunk_size(bytes) - 1) / chunk_size(bytes);
}

struct part {
	size_t at, bytes;
};

static struct part chunk_part(size_t bytes, uint64_t chunk)
{
	size_t at = chunk * chunk_size(bytes), left = bytes - at;
	return (struct part){ at, left < chunk_size(bytes) ? left : chunk_size(bytes) };
}

/* Whether there is a chunk of that message to be had. */
static bool claim_chunk(struct handoff *h, uint32_t number, size_t bytes, uint64_t *chunk)
{
	uint64_t now = atomic_load(&h->claim);
	do {
		*chunk = (uint32_t)now;
		if (now >> 32 != number || *chunk >= chunk_count(bytes))
			return false;
	} while (!atomic_compare_exchange_weak(&h->claim, &now, now + 1));
	return true;
}

/* --- The sender --- */

bool comm_handoff_offer(struct link *l, int transfer)
{
	struct transfer *t = &l->c->transfers[transfer];
	struct handoff_end *o = &l->handoff;
	if (!comm_handoff_fits(l, t->bytes))
		return false;
	t->span = reach_span(l->c, t->data, t->bytes);
	if (!t->span.window && !comm_reach_works(l->c))
		return false;
	t->number = ++o->offered;
	if (o->oldest < 0)
		o->oldest = transfer;
	return true;
}

static bool taken(const struct handoff *h, uint32_t number)
{
	return (int32_t)(atomic_load(&h->taken) - number) >= 0;
}

void comm_handoff_settle(struct link *l)
{
	struct handoff_end *o = &l->handoff;
	const struct transfer *all = l->c->transfers;
	while (o->oldest >= 0 && taken(o->tx, all[o->oldest].number)) {
		do
			o->oldest = all[o->oldest].next;
		while (o->oldest >= 0 && all[o->oldest].way != WAY_SPAN);
	}
}

static bool write_part(struct link *l, const struct span *to, const char *data, struct part p)
{
	char *base = comm_reach_map(l->c, l->peer, to, p.at + p.bytes);
	if (base) {
		memcpy(base + p.at, data + p.at, p.bytes);
		return true;
	}
	struct iovec here = { (char *)(uintptr_t)data + p.at, p.bytes };
	struct iovec there = { (void *)(uintptr_t)(to->address + p.at), p.bytes };
	pid_t pid = l->c->world->peers[l->c->members[l->peer]].pid;
	return process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)p.bytes;
}

/* Whether the process is there still: its number could come to serve another. */
static bool peer_lives(const struct link *l)
{
	struct pollfd p = { .fd = l->c->world->peers[l->c->members[l->peer]].pidfd,
			    .events = POLLIN };
	return poll(&p, 1, 0) == 0;
}

void comm_handoff_help(struct link *l, bool *moved)
{
	struct handoff_end *o = &l->handoff;
	if (o->oldest < 0)
		return;
	const struct transfer *t = &l->c->transfers[o->oldest];
	uint64_t chunk, now = atomic_load(&o->tx->claim);
	if (o->mute || now >> 32 != t->number || (uint32_t)now >= chunk_count(t->bytes) ||
	    !peer_lives(l))
		return;
	atomic_store(&o->tx->writing, 1);
	if (claim_chunk(o->tx, t->number, t->bytes, &chunk)) {
		*moved = true;
		if (!write_part(l, &o->tx->to, t->data, chunk_part(t->bytes, chunk))) {
			o->mute = true;
			atomic_store(&o->tx->left, (uint32_t)chunk + 1);
		}
	}
	atomic_store(&o->tx->writing, 0);
	comm_ring_wake(l);
}

/* --- The receiver --- */

static void open_chunks(struct link *l, struct transfer *t)
{
	struct handoff *h = l->handoff.rx;
	h->to = reach_span(l->c, t->data, t->bytes);
	atomic_store(&h->left, 0);
	atomic_store(&h->claim, (uint64_t)t->number << 32);
	l->handoff.open = true;
	comm_ring_wake(l);
}

static void close_chunks(struct link *l)
{
	struct handoff_end *o = &l->handoff;
	atomic_exchange(&o->rx->claim, (uint64_t)o->begun << 32 | CLOSED);
}

static int fetch_part(struct link *l, struct transfer *t, struct part p, bool *moved, struct err *e)
{
	*moved = true;
	return comm_reach_get(l->c, l->peer, &t->span, p.at, t->data + p.at, p.bytes, e);
}

/* 1 all chunks have been copied, 0 not yet, -1. */
static int fetch_chunk(struct link *l, struct transfer *t, bool *moved, struct err *e)
{
	struct handoff *h = l->handoff.rx;
	uint64_t chunk;
	uint32_t left;
	if (chunk_count(t->bytes) == 1)
		return fetch_part(l, t, (struct part){ 0, t->bytes }, moved, e) < 0 ? -1 : 1;
	if (!l->handoff.open)
		open_chunks(l, t);
	if (claim_chunk(h, t->number, t->bytes, &chunk))
		return fetch_part(l, t, chunk_part(t->bytes, chunk), moved, e);
	if (atomic_load(&h->writing))
		return 0;
	left = atomic_exchange(&h->left, 0);
	if (left && left <= chunk_count(t->bytes) &&
	    fetch_part(l, t, chunk_part(t->bytes, left - 1), moved, e) < 0)
		return -1;
	l->handoff.open = false;
	return 1;
}

int comm_handoff_fetch(struct link *l, struct transfer *t, bool *moved, struct err *e)
{
	struct handoff_end *o = &l->handoff;
	if (!t->begun) {
		t->number = ++o->begun;
		t->begun = true;
	}
	if (!t->fetched) {
		int rc = fetch_chunk(l, t, moved, e);
		if (rc <= 0)
			return rc;
		t->fetched = true;
	}
	/* In this order: if the sender was there after the last byte, that byte was right. If
	 * not, it is absent. */
	close_chunks(l);
	if (atomic_load(&l->ring.line->state) != SEG_HERE)
		return 0;
	atomic_store(&o->rx->taken, t->number);
	comm_ring_wake(l);
	return 1;
}

void comm_handoff_abandon(struct link *l)
{
	struct handoff_end *o = &l->handoff;
	o->oldest = -1;
	if (!o->rx || !o->open)
		return;
	close_chunks(l);
	for (int64_t until = clock_ns() + GRACE_NS;
	     atomic_load(&o->rx->writing) && clock_ns() < until;) {
		if (!peer_lives(l))
			break;
		sched_yield();
	}
	o->open = false;
}
