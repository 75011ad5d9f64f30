#include "agent/engine/ckpt/load/rounds.h"

#include "agent/engine/ckpt/load/agree.h"
#include "base/numbers.h"

#include <limits.h>
#include <stdlib.h>

/* A part of a turn is digested and copied while it is in the processor's cache. */
enum { CHUNK = (1 << 20) / sizeof(float), AGREE_ROUNDS = 16 };

/* A turn of this rank that has been read. */
struct held {
	struct turn turn;
	float *data[TURN_SEGMENTS]; /* of each segment: in `buffer`, or in a box */
	float *buffer;
	bool full;
};

/* A message that this rank receives in a round. */
struct arrival {
	const struct piece_slice *slice;
	const struct part *cut;
	int64_t at, n;
	float *data;
	const struct piece_own *own; /* data is in this box; NULL: in the scratch memory */
};

/* What one round needs. */
struct sizes {
	int64_t ops, arrivals;
	int64_t scratch, gathered; /* elements */
};

struct rounds {
	struct comm *group;
	const struct pieces *p;
	struct landing *landing;
	struct ckpt_provider *const *providers;
	const struct ckpt_watch *watch;
	struct rounds_order *order;
	struct digester *digester;

	struct turn_cursor next; /* this rank's turn that is not read yet */
	struct held *held[2];
	int now; /* the index of the one that is sent next */

	/* of the current round */
	bool mine; /* this rank has a turn in it */
	struct comm_p2p *ops;
	struct arrival *arrivals;
	float *scratch, *gathered;
	struct sizes used, most;

	bool failed;
	struct err why;
};

static int rank_of(const struct rounds *r)
{
	return r->p->rank;
}

/* Whether this rank is in the group; its ranks are sorted. */
static bool is_in(const struct pieces *p, const struct piece_group *g)
{
	for (int64_t lo = g->first, hi = g->first + g->n; lo < hi;) {
		int64_t mid = lo + (hi - lo) / 2;
		if (p->ranks[mid] == p->rank)
			return true;
		if (p->ranks[mid] < p->rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

/* --- Memory --- */

static void measure_send(void *arg, const struct turn_message *m)
{
	struct rounds *r = arg;
	int64_t to = m->group->n - is_in(r->p, m->group);
	r->used.ops += to;
	if (to && !ckpt_part_is_run(&m->segment->slice->box, &m->group->cut))
		r->used.gathered += m->n;
}

static void measure_arrival(void *arg, const struct turn_message *m)
{
	struct rounds *r = arg;
	if (!is_in(r->p, m->group))
		return;
	r->used.ops++;
	r->used.arrivals++;
	r->used.scratch += m->n;
}

static void measure_turn(void *arg, const struct turn *t)
{
	struct rounds *r = arg;
	ckpt_turn_messages(r->p, t, t->reader == rank_of(r) ? measure_send : measure_arrival, r);
}

/* Goes through all rounds to learn what the largest one needs. */
static int measure_rounds(struct rounds *r, struct err *e)
{
	struct rounds_order *o;
	struct sizes *most = &r->most;
	if (ckpt_rounds_order_open(r->p, &o, e))
		return -1;
	for (;;) {
		r->used = (struct sizes){ 0 };
		if (!ckpt_rounds_order_next(o, measure_turn, r))
			break;
		most->ops = max_int64(most->ops, r->used.ops);
		most->arrivals = max_int64(most->arrivals, r->used.arrivals);
		most->scratch = max_int64(most->scratch, r->used.scratch);
		most->gathered = max_int64(most->gathered, r->used.gathered);
	}
	ckpt_rounds_order_close(o);
	return most->ops > INT_MAX ? err_set(e, ERR_UNSUPPORTED,
					     "too many parts of the checkpoint for one rank")
				   : 0;
}

/* Zeroed, so that a rank that fails never sends what was in the memory before. */
static void *take(int64_t n, size_t size)
{
	return calloc((size_t)n + 1, size);
}

static int alloc_held(struct rounds *r)
{
	int64_t first = r->p->queue_at[rank_of(r)], end = r->p->queue_at[rank_of(r) + 1], bytes = 0;
	for (int64_t q = first; q < end; q++)
		bytes += r->p->slices[r->p->queue[q]].bytes;
	int64_t most = min_int64(bytes, r->p->turn_bytes) / (int64_t)sizeof(float);
	for (int i = 0; i < 2; i++) {
		r->held[i] = calloc(1, sizeof *r->held[i]);
		if (!r->held[i] || !(r->held[i]->buffer = take(most, sizeof(float))))
			return -1;
	}
	return 0;
}

static int alloc_all(struct rounds *r, struct err *e)
{
	if (measure_rounds(r, e) || ckpt_rounds_order_open(r->p, &r->order, e))
		return -1;
	r->digester = ckpt_digester_open();
	r->ops = take(r->most.ops, sizeof *r->ops);
	r->arrivals = take(r->most.arrivals, sizeof *r->arrivals);
	r->scratch = take(r->most.scratch, sizeof *r->scratch);
	r->gathered = take(r->most.gathered, sizeof *r->gathered);
	if (alloc_held(r) || !r->digester || !r->ops || !r->arrivals || !r->scratch || !r->gathered)
		return err_set(
			e, ERR_NOMEM,
			"no memory for %lld bytes of buffers to load a checkpoint; close "
			"other programs",
			(long long)((r->most.scratch + r->most.gathered) * (int64_t)sizeof(float) +
				    2 * r->p->turn_bytes));
	return 0;
}

int ckpt_rounds_open(struct comm *group, const struct pieces *p, struct landing *landing,
		     struct ckpt_provider *const *providers, const struct ckpt_watch *watch,
		     struct rounds **out, struct err *e)
{
	struct rounds *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "no memory to load a checkpoint");
	*r = (struct rounds){ .group = group,
			      .p = p,
			      .landing = landing,
			      .providers = providers,
			      .watch = watch,
			      .next = ckpt_turn_begin(p, p->rank),
			      .why = ERR_INIT };
	if (alloc_all(r, e)) {
		ckpt_rounds_close(r);
		return -1;
	}
	*out = r;
	return 0;
}

void ckpt_rounds_close(struct rounds *r)
{
	if (!r)
		return;
	for (int i = 0; i < 2; i++) {
		if (r->held[i])
			free(r->held[i]->buffer);
		free(r->held[i]);
	}
	ckpt_rounds_order_close(r->order);
	ckpt_digester_close(r->digester);
	free(r->ops);
	free(r->arrivals);
	free(r->scratch);
	free(r->gathered);
	free(r);
}

/* --- Reading --- */

static int finish_slice(struct rounds *r, const struct piece_slice *s)
{
	const struct ckpt_provider *from = r->providers[s->provider];
	struct digest d = ckpt_digester_end(r->digester);
	return ckpt_digest_equal(&d, &s->entry.slice->digest)
		       ? 0
		       : from->ops->differs(from, &s->entry, &r->why);
}

/* own: the box that data is in; NULL: none. */
static int read_segment(struct rounds *r, const struct segment *g, float *data,
			const struct piece_own *own)
{
	const struct piece_slice *s = g->slice;
	struct ckpt_provider *from = r->providers[s->provider];
	if (g->first == 0) {
		if (from->ops->begin(from, &s->entry, s->checks, &r->why))
			return -1;
		ckpt_digester_start(r->digester);
	}
	for (int64_t i = 0; i < g->n; i += CHUNK) {
		int64_t at = g->first + i, n = min_int64(CHUNK, g->n - i);
		size_t bytes = (size_t)n * sizeof *data;
		if (from->ops->read(from, &s->entry, at * (int64_t)sizeof *data, data + i, bytes,
				    &r->why))
			return -1;
		ckpt_digester_add(r->digester, data + i, bytes);
		if (ckpt_landing_take(r->landing, s, NULL, own, &s->box, data + i, at, n, &r->why))
			return -1;
	}
	bool last = (g->first + g->n) * (int64_t)sizeof *data == s->bytes;
	return last ? finish_slice(r, s) : 0;
}

/* Reads this rank's next turn, if there is one and it is not read yet. After a failure it only says
 * where the turn's data would be. */
static void read_ahead(struct rounds *r, struct held *h)
{
	int64_t used = 0;
	if (h->full || !ckpt_turn_next(r->p, rank_of(r), &r->next, &h->turn))
		return;
	for (int i = 0; i < h->turn.n; i++) {
		const struct segment *g = &h->turn.segments[i];
		const struct piece_own *own;
		h->data[i] = ckpt_landing_place(r->landing, g->slice, &g->slice->box, g->first,
						&own);
		if (!own) {
			h->data[i] = h->buffer + used;
			used += g->n;
		}
		if (!r->failed && read_segment(r, g, h->data[i], own))
			r->failed = true;
	}
	h->full = true;
}

/* --- A round --- */

static void add_sends(void *arg, const struct turn_message *m)
{
	struct rounds *r = arg;
	const struct held *h = r->held[r->now];
	const struct segment *g = m->segment;
	const struct part *box = &g->slice->box, *cut = &m->group->cut;
	const float *data = h->data[g - h->turn.segments];
	bool run = ckpt_part_is_run(box, cut), others = m->group->n > is_in(r->p, m->group);
	if (run)
		data += ckpt_part_index(box, cut, m->at) - g->first;
	else if (others) {
		float *to = r->gathered + r->used.gathered;
		ckpt_part_copy(box, data, g->first, g->n, cut, to, m->at);
		r->used.gathered += m->n;
		data = to;
	}
	for (int64_t i = m->group->first; i < m->group->first + m->group->n; i++)
		if (r->p->ranks[i] != rank_of(r))
			r->ops[r->used.ops++] = (struct comm_p2p){ .send = true,
								   .source = data,
								   .count = (size_t)m->n,
								   .type = COMM_F32,
								   .peer = r->p->ranks[i] };
}

static void add_arrival(void *arg, const struct turn_message *m)
{
	struct rounds *r = arg;
	const struct piece_slice *s = m->segment->slice;
	if (!is_in(r->p, m->group))
		return;
	struct arrival *a = &r->arrivals[r->used.arrivals++];
	*a = (struct arrival){ .slice = s, .cut = &m->group->cut, .at = m->at, .n = m->n };
	a->data = ckpt_landing_place(r->landing, s, a->cut, a->at, &a->own);
	if (!a->own) {
		a->data = r->scratch + r->used.scratch;
		r->used.scratch += m->n;
	}
	r->ops[r->used.ops++] = (struct comm_p2p){
		.data = a->data, .count = (size_t)m->n, .type = COMM_F32, .peer = s->reader
	};
}

static void add_turn(void *arg, const struct turn *t)
{
	struct rounds *r = arg;
	if (t->reader == rank_of(r))
		r->mine = true;
	else
		ckpt_turn_messages(r->p, t, add_arrival, r);
}

/* Sends and receives, and reads the next turn meanwhile. */
static int move(struct rounds *r, struct err *e)
{
	struct comm_request *req = NULL;
	struct held *ahead = r->held[r->held[r->now]->full ? !r->now : r->now];
	if (!r->used.ops)
		return 0;
	if (ahead->full || r->next.queued == r->p->queue_at[rank_of(r) + 1])
		return comm_batch_send_recv(r->group, r->ops, (int)r->used.ops, e);
	if (comm_batch_send_recv_start(r->group, r->ops, (int)r->used.ops, &req, e))
		return -1;
	read_ahead(r, ahead);
	return comm_wait(req, e);
}

static void land(struct rounds *r)
{
	for (int64_t i = 0; i < r->used.arrivals && !r->failed; i++) {
		const struct arrival *a = &r->arrivals[i];
		if (ckpt_landing_take(r->landing, a->slice, a->cut, a->own, a->cut, a->data, a->at,
				      a->n, &r->why))
			r->failed = true;
	}
}

/* 1: done; 0: there is no further round; -1: the group has failed. */
static int run_round(struct rounds *r, struct err *e)
{
	r->used = (struct sizes){ 0 };
	r->mine = false;
	if (!ckpt_rounds_order_next(r->order, add_turn, r))
		return 0;
	if (r->mine) {
		read_ahead(r, r->held[r->now]);
		ckpt_turn_messages(r->p, &r->held[r->now]->turn, add_sends, r);
	}
	if (move(r, e))
		return -1;
	if (r->watch)
		r->watch->moved(r->watch->arg);
	land(r);
	if (r->mine) {
		r->held[r->now]->full = false;
		r->now = !r->now;
	}
	return 1;
}

int ckpt_rounds_run(struct rounds *r, int *culprit, struct err *e)
{
	*culprit = -1;
	for (int64_t round = 1;; round++) {
		int rc = run_round(r, e);
		if (rc < 0)
			return -1;
		if (rc && round % AGREE_ROUNDS)
			continue;
		if (ckpt_agree(r->group, r->failed ? -1 : 0, &r->why, culprit, e))
			return -1;
		if (!rc)
			return 0;
	}
}
