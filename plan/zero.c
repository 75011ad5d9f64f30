#include "plan/zero.h"

static const struct zero_policy policies[] = {
	{ .state = false, .grads = false, .params = false },
	{ .state = true, .grads = false, .params = false },
	{ .state = true, .grads = true, .params = false },
	{ .state = true, .grads = true, .params = true },
};

enum zero_class zero_class(enum unit_kind kind)
{
	return kind == UNIT_EXPERTS ? ZERO_EXPERTS : ZERO_DENSE;
}

const struct zero_policy *zero_policy(int stage, const struct zero_cut *cut)
{
	return &policies[cut->shards > 1 ? stage : 0];
}

void zero_owned(int64_t n, int stage, const struct zero_cut *cut, int64_t *lo, int64_t *hi)
{
	*lo = 0;
	*hi = n;
	if (zero_policy(stage, cut)->state)
		catalogue_piece(n, cut->shards, cut->shard, lo, hi);
}

void zero_counted(int64_t n, int stage, const struct zero_cut *cut, int64_t *lo, int64_t *hi)
{
	int64_t own_lo, own_hi;
	zero_owned(n, stage, cut, &own_lo, &own_hi);
	catalogue_piece(own_hi - own_lo, cut->copies, cut->copy, lo, hi);
	*lo += own_lo;
	*hi += own_lo;
}

static int64_t overlap(int64_t lo, int64_t hi, int64_t from, int64_t to)
{
	lo = from > lo ? from : lo;
	hi = to < hi ? to : hi;
	return hi > lo ? hi - lo : 0;
}

int64_t zero_saved(const struct catalogue *c, int stage, const struct zero_cut cut[ZERO_CLASSES])
{
	int64_t saved = 0;
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		const struct unit *u = &c->units[p->unit];
		int64_t lo, hi, at = p->offset - u->lo;
		if (p->tied_copy || p->copy)
			continue;
		zero_counted(u->hi - u->lo, stage, &cut[zero_class(u->kind)], &lo, &hi);
		saved += overlap(at, at + p->count, lo, hi);
	}
	return saved;
}

void zero_memory(const struct model_shape *m, const struct share *s, int stage, const struct zero_cut cut[ZERO_CLASSES], int width,
		 struct zero_memory *out)
{
	struct zero_memory z = { 0 };
	for (int kind = 0; kind < ZERO_KINDS; kind++) {
		const struct zero_cut *c = &cut[zero_class(kind)];
		const struct zero_policy *policy = zero_policy(stage, c);
		int64_t n = catalogue_unit_elements(m, s, kind), lo, hi;
		int count = catalogue_unit_count(m, s, kind);
		zero_owned(n, stage, c, &lo, &hi);
		double whole = (double)n, own = (double)(hi - lo), buffers = count < ZERO_BUFFERS ? count : ZERO_BUFFERS;
		z.params += width * count * (policy->params ? own : whole);
		z.grads += (double)sizeof(float) * count * (policy->grads ? own : whole);
		z.gather += policy->params ? width * buffers * whole : 0;
		z.reduce += policy->grads ? (double)sizeof(float) * buffers * whole : 0;
		z.owned += count * own;
	}
	z.masters = width < (int)sizeof(float) ? (double)sizeof(float) * z.owned : 0;
	*out = z;
}
