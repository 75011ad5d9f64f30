#include "libcomm/p2p/exchange.h"

#include "libcomm/shm/futex.h"
#include "libcomm/p2p/lanes.h"
#include "libcomm/shm/spin_wait.h"

#include <stdlib.h>
#include <string.h>

enum { FRAME_MAGIC = 0x4d53, PIECES = 32 };

void comm_exchange_begin(struct comm *c)
{
	c->exchange.count = 0;
}

/* Ranks that differ in these values would silently exchange wrong data. Messages have types of
 * their own. */
static uint16_t hash_call(const struct comm *c, const struct op *op)
{
	const struct op_signature *s = &c->sign;
	return op->kind == OP_P2P ? 0
				  : (uint16_t)((uint32_t)s->root * 0x9e3779b1u >> 16 ^ s->type ^
					       s->redop << 4);
}

/* Returns NULL on failure. The caller sets the address of the data. */
static struct transfer *add_transfer(struct comm *c, const struct op *op, bool send, int peer,
				     size_t bytes, struct err *e)
{
	if (c->exchange.count == c->exchange.room) {
		int room = c->exchange.room ? 2 * c->exchange.room : 16;
		struct transfer *more = realloc(c->exchange.transfers, (size_t)room * sizeof *more);
		if (!more) {
			err_set(e, ERR_NOMEM, "no memory for %d messages", room);
			return NULL;
		}
		c->exchange.transfers = more;
		c->exchange.room = room;
	}
	struct transfer *t = &c->exchange.transfers[c->exchange.count++];
	*t = (struct transfer){
		.send = send,
		.peer = peer,
		.next = -1,
		.bytes = bytes,
		.frame = { FRAME_MAGIC, (uint8_t)op->kind, DELIVER_STREAM,
			   op->kind == OP_P2P ? 0 : c->seq, bytes, hash_call(c, op) },
	};
	return t;
}

int comm_exchange_send(struct comm *c, const struct op *op, int peer, const void *data,
		       size_t bytes, struct err *e)
{
	struct transfer *t = add_transfer(c, op, true, peer, bytes, e);
	if (!t)
		return -1;
	t->source = data;
	return 0;
}

int comm_exchange_recv(struct comm *c, const struct op *op, int peer, void *data, size_t bytes,
		       struct err *e)
{
	struct transfer *t = add_transfer(c, op, false, peer, bytes, e);
	if (!t)
		return -1;
	t->data = data;
	return 0;
}

/* --- Queues --- */

/* Chooses how the data of a message is delivered. */
static void choose_delivery(struct endpoint *ep, int i)
{
	struct transfer *t = &ep->c->exchange.transfers[i];
	if (!t->send)
		t->delivery = comm_rendezvous_fits(ep, t->bytes) ? DELIVER_UNKNOWN : DELIVER_STREAM;
	else if (comm_rendezvous_offer(ep, i))
		t->delivery = t->frame.delivery = DELIVER_REMOTE;
}

static void queue_transfer(struct comm *c, int i, int *active)
{
	struct transfer *t = &c->exchange.transfers[i];
	struct endpoint *ep = &c->endpoints[t->peer];
	int *tail = t->send ? &ep->out_tail : &ep->in_tail;
	for (int k = 0; *tail < 0 && k < ep->lanes; k++)
		*(t->send ? &ep->lane[k].out : &ep->lane[k].in) = (struct cursor){ i, 0 };
	if (*tail >= 0)
		c->exchange.transfers[*tail].next = i;
	*tail = i;
	choose_delivery(ep, i);
	if (!ep->active) {
		ep->active = true;
		ep->next_active = *active;
		*active = t->peer;
	}
}

static void reset_endpoints(struct comm *c, int active)
{
	for (int r = active; r >= 0; r = c->endpoints[r].next_active) {
		struct endpoint *ep = &c->endpoints[r];
		comm_rendezvous_close(ep);
		ep->active = false;
		ep->out_tail = ep->in_tail = -1;
		for (int k = 0; k < ep->lanes; k++)
			ep->lane[k].out.at = ep->lane[k].in.at = -1;
	}
	c->exchange.count = 0;
}

/* Whether a lane has not finished, or the peer has not taken all messages. */
static bool is_unfinished(const struct endpoint *ep)
{
	if (ep->rendezvous.oldest >= 0)
		return true;
	for (int k = 0; k < ep->lanes; k++)
		if (ep->lane[k].out.at >= 0 || ep->lane[k].in.at >= 0)
			return true;
	return false;
}

/* --- Moving bytes --- */

static size_t frame_bytes(int lane)
{
	return lane == 0 ? sizeof(struct frame) : 0;
}

/* Bytes of a message on a lane, as far as they are known. */
static size_t lane_bytes(const struct transfer *t, const struct endpoint *ep, int lane)
{
	size_t data = t->delivery == DELIVER_UNKNOWN  ? 0
		      : t->delivery == DELIVER_REMOTE ? sizeof t->remote
						      : comm_lane_share(t->bytes, ep->lanes, lane);
	return frame_bytes(lane) + data;
}

/* The remaining pieces: of the frame, then of the rest. */
static int collect_pieces(struct transfer *t, const struct endpoint *ep, int lane, size_t done,
			  struct iovec *v, int most)
{
	int n = 0;
	size_t head = frame_bytes(lane), rest = done < head ? 0 : done - head;
	if (done < head)
		v[n++] = (struct iovec){ (char *)(t->send ? &t->frame : &t->got) + done,
					 head - done };
	if (t->delivery == DELIVER_STREAM)
		return n +
		       comm_lane_pieces(t->data, t->bytes, ep->lanes, lane, rest, v + n, most - n);
	if (t->delivery == DELIVER_REMOTE)
		v[n++] = (struct iovec){ (char *)&t->remote + rest, sizeof t->remote - rest };
	return n;
}

static int check_frame(struct comm *c, const struct transfer *t, struct err *e)
{
	const struct frame *want = &t->frame, *got = &t->got;
	char who[160];
	bool known = got->magic == FRAME_MAGIC && got->kind < OP_KIND_COUNT;
	bool due = got->kind == want->kind && got->seq == want->seq && got->bytes == want->bytes &&
		   got->call == want->call;
	if (known && due &&
	    got->delivery <= (t->delivery == DELIVER_UNKNOWN ? DELIVER_REMOTE : DELIVER_STREAM))
		return 0;
	if (!known || due)
		return err_set(e, ERR_PROTO, "%s sent an invalid message",
			       comm_group_rank_text(c, t->peer, who));
	return err_set(
		e, ERR_PROTO,
		"%s sent %llu bytes of %s number %u where %llu bytes of %s number %u%s were due; "
		"all ranks of a group must call the same operations in the same order",
		comm_group_rank_text(c, t->peer, who), (unsigned long long)got->bytes,
		comm_op_word(got->kind), got->seq, (unsigned long long)want->bytes,
		comm_op_word(want->kind), want->seq,
		got->call != want->call ? ", with another type, reduction or root," : "");
}

/* Called when the whole frame has moved. */
static int finish_frame(struct comm *c, struct transfer *t, struct err *e)
{
	if (t->send) {
		group_count_sent(c, t->bytes);
		return 0;
	}
	if (check_frame(c, t, e))
		return -1;
	t->delivery = t->got.delivery;
	return 0;
}

/* The pieces that move next over a lane: those of one message if it receives, of several if it
 * sends. */
static int gather_pieces(struct endpoint *ep, int lane, const struct cursor *k,
			 struct iovec v[PIECES])
{
	int n = 0;
	size_t done = k->done;
	for (int i = k->at; i >= 0 && n + 2 <= PIECES; done = 0) {
		struct transfer *t = &ep->c->exchange.transfers[i];
		n += collect_pieces(t, ep, lane, done, v + n, PIECES - n);
		i = t->send ? t->next : -1;
	}
	return n;
}

/* `got` bytes have moved. */
static int advance_cursor(struct endpoint *ep, int lane, struct cursor *k, size_t got,
			  struct err *e)
{
	while (k->at >= 0) {
		struct transfer *t = &ep->c->exchange.transfers[k->at];
		size_t head = frame_bytes(lane), left = lane_bytes(t, ep, lane) - k->done,
		       part = got < left ? got : left;
		bool before = k->done < head;
		k->done += part;
		got -= part;
		if (before && k->done >= head && finish_frame(ep->c, t, e))
			return -1;
		if (k->done < lane_bytes(t, ep, lane) ||
		    (!t->send && t->delivery == DELIVER_REMOTE))
			return 0;
		*k = (struct cursor){ t->next, 0 };
	}
	return 0;
}

/* Moves one direction of a lane as far as possible; sets *moved if anything moved. */
static int move_lane(struct comm *c, struct endpoint *ep, int lane, struct cursor *k, bool *moved,
		     struct err *e)
{
	while (k->at >= 0) {
		struct transfer *t = &c->exchange.transfers[k->at];
		if (k->done < lane_bytes(t, ep, lane)) {
			struct iovec v[PIECES];
			int n = gather_pieces(ep, lane, k, v);
			ssize_t got = (t->send ? ep->ops->put : ep->ops->get)(ep, lane, v, n, e);
			if (got <= 0)
				return (int)got;
			*moved = true;
			if (advance_cursor(ep, lane, k, (size_t)got, e))
				return -1;
			continue;
		}
		if (!t->send && t->delivery == DELIVER_REMOTE) {
			int rc = comm_rendezvous_fetch(ep, t, moved, e);
			if (rc <= 0)
				return rc;
			*moved = true;
		}
		*k = (struct cursor){ t->next, 0 };
	}
	return 0;
}

static int move_endpoint(struct comm *c, struct endpoint *ep, bool *moved, struct err *e)
{
	for (int k = 0; k < ep->lanes; k++)
		if (move_lane(c, ep, k, &ep->lane[k].out, moved, e) ||
		    move_lane(c, ep, k, &ep->lane[k].in, moved, e))
			return -1;
	if (ep->rendezvous.oldest >= 0)
		comm_rendezvous_reap(ep);
	return 0;
}

/* Checks every endpoint once. 1: something is left; 0: all done; -1: error. */
static int move_all(struct comm *c, int active, bool *moved, struct err *e)
{
	int left = 0;
	for (int r = active; r >= 0; r = c->endpoints[r].next_active) {
		struct endpoint *ep = &c->endpoints[r];
		if (move_endpoint(c, ep, moved, e))
			return -1;
		left |= is_unfinished(ep);
	}
	return left;
}

/* Messages to the rank itself: the k-th sent matches the k-th received and has its size
 * (comm_op_check). */
static void move_self(struct comm *c)
{
	int *out = &c->endpoints[c->rank].lane[0].out.at,
	    *in = &c->endpoints[c->rank].lane[0].in.at;
	while (*out >= 0 && *in >= 0) {
		const struct transfer *s = &c->exchange.transfers[*out],
				      *r = &c->exchange.transfers[*in];
		if (s->bytes)
			memmove(r->data, s->data, s->bytes);
		*out = s->next;
		*in = r->next;
	}
}

/* --- Waiting --- */

static void mark_absent(struct comm *c, int active)
{
	memset(c->wait.absent, 0, (size_t)c->size * sizeof *c->wait.absent);
	for (int r = active; r >= 0; r = c->endpoints[r].next_active)
		c->wait.absent[r] = is_unfinished(&c->endpoints[r]);
}

/* Sleeps in poll; false if nothing came. */
static bool sleep_in_poll(struct comm *c, int active)
{
	struct pollfd *p = c->exchange.polls;
	int n = 0;
	p[n++] = (struct pollfd){ .fd = c->wakeup.rx, .events = POLLIN };
	for (int r = active; r >= 0; r = c->endpoints[r].next_active) {
		const struct endpoint *ep = &c->endpoints[r];
		for (int k = 0; k < ep->lanes; k++)
			if ((ep->lane[k].out.at >= 0 || ep->lane[k].in.at >= 0) &&
			    ep->ops->poll(ep, k, &p[n]))
				n++;
	}
	int64_t ms = comm_group_sleep_ns(c) / 1000000;
	int ready = poll(p, (nfds_t)n, (int)ms + 1);
	if (ready > 0 && p[0].revents)
		comm_wakeup_drain(&c->wakeup);
	return ready > 0;
}

/* Announces that this rank sleeps, checks once more, and sleeps. *slept_out: nothing came for a
 * whole slice. */
static int sleep_or_move(struct comm *c, int active, bool *slept_out, struct err *e)
{
	struct seg_line *me = c->segment.head ? &c->segment.line[c->local[c->rank]] : NULL;
	uint32_t rings = 0;
	if (me) {
		rings = atomic_load(&me->doorbell);
		atomic_store(&me->sleeping, 1); /* see comm_ring_wake_peer */
	}
	bool moved = false;
	int left = move_all(c, active, &moved, e);
	if (left > 0 && !moved) {
		mark_absent(c, active);
		if (comm_group_check_wait(c, *slept_out, e))
			left = -1;
		else if (c->wait.suspect)
			*slept_out = true;
		else if (c->wakeup.rx >= 0)
			*slept_out = !sleep_in_poll(c, active);
		else {
			futex_wait(&me->doorbell, rings, comm_group_sleep_ns(c));
			*slept_out = atomic_load(&me->doorbell) == rings;
		}
	} else {
		c->wait.suspect = *slept_out = false;
	}
	if (me)
		atomic_store(&me->sleeping, 0);
	return left;
}

/* If this rank has nothing of its own to move, it helps its receivers. Before that, it lets other
 * ranks use the core. */
static bool help_receivers(struct comm *c, int active, const struct spin_wait *idle)
{
	bool moved = false;
	for (int r = active; spin_wait_began(idle) && !moved && r >= 0;
	     r = c->endpoints[r].next_active)
		comm_rendezvous_help(&c->endpoints[r], &moved);
	return moved;
}

static int run_endpoints(struct comm *c, int active, struct err *e)
{
	struct spin_wait idle = { 0 };
	bool slept_out = false;
	int left = 1;
	while (left > 0) {
		bool moved = false;
		left = world_failed(c->world) ? comm_world_error(c->world, e)
					      : move_all(c, active, &moved, e);
		if (moved || (left > 0 && help_receivers(c, active, &idle)))
			idle = (struct spin_wait){ 0 };
		else if (left > 0 && !spin_wait_again(&idle, c->world))
			left = sleep_or_move(c, active, &slept_out, e);
	}
	c->wait.suspect = false;
	return left;
}

int comm_exchange_run(struct comm *c, struct err *e)
{
	int self = -1, active = -1;
	for (int i = 0; i < c->exchange.count; i++)
		queue_transfer(c, i, c->exchange.transfers[i].peer == c->rank ? &self : &active);
	move_self(c);
	int rc = run_endpoints(c, active, e);
	reset_endpoints(c, self);
	reset_endpoints(c, active);
	return rc;
}
