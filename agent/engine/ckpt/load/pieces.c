#include "agent/engine/ckpt/load/pieces.h"

#include "base/list.h"
#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

/* A box that some ranks want, all of them the same. */
struct shared_box {
	const struct want *wants; /* by rank, then by index */
	int64_t n;
	int64_t ranks, n_ranks; /* in pieces.ranks */
};

struct shared_boxes {
	struct want *wants; /* sorted by box */
	struct shared_box *list;
	int64_t n;
};

/* A box needs a part of a slice. */
struct demand {
	int64_t slice; /* in struct order */
	struct part cut;
	int64_t box; /* in struct shared_boxes */
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
	struct demand *list = list_grow(d->list, d->n, &d->room, 1024, sizeof *list);
	if (!list)
		return no_memory(e, 2 * d->n);
	d->list = list;
	d->list[d->n++] = *one;
	return 0;
}

/* Adds a demand for each slice that the box touches. */
static int find_slices(const struct manifest *m, const struct order *o,
		       const struct shared_boxes *b, int64_t box, struct demands *d, struct err *e)
{
	const struct want *w = b->list[box].wants;
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
		struct part whole = part_of(&o->entries[lo]);
		struct demand one = { .slice = lo, .box = box };
		if (ckpt_part_cut(&whole, &w->box, &one.cut) && add_demand(d, &one, e))
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
	return x->box != y->box ? (x->box < y->box ? -1 : 1) : 0;
}

static bool same_group(const struct demand *a, const struct demand *b)
{
	return a->slice == b->slice && !ckpt_part_compare(&a->cut, &b->cut);
}

/* --- Boxes --- */

static int compare_wants(const void *a, const void *b)
{
	const struct want *x = a, *y = b;
	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	int box = ckpt_part_compare(&x->box, &y->box);
	if (box)
		return box;
	return x->rank != y->rank ? x->rank - y->rank : x->index - y->index;
}

static void free_boxes(struct shared_boxes *b)
{
	free(b->wants);
	free(b->list);
}

/* Finds the boxes that several ranks want, so that replicas cost no more than one rank. Fills the
 * plan's list of ranks. */
static int share_boxes(struct pieces *p, const struct wants *w, struct shared_boxes *out,
		       struct err *e)
{
	size_t n = (size_t)w->n + 1;
	struct shared_boxes b = { malloc(n * sizeof *b.wants), malloc(n * sizeof *b.list), 0 };
	p->n_ranks = 0;
	p->ranks = malloc(n * sizeof *p->ranks);
	if (!b.wants || !b.list || !p->ranks) {
		free_boxes(&b);
		return no_memory(e, w->n);
	}
	if (w->n)
		memcpy(b.wants, w->list, (size_t)w->n * sizeof *b.wants);
	qsort(b.wants, (size_t)w->n, sizeof *b.wants, compare_wants);
	for (int64_t i = 0; i < w->n; i++) {
		const struct want *x = &b.wants[i], *last = i ? x - 1 : NULL;
		bool same = last && last->tensor == x->tensor &&
			    !ckpt_part_compare(&last->box, &x->box);
		if (!same)
			b.list[b.n++] = (struct shared_box){ .wants = x, .ranks = p->n_ranks };
		struct shared_box *box = &b.list[b.n - 1];
		box->n++;
		if (same && last->rank == x->rank)
			continue;
		p->ranks[p->n_ranks++] = x->rank;
		box->n_ranks++;
	}
	*out = b;
	return 0;
}

/* --- The lists --- */

static int alloc_lists(struct pieces *p, int64_t demands, struct err *e)
{
	size_t n = (size_t)demands + 1;
	p->slices = calloc(n, sizeof *p->slices);
	p->groups = malloc(n * sizeof *p->groups);
	p->queue = malloc(n * sizeof *p->queue);
	p->queue_at = calloc((size_t)p->size + 1, sizeof *p->queue_at);
	return p->slices && p->groups && p->queue && p->queue_at ? 0 : no_memory(e, demands);
}

static int compare_ranks(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Several boxes have this part of the slice in common: the group gets a list of its own. */
static int join_ranks(struct pieces *p, struct piece_group *g, const struct shared_box *box,
		      struct err *e)
{
	int64_t n = g->n + box->n_ranks, kept = 0;
	int *ranks = realloc(p->ranks, (size_t)(p->n_ranks + n + 1) * sizeof *ranks);
	if (!ranks)
		return no_memory(e, n);
	p->ranks = ranks;
	int *list = ranks + p->n_ranks;
	memcpy(list, ranks + g->first, (size_t)g->n * sizeof *list);
	memcpy(list + g->n, ranks + box->ranks, (size_t)box->n_ranks * sizeof *list);
	qsort(list, (size_t)n, sizeof *list, compare_ranks);
	for (int64_t i = 0; i < n; i++)
		if (i == 0 || list[i] != list[kept - 1])
			list[kept++] = list[i];
	g->first = p->n_ranks;
	g->n = kept;
	p->n_ranks += kept;
	return 0;
}

/* Adds the boxes of this rank that the demand is for. */
static int add_own(struct pieces *p, const struct demand *d, const struct shared_box *box,
		   struct err *e)
{
	int64_t lo = 0;
	for (int64_t hi = box->n; lo < hi;) {
		int64_t mid = lo + (hi - lo) / 2;
		if (box->wants[mid].rank < p->rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < box->n && box->wants[lo].rank == p->rank; lo++) {
		struct piece_own *own = list_grow(p->own, p->n_own, &p->room_own, 256, sizeof *own);
		if (!own)
			return no_memory(e, 2 * p->n_own);
		p->own = own;
		p->own[p->n_own++] = (struct piece_own){ d->cut, box->wants[lo].index };
	}
	return 0;
}

/* Makes slices and groups of the sorted demands. */
static int fill_lists(struct pieces *p, const struct order *o, const struct shared_boxes *b,
		      const struct demands *d, struct err *e)
{
	int64_t groups = 0;
	for (int64_t i = 0; i < d->n; i++) {
		const struct demand *x = &d->list[i], *last = i ? x - 1 : NULL;
		const struct shared_box *box = &b->list[x->box];
		if (!last || last->slice != x->slice) {
			struct piece_slice *s = &p->slices[p->n_slices++];
			*s = (struct piece_slice){ .entry = o->entries[x->slice],
						   .box = part_of(&o->entries[x->slice]),
						   .group = groups,
						   .own = p->n_own };
			s->bytes = ckpt_slice_bytes(s->entry.slice);
		}
		if (!last || !same_group(last, x))
			p->groups[groups++] = (struct piece_group){ x->cut, box->ranks,
								    box->n_ranks };
		else if (join_ranks(p, &p->groups[groups - 1], box, e))
			return -1;
		if (add_own(p, x, box, e))
			return -1;
	}
	p->slices[p->n_slices] = (struct piece_slice){ .group = groups, .own = p->n_own };
	return 0;
}

static int list_demands(const struct manifest *m, const struct order *o,
			const struct shared_boxes *b, struct demands *d, struct err *e)
{
	for (int64_t i = 0; i < b->n; i++)
		if (find_slices(m, o, b, i, d, e))
			return -1;
	if (d->n)
		qsort(d->list, (size_t)d->n, sizeof *d->list, compare_demands);
	return 0;
}

int ckpt_pieces_init(struct pieces *p, const struct manifest *m, const struct wants *w, int rank,
		     int size, struct ckpt_provider *const *providers, int n_providers,
		     struct err *e)
{
	struct order o = { 0 };
	struct shared_boxes b = { 0 };
	struct demands d = { 0 };
	*p = (struct pieces){ .rank = rank, .size = size };
	int rc = sort_slices(m, &o, e) || share_boxes(p, w, &b, e) ||
				 list_demands(m, &o, &b, &d, e) || alloc_lists(p, d.n, e) ||
				 fill_lists(p, &o, &b, &d, e) ||
				 ckpt_pieces_choose_readers(p, m->n_files, providers, n_providers,
							    e)
			 ? -1
			 : 0;
	free(d.list);
	free_boxes(&b);
	free_order(&o);
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
