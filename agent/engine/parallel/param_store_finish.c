#include "agent/engine/parallel/param_store_inner.h"

#include "base/clock.h"

static int check_complete(const struct param_store *s, struct err *e)
{
	for (int i = 0; i < s->catalogue->n_units; i++)
		if (!s->layouts[i].reduced)
			return err_set(e, ERR_INTERNAL,
				       "param_store: the step ends, but the gradients of unit %d "
				       "are not complete",
				       i);
	return 0;
}

int param_store_wait_sums(struct param_store *s, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < s->n_sums; i++)
		if (param_store_wait_request(&s->sums[i], &s->reduce_s, rc ? NULL : e))
			rc = -1;
	s->n_sums = 0;
	return rc;
}

static int add_all_scattered(struct param_store *s, struct err *e)
{
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		for (int i = 0; i < s->scatters[kind].n; i++)
			if (param_store_add_scattered(s, &s->scatters[kind].slots[i], e))
				return -1;
	return 0;
}

/* The number of units from `unit` on whose owned gradients are adjacent and have the same
 * copies. */
static int count_adjacent(const struct param_store *s, int unit)
{
	int n = 1;
	while (unit + n < s->catalogue->n_units &&
	       param_store_replicas(s, unit + n) == param_store_replicas(s, unit) &&
	       param_store_grad(s, unit + n) ==
		       param_store_grad(s, unit + n - 1) + s->layouts[unit + n - 1].block)
		n++;
	return n;
}

/* If shards have copies, all-reduces the shards' sums over these. */
static int reduce_copies(struct param_store *s, struct err *e)
{
	for (int unit = 0, n; unit < s->catalogue->n_units; unit += n) {
		const struct replica_groups *r = param_store_replicas(s, unit);
		const struct unit_layout *lo = &s->layouts[unit], *hi;
		n = count_adjacent(s, unit);
		hi = &s->layouts[unit + n - 1];
		if (!r->policy->state || !r->copies)
			continue;
		float *at = param_store_grad(s, unit);
		size_t count = (size_t)(hi->owned + hi->block - lo->owned);
		if (comm_all_reduce_start(r->copies, at, at, count, COMM_F32, COMM_SUM,
					  &s->sums[s->n_sums], e))
			return -1;
		s->n_sums++;
	}
	return param_store_wait_sums(s, e);
}

static int reduce_tied(struct param_store *s, struct err *e)
{
	if (!s->groups.tied)
		return 0;
	const struct unit_layout *h = &s->layouts[s->tied];
	float *at = param_store_grad(s, s->tied);
	double since = clock_s();
	int rc = comm_all_reduce(s->groups.tied, at, at, (size_t)(h->hi - h->lo), COMM_F32,
				 COMM_SUM, e);
	s->reduce_s += clock_s() - since;
	return rc;
}

int param_store_finish(struct param_store *s, struct err *e)
{
	param_store_order_learn(&s->order);
	if (check_complete(s, e) || param_store_start_late(s, e) ||
	    param_store_reduce_complete(s, e) || param_store_wait_sums(s, e) ||
	    add_all_scattered(s, e) || reduce_copies(s, e) || reduce_tied(s, e) ||
	    param_store_wait_params(s, e))
		return -1;
	return 0;
}

void param_store_begin(struct param_store *s)
{
	for (int i = 0; i < s->catalogue->n_units; i++) {
		s->layouts[i].reduced = s->layouts[i].summed = false;
		param_store_unset(s, i);
	}
	param_store_order_rewind(&s->order);
}
