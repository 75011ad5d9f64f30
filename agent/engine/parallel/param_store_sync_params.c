#include "agent/engine/parallel/param_store_inner.h"

#include "base/philox.h"

/* The random key of (seed, parameter, step). */
static struct philox_key key_of(const struct param_store *s, const struct param *p, int64_t step)
{
	struct philox_key name = philox_key(s->seed, PHILOX_ROUND, philox_item(p->name));
	return philox_key((uint64_t)name.k[1] << 32 | name.k[0], PHILOX_ROUND, (uint64_t)step);
}

/* Rounds n masters. Offloaded masters pass through `stage` in the backend's memory. */
static void round_range(struct param_store *s, void *stored, const float *masters, int64_t n,
			float *stage, const struct philox_key *key, uint64_t first)
{
	for (int64_t i = 0, part; i < n; i += part) {
		const float *from = masters + i;
		part = !stage || n - i < ZERO_PUBLISHED ? n - i : ZERO_PUBLISHED;
		if (stage) {
			backend_put(s->backend, stage, from, (size_t)part * sizeof *stage);
			from = stage;
		}
		s->ops->fp32_to_storage(s->backend, (char *)stored + (size_t)i * s->width, from,
					part, key, first + (uint64_t)i);
	}
}

/* Random numbers are keyed by the element's number in the global tensor. If the box has a part of
 * each row, they are consecutive only inside a row. */
static void set_random(const struct param_store *s, const struct param_piece *piece, int64_t step,
		       struct update *u)
{
	const struct param *p = piece->param;
	int64_t width = p->hi[1] - p->lo[1], columns = p->shape[1];
	if (!piece->count)
		return;
	int64_t row = piece->first / width, column = piece->first % width;
	u->key = key_of(s, p, step);
	u->first = (uint64_t)((p->lo[0] + row) * columns + p->lo[1] + column);
	u->row = width;
	u->column = column;
	u->gap = columns - width;
}

static void *stored_of(const struct param_store *s, const struct param_piece *piece)
{
	int unit = piece->param->unit;
	return (char *)param_store_stored(s, unit) +
	       (size_t)(piece->master - param_store_master(s, unit)) * s->width;
}

void param_store_stored_form(const struct param_store *s, const struct param_piece *piece,
			     int64_t step, struct update *u)
{
	if (!s->masters)
		return;
	u->stored = stored_of(s, piece);
	u->random = s->stochastic;
	if (s->stochastic)
		set_random(s, piece, step, u);
}

void param_store_stored_done(struct param_store *s)
{
	s->fused = true;
}

static void round_piece(struct param_store *s, const struct param_piece *piece, float *stage,
			int64_t step)
{
	struct update u = { .count = piece->count };
	char *stored = stored_of(s, piece);
	set_random(s, piece, step, &u);
	for (int64_t i = 0, n; i < u.count; i += n) {
		uint64_t first = backend_update_row(&u, i, &n);
		round_range(s, stored + (size_t)i * s->width, piece->master + i, n, stage, &u.key,
			    first);
	}
}

/* Gaps between parameters, and the padding of blocks, are zero and stay zero. */
static void round_all(struct param_store *s, float *stage, int64_t step)
{
	for (int i = 0; s->stochastic && i < s->n_pieces; i++)
		round_piece(s, &s->pieces[i], stage, step);
	for (int unit = 0; !s->stochastic && unit < s->catalogue->n_units; unit++) {
		const struct unit_layout *h = &s->layouts[unit];
		round_range(s, param_store_stored(s, unit), param_store_master(s, unit),
			    h->hi - h->lo, stage, NULL, 0);
	}
}

static int round_masters(struct param_store *s, int64_t step, struct err *e)
{
	float *stage = NULL;
	if (param_store_masters_offloaded(s)) {
		stage = backend_alloc(s->backend, ZERO_PUBLISHED * sizeof *stage);
		if (!stage)
			return err_set(e, ERR_NOMEM,
				       "parameters: no memory for a buffer of %zu bytes for "
				       "offloaded masters; lower batch.micro",
				       ZERO_PUBLISHED * sizeof *stage);
	}
	round_all(s, stage, step);
	backend_free(s->backend, stage);
	return 0;
}

/* Empties all buffers of gathered parameters, which are outdated. */
static int evict_all(struct param_store *s, struct err *e)
{
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		for (int i = 0; i < s->gathers[kind].n; i++) {
			struct unit_buffer *t = &s->gathers[kind].slots[i];
			if (t->holds)
				return err_set(e, ERR_INTERNAL,
					       "param_store: unit %d is in use while its "
					       "parameters are published",
					       t->unit);
			if (param_store_evict(s, t, e))
				return -1;
		}
	return 0;
}

/* Gathers the owners' parameters of the units in the bucket. */
static int gather_bucket(struct param_store *s, struct replica_groups *r, struct err *e)
{
	const struct unit_bucket b = r->changed;
	param_store_bucket_empty(&r->changed);
	if (!b.n)
		return 0;
	for (int i = 0; i < b.n; i++) {
		struct unit_layout *h = &s->layouts[b.units[i]];
		h->bucket_first = b.units[0];
		s->parts[i] = (struct comm_part){ param_store_stored(s, b.units[i]),
						  s->params + (size_t)h->params * s->width,
						  (size_t)h->block };
	}
	struct comm_request **req = &s->layouts[b.units[0]].publishing;
	if (comm_all_gather_coalesced_start(r->shard, s->parts, b.n, s->type, req, e))
		return -1;
	return s->overlap ? 0 : param_store_wait_request(req, &s->gather_s, e);
}

static int gather_buckets(struct param_store *s, struct err *e)
{
	for (int i = 0; i < ZERO_CLASSES; i++)
		if (gather_bucket(s, &s->replicas[i], e))
			return -1;
	return 0;
}

/* If each replica holds the whole unit, it is gathered. Buckets end with a chunk, so that a pass
 * waits for those of its own chunk only. */
static int add_changed(struct param_store *s, int unit, struct err *e)
{
	const struct unit *u = &s->catalogue->units[unit];
	struct replica_groups *r = &s->replicas[param_store_class(s, unit)];
	if (unit && u[-1].chunk != u->chunk && gather_buckets(s, e))
		return -1;
	if (!r->policy->state || r->policy->params)
		return 0;
	param_store_bucket_add(s, &r->changed, unit);
	return param_store_bucket_full(r, &r->changed) ? gather_bucket(s, r, e) : 0;
}

uint64_t param_store_version(const struct param_store *s)
{
	return s->version;
}

int param_store_sync_params(struct param_store *s, int64_t step, struct err *e)
{
	s->version++;
	if (param_store_wait_params(s, e) || evict_all(s, e))
		return -1;
	if (s->masters && !s->fused && round_masters(s, step, e))
		return -1;
	s->fused = false;
	for (int unit = 0; unit < s->catalogue->n_units; unit++)
		if (add_changed(s, unit, e))
			return -1;
	if (gather_buckets(s, e))
		return -1;
	param_store_order_rewind(&s->order);
	return param_store_prefetch(s, e);
}
