#include "agent/engine/parallel/param_store_inner.h"

#include <stdlib.h>

/* The unit's elements, counted in the same way on every tp rank: all must group the same units. */
static int64_t weight_of(const struct param_store *s, int unit)
{
	const struct unit *u = &s->catalogue->units[unit];
	int64_t n = 0;
	for (int i = u->first; i < u->first + u->n_params; i++)
		n += s->catalogue->params[i].shape[0] * s->catalogue->params[i].shape[1];
	return n / (s->groups.tp ? comm_size(s->groups.tp) : 1);
}

/* Whole gradients are reduced in buckets over any group. Blocks of shards are operations of their
 * own, unit by unit, so a bucket of them saves something only if they are launched together. */
static int64_t size_of(const struct param_store *s, const struct replica_groups *r)
{
	if (!r->policy->state)
		return zero_bucket(!backend_on_host(s->backend), r->cut.copies);
	return comm_coalesces(r->shard) ? zero_bucket(true, r->cut.shards) : 0;
}

int param_store_open_buckets(struct param_store *s, struct err *e)
{
	size_t units = (size_t)s->catalogue->n_units + 1;
	s->parts = calloc(units, sizeof *s->parts);
	bool ok = s->parts;
	for (int i = 0; i < ZERO_CLASSES; i++) {
		struct replica_groups *r = &s->replicas[i];
		r->bucket = size_of(s, r);
		r->complete.units = calloc(units, sizeof *r->complete.units);
		r->changed.units = calloc(units, sizeof *r->changed.units);
		ok = ok && r->complete.units && r->changed.units;
	}
	return ok ? 0
		  : err_set(e, ERR_NOMEM,
			    "param_store: no memory for buckets of %zu units; close other programs",
			    units - 1);
}

void param_store_close_buckets(struct param_store *s)
{
	free(s->parts);
	for (int i = 0; i < ZERO_CLASSES; i++) {
		free(s->replicas[i].complete.units);
		free(s->replicas[i].changed.units);
	}
}

void param_store_bucket_add(const struct param_store *s, struct unit_bucket *b, int unit)
{
	b->units[b->n++] = unit;
	b->weight += weight_of(s, unit);
}

bool param_store_bucket_full(const struct replica_groups *r, const struct unit_bucket *b)
{
	return b->weight >= r->bucket;
}

void param_store_bucket_empty(struct unit_bucket *b)
{
	b->n = 0;
	b->weight = 0;
}
