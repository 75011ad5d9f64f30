#include "libcomm/p2p/rendezvous.h"

#include "base/clock.h"
#include "libcomm/p2p/exchange.h"
#include "libcomm/shm/peer_memory.h"

#include <sched.h>
#include <string.h>

/* The system call costs as much as copying some KiB. Two ranks at work pay off from a few hundred
 * KiB on. */
enum {
	RENDEZVOUS_FROM = 8 << 10,
	CHUNK_MIN = 256 << 10,
	CHUNK_MAX = 512 << 10,
	GRACE_NS = 1000000000
};

static const uint64_t CLOSED = UINT32_MAX; /* no such chunk */

bool comm_rendezvous_fits(const struct endpoint *ep, size_t bytes)
{
	return ep->rendezvous.tx && bytes >= RENDEZVOUS_FROM;
}

/* --- Chunks --- */

static size_t chunk_size(size_t bytes)
{
	size_t half = (bytes / 2 + 4095) & ~(size_t)4095;
	return half < CHUNK_MIN ? CHUNK_MIN : half > CHUNK_MAX ? CHUNK_MAX : half;
}

static uint64_t chunk_count(size_t bytes)
{
	return (bytes + chunk_size(bytes) - 1) / chunk_size(bytes);
}

struct chunk_range {
	size_t at, bytes;
};

static struct chunk_range find_chunk(size_t bytes, uint64_t chunk)
{
	size_t at = chunk * chunk_size(bytes), left = bytes - at;
	return (struct chunk_range){ at, left < chunk_size(bytes) ? left : chunk_size(bytes) };
}

/* Takes a chunk of that message, if one is left. */
static bool claim_chunk(struct rendezvous *h, uint32_t number, size_t bytes, uint64_t *chunk)
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

bool comm_rendezvous_offer(struct endpoint *ep, int transfer)
{
	struct transfer *t = &ep->c->exchange.transfers[transfer];
	struct rendezvous_end *o = &ep->rendezvous;
	if (!comm_rendezvous_fits(ep, t->bytes))
		return false;
	t->remote = peer_memory_describe(ep->c, t->data, t->bytes);
	if (!t->remote.shared_buffer && !comm_cma_works(ep->c))
		return false;
	t->number = ++o->offered;
	if (o->oldest < 0)
		o->oldest = transfer;
	return true;
}

static bool is_taken(const struct rendezvous *h, uint32_t number)
{
	return (int32_t)(atomic_load(&h->taken) - number) >= 0;
}

void comm_rendezvous_reap(struct endpoint *ep)
{
	struct rendezvous_end *o = &ep->rendezvous;
	const struct transfer *all = ep->c->exchange.transfers;
	while (o->oldest >= 0 && is_taken(o->tx, all[o->oldest].number)) {
		do
			o->oldest = all[o->oldest].next;
		while (o->oldest >= 0 && all[o->oldest].delivery != DELIVER_REMOTE);
	}
}

static bool write_chunk(struct endpoint *ep, const struct remote_buffer *to, char *data,
			struct chunk_range p)
{
	char *base = comm_peer_memory_map(ep->c, ep->peer, to, p.at + p.bytes);
	if (base) {
		memcpy(base + p.at, data + p.at, p.bytes);
		return true;
	}
	struct iovec here = { data + p.at, p.bytes };
	struct iovec there = { (void *)(uintptr_t)(to->address + p.at), p.bytes };
	pid_t pid = ep->c->world->peers[ep->c->members[ep->peer]].pid;
	return process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)p.bytes;
}

/* Whether the process still exists. Its pid alone does not show this, because it could be
 * reused. */
static bool is_peer_alive(const struct endpoint *ep)
{
	struct pollfd p = { .fd = ep->c->world->peers[ep->c->members[ep->peer]].pidfd,
			    .events = POLLIN };
	return poll(&p, 1, 0) == 0;
}

void comm_rendezvous_help(struct endpoint *ep, bool *moved)
{
	struct rendezvous_end *o = &ep->rendezvous;
	if (o->oldest < 0)
		return;
	const struct transfer *t = &ep->c->exchange.transfers[o->oldest];
	uint64_t chunk, now = atomic_load(&o->tx->claim);
	if (o->cannot_write || now >> 32 != t->number || (uint32_t)now >= chunk_count(t->bytes) ||
	    !is_peer_alive(ep))
		return;
	atomic_store(&o->tx->writing, 1);
	if (claim_chunk(o->tx, t->number, t->bytes, &chunk)) {
		*moved = true;
		if (!write_chunk(ep, &o->tx->to, t->data, find_chunk(t->bytes, chunk))) {
			o->cannot_write = true;
			atomic_store(&o->tx->left, (uint32_t)chunk + 1);
		}
	}
	atomic_store(&o->tx->writing, 0);
	comm_ring_wake_peer(ep);
}

/* --- The receiver --- */

static void open_chunks(struct endpoint *ep, struct transfer *t)
{
	struct rendezvous *h = ep->rendezvous.rx;
	h->to = peer_memory_describe(ep->c, t->data, t->bytes);
	atomic_store(&h->left, 0);
	atomic_store(&h->claim, (uint64_t)t->number << 32);
	ep->rendezvous.open = true;
	comm_ring_wake_peer(ep);
}

static void close_chunks(struct endpoint *ep)
{
	struct rendezvous_end *o = &ep->rendezvous;
	atomic_exchange(&o->rx->claim, (uint64_t)o->begun << 32 | CLOSED);
}

static int fetch_part(struct endpoint *ep, struct transfer *t, struct chunk_range p, bool *moved,
		      struct err *e)
{
	*moved = true;
	return comm_peer_memory_read(ep->c, ep->peer, &t->remote, p.at, t->data + p.at, p.bytes, e);
}

/* 1: all chunks have been copied; 0: not yet; -1: error. */
static int fetch_chunk(struct endpoint *ep, struct transfer *t, bool *moved, struct err *e)
{
	struct rendezvous *h = ep->rendezvous.rx;
	uint64_t chunk;
	uint32_t left;
	if (chunk_count(t->bytes) == 1)
		return fetch_part(ep, t, (struct chunk_range){ 0, t->bytes }, moved, e) ? -1 : 1;
	if (!ep->rendezvous.open)
		open_chunks(ep, t);
	if (claim_chunk(h, t->number, t->bytes, &chunk))
		return fetch_part(ep, t, find_chunk(t->bytes, chunk), moved, e);
	if (atomic_load(&h->writing))
		return 0;
	left = atomic_exchange(&h->left, 0);
	if (left && left <= chunk_count(t->bytes) &&
	    fetch_part(ep, t, find_chunk(t->bytes, left - 1), moved, e))
		return -1;
	ep->rendezvous.open = false;
	return 1;
}

int comm_rendezvous_fetch(struct endpoint *ep, struct transfer *t, bool *moved, struct err *e)
{
	struct rendezvous_end *o = &ep->rendezvous;
	if (!t->begun) {
		t->number = ++o->begun;
		t->begun = true;
	}
	if (!t->fetched) {
		int rc = fetch_chunk(ep, t, moved, e);
		if (rc <= 0)
			return rc;
		t->fetched = true;
	}
	/* The order matters: if the sender still existed after the last byte, that byte was
	 * correct. Otherwise the sender counts as absent. */
	close_chunks(ep);
	if (atomic_load(&ep->ring.line->state) != SEG_HERE)
		return 0;
	atomic_store(&o->rx->taken, t->number);
	comm_ring_wake_peer(ep);
	return 1;
}

void comm_rendezvous_close(struct endpoint *ep)
{
	struct rendezvous_end *o = &ep->rendezvous;
	o->oldest = -1;
	if (!o->rx || !o->open)
		return;
	close_chunks(ep);
	for (int64_t until = clock_ns() + GRACE_NS;
	     atomic_load(&o->rx->writing) && clock_ns() < until;) {
		if (!is_peer_alive(ep))
			break;
		sched_yield();
	}
	o->open = false;
}
