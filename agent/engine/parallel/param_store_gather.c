#include "agent/engine/parallel/param_store_inner.h"

struct unit_buffer *param_store_find_buffer(struct unit_buffers *p, int unit)
{
	for (int i = 0; i < p->n; i++)
		if (p->slots[i].unit == unit)
			return &p->slots[i];
	return NULL;
}

int param_store_evict(struct param_store *s, struct unit_buffer *slot, struct err *e)
{
	slot->unit = -1;
	return param_store_wait_request(&slot->req, &s->gather_s, e);
}

static struct unit_buffers *pool_of(struct param_store *s, int unit)
{
	return &s->gathers[s->catalogue->units[unit].kind];
}

/* The buffer to gather into: the unit's own, or one that is not wanted, if the own one is in use or
 * wanted. Units next to each other take turns, and passes that are replayed find a unit at the same
 * address. spare: it must not be a buffer that is wanted. NULL: there is none. */
static struct unit_buffer *choose_buffer(struct param_store *s, int unit, bool spare)
{
	struct unit_buffers *p = pool_of(s, unit);
	struct unit_buffer *best = NULL;
	for (int i = 0; i < p->n; i++) {
		struct unit_buffer *t = &p->slots[(s->layouts[unit].nth + i) % p->n];
		if (t->holds || (spare && t->wanted))
			continue;
		if (!best || (best->wanted && !t->wanted))
			best = t;
	}
	return best;
}

static int start_gather(struct param_store *s, struct unit_buffer *t, int unit, struct err *e)
{
	const struct replica_groups *r = param_store_replicas(s, unit);
	if (param_store_evict(s, t, e) ||
	    comm_all_gather_start(r->shard, param_store_stored(s, unit), t->data,
				  (size_t)s->layouts[unit].block, s->type, &t->req, e))
		return -1;
	t->unit = unit;
	return 0;
}

static void clear_wanted(struct param_store *s)
{
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		for (int i = 0; i < s->gathers[kind].n; i++)
			s->gathers[kind].slots[i].wanted = false;
}

int param_store_prefetch(struct param_store *s, struct err *e)
{
	if (!s->overlap)
		return 0;
	clear_wanted(s);
	for (int i = 0; i < GATHERS_AHEAD; i++) {
		int unit = param_store_order_peek(&s->order, i);
		if (unit < 0)
			return 0;
		struct unit_buffer *t = param_store_find_buffer(pool_of(s, unit), unit);
		if (!t) {
			t = choose_buffer(s, unit, true);
			if (t && start_gather(s, t, unit, e))
				return -1;
		}
		if (t)
			t->wanted = true;
	}
	return 0;
}

int param_store_wait_params(struct param_store *s, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < s->catalogue->n_units; i++)
		if (param_store_wait_request(&s->layouts[i].publishing, &s->gather_s,
					     rc ? NULL : e))
			rc = -1;
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		for (int i = 0; i < s->gathers[kind].n; i++)
			if (param_store_wait_request(&s->gathers[kind].slots[i].req, &s->gather_s,
						     rc ? NULL : e))
				rc = -1;
	return rc;
}

static int whole_params(struct param_store *s, int unit, const void **params, struct err *e)
{
	const struct unit_layout *h = &s->layouts[unit];
	if (param_store_start_late(s, e) ||
	    param_store_wait_request(&s->layouts[h->bucket_first].publishing, &s->gather_s, e))
		return -1;
	*params = s->params + (size_t)h->params * s->width;
	return 0;
}

int param_store_acquire(struct param_store *s, int unit, const void **params, struct err *e)
{
	if (!param_store_replicas(s, unit)->policy->params)
		return whole_params(s, unit, params, e);
	struct unit_buffers *p = pool_of(s, unit);
	struct unit_buffer *t = param_store_find_buffer(p, unit);
	param_store_order_note(&s->order, unit);
	if (param_store_start_late(s, e))
		return -1;
	if (!t) {
		t = choose_buffer(s, unit, false);
		if (!t)
			return err_set(
				e, ERR_INTERNAL,
				"param_store: %d units of the kind of unit %d are already held",
				p->n, unit);
		if (start_gather(s, t, unit, e))
			return -1;
	}
	t->holds++;
	/* The next gathers start before the wait for this one. */
	if (param_store_prefetch(s, e) || param_store_wait_request(&t->req, &s->gather_s, e)) {
		t->holds--;
		return -1;
	}
	*params = t->data;
	return 0;
}

void param_store_release(struct param_store *s, int unit)
{
	struct unit_buffer *t = param_store_find_buffer(pool_of(s, unit), unit);
	if (!t || !t->holds || --t->holds || s->defers)
		return;
	/* The world is aborted after a failure, so the next call reports it. */
	param_store_prefetch(s, NULL);
}
