/* readers: chooses the rank that reads each slice. */
#include "agent/engine/ckpt/load/pieces.h"

#include "base/numbers.h"

#include <inttypes.h>
#include <stdlib.h>

enum { SLACK = 8, NOBODY = -1 };

struct readers {
	struct pieces *p;
	int64_t *load; /* bytes of each rank */
	int *of_file;  /* the last reader of each file */
	int *checker;  /* [providers][files] the first reader of each file */
	int64_t files;
	int64_t *order; /* of the slices: the largest ones first, then by index */
	int64_t share;  /* of each rank, in bytes, if all had the same */
};

/* Slices of a fair share's size and more are assigned first, so that none of them comes on top of an
 * otherwise even assignment. */
static int64_t rank_slice(const struct readers *r, int64_t slice)
{
	int64_t bytes = r->p->slices[slice].bytes;
	return bytes > r->share / SLACK ? bytes : 0;
}

static int compare_slices(const void *a, const void *b, void *arg)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	int64_t of_x = rank_slice(arg, x), of_y = rank_slice(arg, y);
	if (of_x != of_y)
		return of_x > of_y ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Whether a sorted list holds the rank. */
static bool is_among(const int *ranks, int n, int rank)
{
	for (int lo = 0, hi = n; lo < hi;) {
		int mid = lo + (hi - lo) / 2;
		if (ranks[mid] == rank)
			return true;
		if (ranks[mid] < rank)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

/* The least loaded rank of the list, or the file's reader if that one is hardly more loaded. */
static int choose(const struct readers *r, int64_t file, const int *ranks, int64_t n,
		  const int *holders, int n_holders, int best)
{
	for (int64_t i = 0; i < n; i++) {
		int rank = ranks[i];
		if (holders && !is_among(holders, n_holders, rank))
			continue;
		if (best == NOBODY) {
			best = rank;
			continue;
		}
		int64_t slack = best == r->of_file[file]   ? -(r->share / SLACK)
				: rank == r->of_file[file] ? r->share / SLACK
							   : 0;
		if (r->load[rank] < r->load[best] + slack)
			best = rank;
	}
	return best;
}

/* holders NULL: every rank. Prefers ranks that need the slice. */
static int choose_reader(const struct readers *r, int64_t slice, const int *holders, int n_holders)
{
	const struct piece_slice *s = &r->p->slices[slice];
	int64_t file = s->entry.slice->file;
	int best = NOBODY;
	for (int64_t i = s->group; i < (s + 1)->group; i++) {
		const struct piece_group *g = &r->p->groups[i];
		best = choose(r, file, r->p->ranks + g->first, g->n, holders, n_holders, best);
	}
	if (best == NOBODY)
		best = choose(r, file, holders, n_holders, NULL, 0, NOBODY);
	return best;
}

static int assign_slice(struct readers *r, int64_t slice, struct ckpt_provider *const *providers,
			int n_providers, struct err *e)
{
	struct piece_slice *s = &r->p->slices[slice];
	s->reader = NOBODY;
	for (int i = 0; i < n_providers && s->reader == NOBODY; i++) {
		const struct ckpt_provider *from = providers[i];
		const int *holders = NULL;
		int n = from->ops->holders ? from->ops->holders(from, &s->entry, &holders) : 0;
		if (from->ops->holders && n == 0)
			continue;
		s->provider = i;
		s->reader = choose_reader(r, slice, from->ops->holders ? holders : NULL, n);
	}
	if (s->reader == NOBODY)
		return err_set(e, ERR_CORRUPT,
			       "tensor %s: nothing holds its slice at row %" PRId64
			       ", column %" PRId64 "; use an earlier checkpoint",
			       s->entry.tensor->name, s->entry.slice->lo[0], s->entry.slice->lo[1]);
	int64_t file = s->entry.slice->file;
	int *checker = &r->checker[s->provider * r->files + file];
	if (*checker == NOBODY)
		*checker = s->reader;
	s->checks = *checker == s->reader;
	r->of_file[file] = s->reader;
	r->load[s->reader] += s->bytes;
	return 0;
}

/* Sorts the slices by reader, those of a reader by index. */
static void fill_queues(struct pieces *p)
{
	for (int64_t i = 0; i < p->n_slices; i++)
		p->queue_at[p->slices[i].reader + 1]++;
	for (int r = 0; r < p->size; r++)
		p->queue_at[r + 1] += p->queue_at[r];
	for (int64_t i = p->n_slices - 1; i >= 0; i--)
		p->queue[--p->queue_at[p->slices[i].reader + 1]] = i;
	for (int r = 0; r < p->size; r++)
		p->queue_at[r] = p->queue_at[r + 1];
	p->queue_at[p->size] = p->n_slices;
}

/* Counts the senders of the ranks that need a slice. last, senders: zeroed, of each rank. */
static void count_senders_of(struct pieces *p, const struct piece_slice *s, int *last, int *senders)
{
	for (int64_t i = s->group; i < (s + 1)->group; i++) {
		const struct piece_group *g = &p->groups[i];
		for (int64_t k = g->first; k < g->first + g->n; k++) {
			int rank = p->ranks[k];
			if (rank == s->reader || last[rank] == s->reader + 1)
				continue;
			last[rank] = s->reader + 1;
			p->most_senders = max_int(p->most_senders, ++senders[rank]);
		}
	}
}

static int assign_slices(struct readers *r, struct ckpt_provider *const *providers, int n_providers,
			 struct err *e)
{
	int64_t n = r->p->n_slices, total = 0;
	for (int64_t i = 0; i < r->files; i++)
		r->of_file[i] = NOBODY;
	for (int64_t i = 0; i < r->files * n_providers; i++)
		r->checker[i] = NOBODY;
	for (int64_t i = 0; i < n; i++) {
		r->order[i] = i;
		total += r->p->slices[i].bytes;
	}
	r->share = total / r->p->size;
	qsort_r(r->order, (size_t)n, sizeof *r->order, compare_slices, r);
	for (int64_t i = 0; i < n; i++)
		if (assign_slice(r, r->order[i], providers, n_providers, e))
			return -1;
	return 0;
}

int ckpt_pieces_choose_readers(struct pieces *p, int64_t n_files,
			       struct ckpt_provider *const *providers, int n_providers,
			       struct err *e)
{
	size_t size = (size_t)p->size;
	struct readers r = { .p = p,
			     .load = calloc(size, sizeof *r.load),
			     .of_file = malloc(((size_t)n_files + 1) * sizeof *r.of_file),
			     .checker = malloc(((size_t)n_files + 1) * (size_t)n_providers *
					       sizeof *r.checker),
			     .files = n_files,
			     .order = malloc(((size_t)p->n_slices + 1) * sizeof *r.order) };
	int *counts = calloc(2 * size, sizeof *counts);
	int rc = 0;
	if (!r.load || !r.of_file || !r.checker || !r.order || !counts)
		rc = err_set(e, ERR_NOMEM, "no memory to plan the reading of %" PRId64 " slices",
			     p->n_slices);
	if (!rc)
		rc = assign_slices(&r, providers, n_providers, e);
	if (!rc) {
		fill_queues(p);
		for (int64_t i = 0; i < p->n_slices; i++) /* reader by reader */
			count_senders_of(p, &p->slices[p->queue[i]], counts, counts + size);
	}
	free(counts);
	free(r.load);
	free(r.of_file);
	free(r.checker);
	free(r.order);
	return rc;
}
