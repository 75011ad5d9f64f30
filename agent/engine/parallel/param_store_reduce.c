#include "agent/engine/parallel/param_store_inner.h"

#include "base/clock.h"

/* --- Partial gradients -------------------------------------------------------------- */

/* The number of the unit's parameters from i on that are adjacent and partial over one group. */
static int count_partial(const struct param_store *s, const struct unit *u, int i)
{
	const struct param *p = &s->catalogue->params[u->first];
	int n = 0;
	while (i + n < u->n_params && p[i + n].partial && p[i + n].copies == p[i].copies)
		n++;
	return n;
}

/* grads: of the whole unit. The gaps between parameters hold zeros and are reduced along. */
static int reduce_partial(struct param_store *s, int unit, float *grads, struct err *e)
{
	const struct unit *u = &s->catalogue->units[unit];
	const struct param *p = &s->catalogue->params[u->first];
	if (!u->partial)
		return 0;
	double since = clock_s();
	for (int i = 0; i < u->n_params;) {
		int n = count_partial(s, u, i);
		if (n) {
			const struct param *last = &p[i + n - 1];
			float *at = grads + (p[i].offset - u->lo);
			size_t count = (size_t)(last->offset + last->count - p[i].offset);
			if (comm_all_reduce(param_store_partial_group(s, &p[i]), at, at, count,
					    COMM_F32, COMM_SUM, e))
				return -1;
		}
		i += n ? n : 1;
	}
	s->reduce_s += clock_s() - since;
	return 0;
}

/* --- Gradients that are whole until the end of the step --------------------------------- */

static struct comm_part scattered_part(const struct param_store *s, int unit)
{
	const struct unit_layout *h = &s->layouts[unit];
	float *whole = s->grads + h->grads;
	return (struct comm_part){ whole, whole + h->at, (size_t)h->block };
}

/* Sets s->parts to the blocks that the bucket's units are reduced to. */
static int list_scattered(struct param_store *s, const struct unit_bucket *b)
{
	for (int i = 0; i < b->n; i++)
		s->parts[i] = scattered_part(s, b->units[i]);
	return b->n;
}

/* Sets s->parts to the bucket's units, adjacent ones together. */
static int list_whole(struct param_store *s, const struct unit_bucket *b)
{
	int n = 0;
	for (int i = 0, lo, hi; i < b->n; n++) {
		for (lo = hi = b->units[i]; ++i < b->n;) {
			if (b->units[i] != lo - 1 && b->units[i] != hi + 1)
				break;
			lo = b->units[i] < lo ? b->units[i] : lo;
			hi = b->units[i] > hi ? b->units[i] : hi;
		}
		const struct unit_layout *l = &s->layouts[lo], *h = &s->layouts[hi];
		float *at = s->grads + l->grads;
		s->parts[n] = (struct comm_part){ at, at,
						  (size_t)(h->grads + h->whole - l->grads) };
	}
	return n;
}

static int start_bucket(struct param_store *s, const struct replica_groups *r,
			const struct unit_bucket *b, struct err *e)
{
	struct comm_request **req = &s->sums[s->n_sums];
	if (r->policy->state)
		return comm_reduce_scatter_coalesced_start(r->shard, s->parts, list_scattered(s, b),
							   COMM_F32, COMM_SUM, req, e);
	return comm_all_reduce_coalesced_start(r->copies, s->parts, list_whole(s, b), COMM_F32,
					       COMM_SUM, req, e);
}

static int reduce_bucket(struct param_store *s, struct replica_groups *r, struct err *e)
{
	const struct unit_bucket b = r->complete;
	param_store_bucket_empty(&r->complete);
	for (int i = 0; i < b.n; i++)
		if (reduce_partial(s, b.units[i], s->grads + s->layouts[b.units[i]].grads, e))
			return -1;
	if (!b.n || (!r->policy->state && !r->copies))
		return 0;
	if (start_bucket(s, r, &b, e))
		return -1;
	s->n_sums++;
	return s->overlap ? 0 : param_store_wait_request(&s->sums[s->n_sums - 1], &s->reduce_s, e);
}

int param_store_reduce_complete(struct param_store *s, struct err *e)
{
	for (int i = 0; i < ZERO_CLASSES; i++)
		if (reduce_bucket(s, &s->replicas[i], e))
			return -1;
	return 0;
}

static int add_complete(struct param_store *s, int unit, struct err *e)
{
	struct replica_groups *r = &s->replicas[param_store_class(s, unit)];
	param_store_bucket_add(s, &r->complete, unit);
	return param_store_bucket_full(r, &r->complete) ? reduce_bucket(s, r, e) : 0;
}

/* --- Gradients that are reduced after each micro-batch -------------------------------- */

static void add_sum(struct param_store *s, const struct unit_layout *h, float *owned,
		    const float *sum)
{
	if (h->summed)
		s->ops->accumulate(s->backend, owned, sum, h->hi - h->lo);
	else if (h->hi > h->lo)
		backend_copy(s->backend, owned, sum, (size_t)(h->hi - h->lo) * sizeof *sum);
}

int param_store_add_scattered(struct param_store *s, struct unit_buffer *t, struct err *e)
{
	if (!t->scattered)
		return 0;
	struct unit_layout *h = &s->layouts[t->unit];
	float *owned = param_store_grad(s, t->unit), *sum = (float *)t->data + h->at;
	t->unit = -1;
	t->scattered = false;
	if (param_store_wait_request(&t->req, &s->reduce_s, e))
		return -1;
	if (!s->repeats)
		add_sum(s, h, owned, sum);
	h->summed = true;
	return 0;
}

static struct unit_buffers *pool_of(struct param_store *s, int unit)
{
	return &s->scatters[s->catalogue->units[unit].kind];
}

/* The buffer that is open for the unit's gradients. NULL: none. */
static struct unit_buffer *open_buffer(const struct param_store *s, int unit)
{
	const struct unit_buffers *p = &s->scatters[s->catalogue->units[unit].kind];
	for (int i = 0; i < p->n; i++)
		if (p->slots[i].holds && p->slots[i].unit == unit)
			return (struct unit_buffer *)&p->slots[i];
	return NULL;
}

float *param_store_open_grads(const struct param_store *s, int unit)
{
	if (!param_store_replicas(s, unit)->policy->grads)
		return s->grads + s->layouts[unit].grads;
	const struct unit_buffer *t = open_buffer(s, unit);
	return t ? (float *)t->data : NULL;
}

/* Whether the parameters of both units have the same places, so that what is zero between them and
 * behind them is the same. */
static bool same_places(const struct param_store *s, int a, int b)
{
	const struct unit *u = &s->catalogue->units[a], *v = &s->catalogue->units[b];
	bool same = u->n_params == v->n_params && s->layouts[a].whole == s->layouts[b].whole;
	for (int i = 0; same && i < u->n_params; i++) {
		const struct param *p = &s->catalogue->params[u->first + i],
				   *q = &s->catalogue->params[v->first + i];
		same = p->offset - u->lo == q->offset - v->lo && p->count == q->count;
	}
	return same;
}

/* The unit's own buffer, so that passes that are replayed find it at the same address, or another
 * one if that is open. Units next to each other take turns. NULL: all are open. */
static struct unit_buffer *free_buffer(struct param_store *s, int unit)
{
	struct unit_buffers *p = pool_of(s, unit);
	for (int i = 0; i < p->n; i++) {
		struct unit_buffer *t = &p->slots[(s->layouts[unit].nth + i) % p->n];
		if (!t->holds)
			return t;
	}
	return NULL;
}

/* The buffer for this micro-batch's gradients of the unit. A new one has no contributions, and is
 * zeroed only where it may have others' between and behind this unit's parameters. */
static struct unit_buffer *grad_buffer_of(struct param_store *s, int unit, struct err *e)
{
	struct unit_buffer *best = open_buffer(s, unit);
	if (best)
		return best;
	best = free_buffer(s, unit);
	if (!best) {
		err_set(e, ERR_INTERNAL,
			"param_store: gradients of %d units of the kind of unit %d are already "
			"open",
			pool_of(s, unit)->n, unit);
		return NULL;
	}
	if (param_store_add_scattered(s, best, e))
		return NULL;
	if (best->laid >= 0 && !same_places(s, best->laid, unit) && !s->repeats)
		backend_zero(s->backend, best->data,
			     (size_t)s->layouts[unit].whole * sizeof(float));
	param_store_unset(s, unit);
	best->unit = best->laid = unit;
	best->holds = 1;
	return best;
}

static int scatter_micro(struct param_store *s, int unit, struct err *e)
{
	struct unit_buffer *t = grad_buffer_of(s, unit, e);
	if (!t)
		return -1;
	param_store_zero_unset(s, unit);
	t->holds = 0;
	t->scattered = true;
	s->late = t;
	if (reduce_partial(s, unit, (float *)t->data, e))
		return -1;
	if (s->overlap)
		return s->defers ? 0 : param_store_start_late(s, e);
	return param_store_start_late(s, e) || param_store_add_scattered(s, t, e) ? -1 : 0;
}

int param_store_start_late(struct param_store *s, struct err *e)
{
	struct unit_buffer *t = s->late;
	s->late = NULL;
	if (!t)
		return 0;
	const struct unit_layout *h = &s->layouts[t->unit];
	float *whole = (float *)t->data;
	return comm_reduce_scatter_start(param_store_replicas(s, t->unit)->shard, whole,
					 whole + h->at, (size_t)h->block, COMM_F32, COMM_SUM,
					 &t->req, e);
}

/* --- Calls of the model ----------------------------------------------------------------- */

static int check_open(const struct param_store *s, int unit, struct err *e)
{
	if (s->layouts[unit].reduced)
		return err_set(
			e, ERR_INTERNAL,
			"param_store: the gradients of unit %d are already complete in this step",
			unit);
	return 0;
}

int param_store_grads(struct param_store *s, int unit, float **grads, struct err *e)
{
	if (check_open(s, unit, e) || param_store_start_late(s, e))
		return -1;
	if (!param_store_replicas(s, unit)->policy->grads) {
		*grads = s->grads + s->layouts[unit].grads;
		return 0;
	}
	struct unit_buffer *t = grad_buffer_of(s, unit, e);
	if (!t)
		return -1;
	*grads = (float *)t->data;
	return 0;
}

int param_store_reduce(struct param_store *s, int unit, bool last, struct err *e)
{
	if (check_open(s, unit, e) || param_store_start_late(s, e))
		return -1;
	s->layouts[unit].reduced = last;
	if (param_store_replicas(s, unit)->policy->grads)
		return scatter_micro(s, unit, e);
	if (!last)
		return 0;
	param_store_zero_unset(s, unit);
	return add_complete(s, unit, e);
}
