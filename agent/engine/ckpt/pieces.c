#include "agent/engine/ckpt/pieces.h"

#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

/* A rank's box needs a part of a slice. */
struct demand {
	int64_t slice; /* in struct order */
	struct part cut;
	int rank, index;
};

struct demands {
	struct demand *list;
	int64_t n, room;
};

/* All slices of the manifest, tensor by tensor, sorted by their first dimension. */
struct order {
	struct slice_entry *entries;
	int64_t *first; /* of each tensor */
	int64_t *reach; /* the highest end of this slice and those before it in its tensor */
};

static int compare_starts(const void *a, const void *b)
{
	const struct manifest_slice *x = ((const struct slice_entry *)a)->slice,
				    *y = ((const struct slice_entry *)b)->slice;
	if (x->lo[0] != y->lo[0])
		return x->lo[0] < y->lo[0] ? -1 : 1;
	return x->lo[1] < y->lo[1] ? -1 : x->lo[1] > y->lo[1];
}

static void free_order(struct order *o)
{
	free(o->entries);
	free(o->first);
	free(o->reach);
}

static int no_memory(struct err *e, int64_t slices)
{
	return err_set(e, ERR_NOMEM, "no memory to plan the reading of %lld slices",
		       (long long)slices);
}

static int sort_slices(const struct manifest *m, struct order *out, struct err *e)
{
	int64_t n = 0;
	for (int64_t i = 0; i < m->n_tensors; i++)
		n += m->tensors[i].n;
	struct order o = { malloc((size_t)(n + 1) * sizeof *o.entries),
			   malloc((size_t)(m->n_tensors + 1) * sizeof *o.first),
			   malloc((size_t)(n + 1) * sizeof *o.reach) };
	if (!o.entries || !o.first || !o.reach) {
		free_order(&o);
		return no_memory(e, n);
	}
	n = 0;
	for (int64_t i = 0; i < m->n_tensors; i++) {
		const struct manifest_tensor *t = &m->tensors[i];
		struct slice_entry *at = o.entries + n;
		o.first[i] = n;
		for (int64_t k = 0; k < t->n; k++)
			at[k] = (struct slice_entry){ t, &t->slices[k] };
		qsort(at, (size_t)t->n, sizeof *at, compare_starts);
		for (int64_t k = 0; k < t->n; k++, n++)
			o.reach[n] = max_int64(at[k].slice->hi[0], k ? o.reach[n - 1] : 0);
	}
	o.first[m->n_tensors] = n;
	*out = o;
	return 0;
}

static struct part part_of(const struct slice_entry *s)
{
	return ckpt_part_of(s->tensor->dims, s->slice->lo, s->slice->hi);
}

static int add_demand(struct demands *d, const struct demand *one, struct err *e)
{
	if (d->n == d->room) {
		int64_t room = d->room ? 2 * d->room : 1024;
		struct demand *more = realloc(d->list, (size_t)room * sizeof *more);
		if (!more)
			return no_memory(e, room);
		d->list = more;
		d->room = room;
	}
	d->list[d->n++] = *one;
	return 0;
}

/* Adds a demand for each slice that the box touches. */
static int find_slices(const struct manifest *m, const struct order *o, const struct want *w,
		       struct demands *d, struct err *e)
{
	int dim = m->tensors[w->tensor].dims == 1; /* of a part: where dimension 0 is */
	int64_t lo = o->first[w->tensor], end = o->first[w->tensor + 1];
	for (int64_t hi = end; lo < hi;) {
		int64_t mid = lo + (hi - lo) / 2;
		if (o->reach[mid] <= w->box.lo[dim])
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < end && o->entries[lo].slice->lo[0] < w->box.hi[dim]; lo++) {
		struct part box = part_of(&o->entries[lo]);
		struct demand one = { .slice = lo, .rank = w->rank, .index = w->index };
		if (ckpt_part_cut(&box, &w->box, &one.cut) && add_demand(d, &one, e))
			return -1;
	}
	return 0;
}

static int compare_demands(const void *a, const void *b)
{
	const struct demand *x = a, *y = b;
	int parts = x->slice == y->slice ? ckpt_part_compare(&x->cut, &y->cut) : 0;
	if (x->slice != y->slice)
		return x->slice < y->slice ? -1 : 1;
	if (parts)
		return parts;
	return x->rank != y->rank ? x->rank - y->rank : x->index - y->index;
}

static bool same_group(const struct demand *a, const struct demand *b)
{
	return a->slice == b->slice && !ckpt_part_compare(&a->cut, &b->cut);
}

static int alloc_lists(struct pieces *p, int64_t demands, struct err *e)
{
	size_t n = (size_t)demands + 1;
	p->slices = calloc(n, sizeof *p->slices);
	p->groups = malloc(n * sizeof *p->groups);
	p->ranks = malloc(n * sizeof *p->ranks);
	p->own = malloc(n * sizeof *p->own);
	p->queue = malloc(n * sizeof *p->queue);
	p->queue_at = calloc((size_t)p->size + 1, sizeof *p->queue_at);
	return p->slices && p->groups && p->ranks && p->own && p->queue && p->queue_at
		       ? 0
		       : no_memory(e, demands);
}

/* Makes slices and groups of the sorted demands. */
static void fill_lists(struct pieces *p, const struct order *o, const struct demands *d)
{
	int64_t groups = 0, ranks = 0, own = 0;
	for (int64_t i = 0; i < d->n; i++) {
		const struct demand *x = &d->list[i], *last = i ? x - 1 : NULL;
		if (!last || last->slice != x->slice) {
			struct piece_slice *s = &p->slices[p->n_slices++];
			*s = (struct piece_slice){ .entry = o->entries[x->slice],
						   .box = part_of(&o->entries[x->slice]),
						   .group = groups,
						   .own = own };
			s->bytes = ckpt_slice_bytes(s->entry.slice);
		}
		if (!last || !same_group(last, x))
			p->groups[groups++] = (struct piece_group){ x->cut, ranks };
		if (!last || !same_group(last, x) || last->rank != x->rank)
			p->ranks[ranks++] = x->rank;
		if (x->rank == p->rank)
			p->own[own++] = (struct piece_own){ x->cut, x->index };
	}
	p->slices[p->n_slices] = (struct piece_slice){ .group = groups, .own = own };
	p->groups[groups].first = ranks;
}

int ckpt_pieces_init(struct pieces *p, const struct manifest *m, const struct wants *w, int rank,
		     int size, struct ckpt_provider *const *providers, int n_providers,
		     struct err *e)
{
	struct order o = { 0 };
	struct demands d = { 0 };
	*p = (struct pieces){ .rank = rank, .size = size };
	if (sort_slices(m, &o, e))
		return -1;
	int rc = 0;
	for (int64_t i = 0; i < w->n && !rc; i++)
		rc = find_slices(m, &o, &w->list[i], &d, e);
	if (!rc)
		rc = alloc_lists(p, d.n, e);
	if (!rc && d.n)
		qsort(d.list, (size_t)d.n, sizeof *d.list, compare_demands);
	if (!rc)
		fill_lists(p, &o, &d);
	free(d.list);
	free_order(&o);
	if (!rc)
		rc = ckpt_pieces_choose_readers(p, m->n_files, providers, n_providers, e);
	if (rc)
		ckpt_pieces_fini(p);
	return rc;
}

void ckpt_pieces_fini(struct pieces *p)
{
	free(p->slices);
	free(p->groups);
	free(p->ranks);
	free(p->own);
	free(p->queue);
	free(p->queue_at);
	*p = (struct pieces){ 0 };
}
