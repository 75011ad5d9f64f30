#include "libcomm/exchange.h"

#include "libcomm/futex.h"

#include <stdlib.h>
#include <string.h>

enum { FRAME_MAGIC = 0x4d535431 };

void exchange_begin(struct comm *c)
{
	c->transfer_count = 0;
}

static int add(struct comm *c, const struct op *op, bool send, int peer, void *data, size_t bytes, struct err *e)
{
	if (c->transfer_count == c->transfer_room) {
		int room = c->transfer_room ? 2 * c->transfer_room : 16;
		struct transfer *more = realloc(c->transfers, (size_t)room * sizeof *more);
		if (!more)
			return err_set(e, ERR_NOMEM, "no memory for %d messages", room);
		c->transfers = more;
		c->transfer_room = room;
	}
	c->transfers[c->transfer_count++] = (struct transfer){
		.send = send, .peer = peer, .next = -1, .data = data, .bytes = bytes,
		.frame = { FRAME_MAGIC, op->kind == OP_P2P ? 0 : c->seq, op->kind, bytes },
	};
	return 0;
}

int exchange_send(struct comm *c, const struct op *op, int peer, const void *data, size_t bytes, struct err *e)
{
	return add(c, op, true, peer, (void *)(uintptr_t)data, bytes, e);
}

int exchange_recv(struct comm *c, const struct op *op, int peer, void *data, size_t bytes, struct err *e)
{
	return add(c, op, false, peer, data, bytes, e);
}

/* --- Queues ----------------------------------------------------------------- */

static void enqueue(struct comm *c, int i, int *active)
{
	struct transfer *t = &c->transfers[i];
	struct link *l = &c->links[t->peer];
	struct queue *q = t->send ? &l->out : &l->in;
	if (q->head < 0)
		q->head = i;
	else
		c->transfers[q->tail].next = i;
	q->tail = i;
	if (!l->active) {
		l->active = true;
		l->next_active = *active;
		*active = t->peer;
	}
}

static void forget(struct comm *c, int active)
{
	for (int r = active; r >= 0; r = c->links[r].next_active) {
		struct link *l = &c->links[r];
		l->active = false;
		l->out = l->in = (struct queue){ -1, -1 };
	}
	c->transfer_count = 0;
}

/* --- Moving bytes ------------------------------------------------------------ */

/* What is left of a message: of its frame, then of its data. */
static int pieces(struct transfer *t, void *frame, struct iovec v[2])
{
	int n = 0;
	size_t head = sizeof t->frame;
	if (t->done < head)
		v[n++] = (struct iovec){ (char *)frame + t->done, head - t->done };
	size_t at = t->done < head ? 0 : t->done - head;
	if (at < t->bytes)
		v[n++] = (struct iovec){ t->data + at, t->bytes - at };
	return n;
}

static int check_frame(struct comm *c, const struct transfer *t, struct err *e)
{
	const struct frame *want = &t->frame, *got = &t->got;
	char who[160];
	if (!memcmp(want, got, sizeof *want))
		return 0;
	if (got->magic != FRAME_MAGIC || got->kind >= OP_KIND_COUNT)
		return err_set(e, ERR_PROTO, "%s sent what is no message", group_rank_text(c, t->peer, who));
	return err_set(e, ERR_PROTO, "%s sent %llu bytes of %s number %u where %llu bytes of %s number %u were due; "
		       "all ranks of a group must call the same operations in the same order",
		       group_rank_text(c, t->peer, who), (unsigned long long)got->bytes, op_word(got->kind), got->seq,
		       (unsigned long long)want->bytes, op_word(want->kind), want->seq);
}

/* Moves one queue as far as it goes; *moved when at all. */
static int move_queue(struct comm *c, struct link *l, struct queue *q, bool *moved, struct err *e)
{
	while (q->head >= 0) {
		struct transfer *t = &c->transfers[q->head];
		size_t all = sizeof t->frame + t->bytes;
		struct iovec v[2];
		int n = pieces(t, t->send ? &t->frame : &t->got, v);
		ssize_t got = (t->send ? l->ops->put : l->ops->get)(l, v, n, e);
		if (got < 0)
			return -1;
		if (got == 0)
			return 0;
		*moved = true;
		bool framed = t->done >= sizeof t->frame;
		t->done += (size_t)got;
		if (!t->send && !framed && t->done >= sizeof t->frame && check_frame(c, t, e) < 0)
			return -1;
		if (t->done < all)
			continue;
		if (t->send)
			atomic_fetch_add_explicit(&c->sent, t->bytes, memory_order_relaxed);
		q->head = t->next;
	}
	return 0;
}

/* One look at every link: 1 something is left, 0 all done, -1. */
static int move_all(struct comm *c, int active, bool *moved, struct err *e)
{
	int left = 0;
	for (int r = active; r >= 0; r = c->links[r].next_active) {
		struct link *l = &c->links[r];
		if (move_queue(c, l, &l->out, moved, e) < 0 || move_queue(c, l, &l->in, moved, e) < 0)
			return -1;
		left |= l->out.head >= 0 || l->in.head >= 0;
	}
	return left;
}

/* Messages to oneself: the k-th sent is the k-th received. */
static int move_self(struct comm *c, struct err *e)
{
	struct link *l = &c->links[c->rank];
	while (l->out.head >= 0 || l->in.head >= 0) {
		struct transfer *s = l->out.head >= 0 ? &c->transfers[l->out.head] : NULL;
		struct transfer *r = l->in.head >= 0 ? &c->transfers[l->in.head] : NULL;
		if (!s || !r || s->bytes != r->bytes)
			return err_set(e, ERR_USAGE, "a message from this rank to itself needs a send and a recv "
				       "of the same size in one group call");
		if (s->bytes)
			memmove(r->data, s->data, s->bytes);
		l->out.head = s->next;
		l->in.head = r->next;
	}
	return 0;
}

/* --- Waiting ------------------------------------------------------------------ */

static void mark_absent(struct comm *c, int active)
{
	memset(c->absent, 0, (size_t)c->size * sizeof *c->absent);
	for (int r = active; r >= 0; r = c->links[r].next_active)
		c->absent[r] = c->links[r].out.head >= 0 || c->links[r].in.head >= 0;
}

/* Sleeps in poll; false when nothing came. */
static bool sleep_in_poll(struct comm *c, int active)
{
	struct pollfd *p = c->polls;
	int n = 0;
	p[n++] = (struct pollfd){ .fd = c->bell.rx, .events = POLLIN };
	for (int r = active; r >= 0; r = c->links[r].next_active) {
		const struct link *l = &c->links[r];
		if ((l->out.head >= 0 || l->in.head >= 0) && l->ops->poll(l, &p[n]))
			n++;
	}
	int64_t ms = group_nap(c) / 1000000;
	int ready = poll(p, (nfds_t)n, (int)ms + 1);
	if (ready > 0 && p[0].revents)
		bell_hush(&c->bell);
	return ready > 0;
}

/* Says that it sleeps, looks once more, sleeps. *slept_out: nothing came for a whole slice. */
static int doze(struct comm *c, int active, bool *slept_out, struct err *e)
{
	struct seg_line *me = c->segment.head ? &c->segment.line[c->local[c->rank]] : NULL;
	uint32_t rings = 0;
	if (me) {
		rings = atomic_load(&me->doorbell);
		atomic_exchange(&me->sleeping, 1);
	}
	bool moved = false;
	int left = move_all(c, active, &moved, e);
	if (left > 0 && !moved) {
		mark_absent(c, active);
		if (group_patience(c, *slept_out, e) < 0)
			left = -1;
		else if (c->suspect)
			*slept_out = true;
		else if (c->bell.rx >= 0)
			*slept_out = !sleep_in_poll(c, active);
		else {
			futex_wait(&me->doorbell, rings, group_nap(c));
			*slept_out = atomic_load(&me->doorbell) == rings;
		}
	} else {
		c->suspect = *slept_out = false;
	}
	if (me)
		atomic_exchange(&me->sleeping, 0); /* not a store: that would hide what a peer's exchange released */
	return left;
}

static int run_links(struct comm *c, int active, struct err *e)
{
	/* A look at a socket is a system call. */
	int spins = c->bell.rx >= 0 ? c->world->spins / 64 : c->world->spins;
	bool slept_out = false;
	int left = 1;
	for (int idle = 0; left > 0;) {
		bool moved = false;
		left = move_all(c, active, &moved, e);
		if (left <= 0)
			break;
		if (moved)
			idle = 0;
		else if (idle++ < spins)
			cpu_relax();
		else
			left = doze(c, active, &slept_out, e);
	}
	c->suspect = false;
	return left;
}

int exchange_run(struct comm *c, struct err *e)
{
	int self = -1, active = -1;
	for (int i = 0; i < c->transfer_count; i++)
		enqueue(c, i, c->transfers[i].peer == c->rank ? &self : &active);
	int rc = move_self(c, e);
	if (rc == 0)
		rc = run_links(c, active, e);
	forget(c, self);
	forget(c, active);
	return rc;
}
