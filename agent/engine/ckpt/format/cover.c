/* The proof of coverage: boxes that are disjoint, are inside their tensor and together have its
 * volume cover it exactly once. */
#include "agent/engine/ckpt/format/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef const struct manifest_slice slice;

static int by_start(const void *a, const void *b)
{
	slice *x = *(slice *const *)a, *y = *(slice *const *)b;
	if (x->lo[0] != y->lo[0])
		return x->lo[0] < y->lo[0] ? -1 : 1;
	return x->lo[1] < y->lo[1] ? -1 : x->lo[1] > y->lo[1];
}

static int by_end(const void *a, const void *b)
{
	slice *x = *(slice *const *)a, *y = *(slice *const *)b;
	return x->hi[0] < y->hi[0] ? -1 : x->hi[0] > y->hi[0];
}

/* The boxes that the current row crosses, sorted by their first column; they are disjoint, so this is
 * also the order of their ends. */
struct active {
	slice **boxes;
	int64_t n;
};

/* Returns the first index whose box starts at or after `column`. */
static int64_t place_of(const struct active *a, int64_t column)
{
	int64_t lo = 0, hi = a->n;
	while (lo < hi) {
		int64_t mid = lo + (hi - lo) / 2;
		if (a->boxes[mid]->lo[1] < column)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Returns NULL if the box fits, otherwise the box that it overlaps. */
static slice *enter(struct active *a, slice *s)
{
	int64_t at = place_of(a, s->lo[1]);
	if (at > 0 && a->boxes[at - 1]->hi[1] > s->lo[1])
		return a->boxes[at - 1];
	if (at < a->n && a->boxes[at]->lo[1] < s->hi[1])
		return a->boxes[at];
	memmove(a->boxes + at + 1, a->boxes + at, (size_t)(a->n - at) * sizeof *a->boxes);
	a->boxes[at] = s;
	a->n++;
	return NULL;
}

static void leave(struct active *a, slice *s)
{
	int64_t at = place_of(a, s->lo[1]);
	a->n--;
	memmove(a->boxes + at, a->boxes + at + 1, (size_t)(a->n - at) * sizeof *a->boxes);
}

/* Sweeps over the rows and fails at the first two boxes that overlap. */
static int check_disjoint(const struct manifest_tensor *t, slice **starts, slice **ends,
			  struct active *a, struct err *e)
{
	int64_t gone = 0;
	for (int64_t i = 0; i < t->n; i++) {
		while (gone < t->n && ends[gone]->hi[0] <= starts[i]->lo[0])
			leave(a, ends[gone++]);
		slice *s = starts[i], *other = enter(a, s);
		if (other)
			return err_set(e, ERR_CORRUPT,
				       "tensor %s: rows [%" PRId64 ", %" PRId64
				       ") × columns [%" PRId64 ", %" PRId64
				       ") are there twice: in files %" PRId64 " and %" PRId64,
				       t->name, s->lo[0], s->hi[0], s->lo[1], s->hi[1], other->file,
				       s->file);
	}
	return 0;
}

static int check_volume(const struct manifest_tensor *t, struct err *e)
{
	int64_t have = 0, want = t->shape[0] * t->shape[1];
	for (int64_t i = 0; i < t->n; i++)
		have += ckpt_slice_bytes(&t->slices[i]) / (int64_t)sizeof(float);
	if (have != want)
		return err_set(e, ERR_CORRUPT,
			       "tensor %s: %" PRId64 " of its %" PRId64 " elements are in no shard",
			       t->name, want - have, want);
	return 0;
}

static int prove_tensor(const struct manifest_tensor *t, slice **room, struct err *e)
{
	slice **starts = room, **ends = room + t->n;
	struct active a = { room + 2 * t->n, 0 };
	for (int64_t i = 0; i < t->n; i++)
		starts[i] = ends[i] = &t->slices[i];
	qsort(starts, (size_t)t->n, sizeof *starts, by_start);
	qsort(ends, (size_t)t->n, sizeof *ends, by_end);
	return check_disjoint(t, starts, ends, &a, e) ? -1 : check_volume(t, e);
}

static int prove_coverage(const struct manifest *m, struct err *e)
{
	int64_t most = 1;
	for (int64_t i = 0; i < m->n_tensors; i++)
		most = m->tensors[i].n > most ? m->tensors[i].n : most;
	slice **room = malloc((size_t)most * 3 * sizeof *room);
	if (!room)
		return err_set(e, ERR_NOMEM,
			       "no memory to prove the coverage of %" PRId64 " slices", most);
	int rc = 0;
	for (int64_t i = 0; i < m->n_tensors && !rc; i++)
		rc = prove_tensor(&m->tensors[i], room, e);
	free(room);
	return rc;
}

static int by_place(const void *a, const void *b)
{
	slice *x = *(slice *const *)a, *y = *(slice *const *)b;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int check_tiling(const struct manifest *m, slice **all, int64_t n, struct err *e)
{
	int64_t i = 0;
	for (int64_t f = 0; f < m->n_files; f++) {
		const struct manifest_file *file = &m->files[f];
		int64_t at = 0;
		for (; i < n && all[i]->file == f; i++) {
			if (all[i]->offset != at)
				return err_set(e, ERR_CORRUPT,
					       "file %s: a slice begins at byte %" PRId64
					       " of its buffer, not at %" PRId64,
					       file->name, all[i]->offset, at);
			at += ckpt_slice_bytes(all[i]);
		}
		if (at != file->size - file->header)
			return err_set(e, ERR_CORRUPT,
				       "file %s: its slices end at byte %" PRId64
				       " of a buffer of %" PRId64,
				       file->name, at, file->size - file->header);
	}
	return 0;
}

static int prove_tiling(const struct manifest *m, struct err *e)
{
	int64_t n = 0;
	for (int64_t i = 0; i < m->n_tensors; i++)
		n += m->tensors[i].n;
	slice **all = malloc((size_t)(n + 1) * sizeof *all);
	if (!all)
		return err_set(e, ERR_NOMEM, "no memory to prove the tiling of %" PRId64 " slices",
			       n);
	n = 0;
	for (int64_t i = 0; i < m->n_tensors; i++)
		for (int64_t j = 0; j < m->tensors[i].n; j++)
			all[n++] = &m->tensors[i].slices[j];
	qsort(all, (size_t)n, sizeof *all, by_place);
	int rc = check_tiling(m, all, n, e);
	free(all);
	return rc;
}

int ckpt_manifest_prove(const struct manifest *m, struct err *e)
{
	return prove_coverage(m, e) || prove_tiling(m, e) ? -1 : 0;
}
