/* Which gradients hold contributions of this step, or, where they are reduced after each
 * micro-batch, of this micro-batch. What the others hold is old: the first contribution sets
 * them. */
#include "agent/engine/parallel/param_store_inner.h"

/* The first of the unit's parameters that ends after element `at` of the unit. */
static int find_param(const struct param_store *s, const struct unit *u, int64_t at)
{
	const struct param *p = s->catalogue->params;
	int lo = u->first, hi = u->first + u->n_params;
	while (lo < hi) {
		int middle = lo + (hi - lo) / 2;
		if (p[middle].offset - u->lo + p[middle].count <= at)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

/* The parameters [first, end) that a range overlaps. */
struct overlap {
	int first, end;
};

static struct overlap overlap_of(const struct param_store *s, int unit, const struct grad_range *r)
{
	const struct unit *u = &s->catalogue->units[unit];
	if (r->at < 0 || r->count <= 0)
		return (struct overlap){ 0, 0 };
	struct overlap o = { find_param(s, u, r->at), 0 };
	for (o.end = o.first; o.end < u->first + u->n_params; o.end++)
		if (s->catalogue->params[o.end].offset - u->lo >= r->at + r->count)
			break;
	return o;
}

static void zero_param(struct param_store *s, int unit, int i)
{
	const struct param *p = &s->catalogue->params[i];
	float *grads = param_store_open_grads(s, unit);
	if (s->repeats)
		return;
	backend_zero(s->backend, grads + (p->offset - s->catalogue->units[unit].lo),
		     (size_t)p->count * sizeof *grads);
}

/* A buffer that is not open has none when it is opened. */
bool param_store_has_grads(const struct param_store *s, int unit, const struct grad_range *r, int n)
{
	if (!param_store_open_grads(s, unit))
		return false;
	for (int i = 0; i < n; i++) {
		struct overlap o = overlap_of(s, unit, &r[i]);
		for (int j = o.first; j < o.end; j++)
			if (s->set[j])
				return true;
	}
	return false;
}

bool param_store_adds_grads(struct param_store *s, int unit, const struct grad_range *r, int n)
{
	bool adds = param_store_has_grads(s, unit, r, n);
	for (int i = 0; i < n; i++) {
		struct overlap o = overlap_of(s, unit, &r[i]);
		for (int j = o.first; j < o.end; j++) {
			if (adds && !s->set[j])
				zero_param(s, unit, j);
			s->set[j] = true;
		}
	}
	return adds;
}

void param_store_zero_unset(struct param_store *s, int unit)
{
	const struct unit *u = &s->catalogue->units[unit];
	for (int i = u->first; i < u->first + u->n_params; i++)
		if (!s->set[i]) {
			zero_param(s, unit, i);
			s->set[i] = true;
		}
}

void param_store_unset(struct param_store *s, int unit)
{
	const struct unit *u = &s->catalogue->units[unit];
	for (int i = u->first; i < u->first + u->n_params; i++)
		s->set[i] = false;
}
