#include "agent/engine/parallel/param_store_inner.h"

#include <stdlib.h>

static int64_t clamp(int64_t x, int64_t lo, int64_t hi)
{
	return x < lo ? lo : x > hi ? hi : x;
}

/* The part of the parameter that this rank owns. count 0: none. */
static struct param_piece piece_of(const struct param_store *s, const struct param *p)
{
	const struct unit_layout *h = &s->layouts[p->unit];
	int64_t at = p->offset - s->catalogue->units[p->unit].lo; /* in the unit */
	int64_t lo = clamp(h->lo, at, at + p->count), hi = clamp(h->hi, at, at + p->count);
	struct param_piece piece = { .param = p, .first = lo - at, .count = hi - lo };
	if (hi <= lo)
		return (struct param_piece){ 0 };
	piece.master = param_store_master(s, p->unit) + (lo - h->lo);
	piece.grad = param_store_grad(s, p->unit) + (lo - h->lo);
	piece.at = h->owned + lo - h->lo;
	if (!p->tied_copy && p->copy == 0) {
		piece.count_lo = clamp(h->counted_lo, lo, hi) - lo;
		piece.count_hi = clamp(h->counted_hi, lo, hi) - lo;
	}
	return piece;
}

int param_store_build_pieces(struct param_store *s, struct err *e)
{
	s->pieces = calloc((size_t)s->catalogue->n + 1, sizeof *s->pieces);
	if (!s->pieces)
		return err_set(
			e, ERR_NOMEM,
			"param_store: no memory for a table of %d parameters; close other programs",
			s->catalogue->n);
	for (int i = 0; i < s->catalogue->n; i++) {
		struct param_piece piece = piece_of(s, &s->catalogue->params[i]);
		if (piece.count)
			s->pieces[s->n_pieces++] = piece;
	}
	return 0;
}

const struct param_piece *param_store_pieces(const struct param_store *s, int *n)
{
	*n = s->n_pieces;
	return s->pieces;
}

int param_store_settle(struct param_store *s, struct err *e)
{
	return param_store_wait_params(s, e);
}

const void *param_store_kept(const struct param_store *s, const struct param *p, int64_t *first,
			     int64_t *count)
{
	const struct unit_layout *h = &s->layouts[p->unit];
	int64_t at = p->offset - s->catalogue->units[p->unit].lo; /* in the unit */
	bool sharded = param_store_replicas(s, p->unit)->policy->params;
	int64_t lo = sharded ? clamp(h->lo, at, at + p->count) : at,
		hi = sharded ? clamp(h->hi, at, at + p->count) : at + p->count;
	*first = lo - at;
	*count = hi - lo;
	return hi <= lo ? NULL
			: s->params + (size_t)(h->params + lo - (sharded ? h->lo : 0)) * s->width;
}

const struct catalogue *param_store_catalogue(const struct param_store *s)
{
	return s->catalogue;
}

struct comm *param_store_shards(const struct param_store *s, enum unit_kind kind)
{
	const struct replica_groups *r = &s->replicas[zero_class(kind)];
	return r->policy->state ? r->shard : NULL;
}

struct comm *param_store_tp(const struct param_store *s)
{
	return s->groups.tp;
}

void param_store_shard_range(const struct param_store *s, const struct param *p, int shard,
			     int64_t *first, int64_t *count)
{
	const struct replica_groups *r = param_store_replicas(s, p->unit);
	int64_t at = p->offset - s->catalogue->units[p->unit].lo, lo, hi;
	catalogue_piece(s->layouts[p->unit].n, r->policy->state ? r->cut.shards : 1, shard, &lo,
			&hi);
	lo = clamp(lo, at, at + p->count);
	hi = clamp(hi, at, at + p->count);
	*first = lo - at;
	*count = hi - lo;
}

bool param_store_saves(const struct param_store *s, const struct param *p)
{
	const struct replica_groups *r = param_store_replicas(s, p->unit);
	return r->cut.shard == 0 && r->cut.copy == 0 && !p->tied_copy &&
	       (!s->groups.tp || comm_rank(s->groups.tp) == 0);
}

struct backend *param_store_backend(const struct param_store *s)
{
	return s->backend;
}

int64_t param_store_owned(const struct param_store *s)
{
	return s->owned;
}

float *param_store_owned_masters(const struct param_store *s)
{
	return param_store_master(s, 0);
}

float *param_store_owned_grads(const struct param_store *s)
{
	return param_store_grad(s, 0);
}
