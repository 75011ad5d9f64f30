#include "agent/engine/ckpt/memory/copies.h"

#include "agent/engine/ckpt/load/agree.h"

#include <stdlib.h>
#include <string.h>

/* --- Identity --- */

int ckpt_copy_identity(const struct manifest *m, int64_t file, const struct slice_index *index,
		       struct digest *out, struct err *e)
{
	const struct manifest_file *f = &m->files[file];
	int64_t first = index->first[file], end = index->first[file + 1];
	struct buf all = BUF_INIT;
	buf_add(&all, f->name, strlen(f->name) + 1);
	buf_add(&all, &f->size, sizeof f->size);
	buf_add(&all, &f->digest, sizeof f->digest);
	for (int64_t i = first; i < end; i++)
		buf_add(&all, &index->entries[i].slice->digest, sizeof(struct digest));
	int rc = 0;
	if (buf_failed(&all))
		rc = err_set(e, ERR_NOMEM, "%s: no memory to find its copies", f->name);
	else
		*out = ckpt_digest_of(all.data, all.len);
	buf_fini(&all);
	return rc;
}

static int identify(const struct manifest *part, struct digest *out, struct err *e)
{
	struct slice_index index;
	memset(out, 0, sizeof *out);
	if (part->n_files == 0)
		return 0;
	if (ckpt_slice_index_build(part, &index, e))
		return -1;
	int rc = ckpt_copy_identity(part, 0, &index, out, e);
	ckpt_slice_index_free(&index);
	return rc;
}

/* --- Gathering --- */

static int list_own(const struct ckpt_store *store, struct buf *out, struct err *e)
{
	struct store_copy copy;
	int owners = ckpt_store_owners(store);
	for (int owner = 0; owner < owners; owner++)
		for (int i = 0; ckpt_store_list(store, owner, i, &copy); i++) {
			struct copy_held h;
			memset(&h, 0, sizeof h);
			h.step = copy.part->state.step;
			h.generation = copy.part->generation;
			h.owner = owner;
			h.owners = copy.owners;
			if (identify(copy.part, &h.identity, e))
				return -1;
			buf_add(out, &h, sizeof h);
		}
	return buf_failed(out) ? err_set(e, ERR_NOMEM, "no memory for a list of copies") : 0;
}

static int compare_held(const void *a, const void *b)
{
	const struct copy_held *x = a, *y = b;
	int identity = memcmp(&x->identity, &y->identity, sizeof x->identity);
	if (identity)
		return identity;
	return x->rank != y->rank ? x->rank - y->rank : x->owner - y->owner;
}

/* Each entry is of the rank that has sent it. */
static int check_lists(struct copies *c, const size_t *counts, struct err *e)
{
	int64_t i = 0;
	for (int32_t rank = 0; i < c->n; rank++) {
		int64_t end = i + (int64_t)(counts[rank] / sizeof *c->list);
		for (; i < end; i++) {
			struct copy_held *h = &c->list[i];
			if (h->owner < 0 || h->owner >= h->owners)
				return err_set(e, ERR_PROTO,
					       "rank %d holds the copy of a shard that cannot be",
					       rank);
			h->rank = rank;
		}
	}
	return 0;
}

struct gathering {
	struct buf own;
	int64_t *bytes;
	size_t *counts;
};

static int gather_lists(struct comm *group, const struct ckpt_store *store, struct gathering *g,
			struct copies *out, int *culprit, struct err *e)
{
	size_t ranks = (size_t)comm_size(group), total = 0;
	struct err mine = ERR_INIT;
	g->bytes = malloc(ranks * sizeof *g->bytes);
	g->counts = malloc(ranks * sizeof *g->counts);
	int rc = store ? list_own(store, &g->own, &mine) : 0;
	if (!rc && (!g->bytes || !g->counts))
		rc = err_set(&mine, ERR_NOMEM, "no memory for the lists of %zu ranks", ranks);
	if (ckpt_agree(group, rc, &mine, culprit, e) ||
	    ckpt_agree_all(group, 0, &mine, (int64_t)g->own.len, g->bytes, culprit, e))
		return -1;
	for (size_t r = 0; r < ranks; r++)
		total += g->counts[r] = (size_t)g->bytes[r];
	out->n = (int64_t)(total / sizeof *out->list);
	out->list = malloc(total + 1);
	rc = out->list ? 0 : err_set(&mine, ERR_NOMEM, "no memory for %zu bytes of lists", total);
	if (ckpt_agree(group, rc, &mine, culprit, e))
		return -1;
	if (comm_all_gatherv(group, g->own.data, out->list, g->counts, COMM_U8, e))
		return -1;
	return check_lists(out, g->counts, e);
}

int ckpt_copies_gather(struct comm *group, const struct ckpt_store *store, struct copies *out,
		       int *culprit, struct err *e)
{
	struct gathering g = { .own = BUF_INIT };
	struct copies c = { 0 };
	int rc = gather_lists(group, store, &g, &c, culprit, e);
	buf_fini(&g.own);
	free(g.bytes);
	free(g.counts);
	if (rc) {
		ckpt_copies_fini(&c);
		return -1;
	}
	qsort(c.list, (size_t)c.n, sizeof *c.list, compare_held);
	*out = c;
	return 0;
}

void ckpt_copies_fini(struct copies *c)
{
	free(c->list);
	*c = (struct copies){ 0 };
}

int64_t ckpt_copies_of(const struct copies *c, const struct digest *identity,
		       const struct copy_held **first)
{
	int64_t lo = 0, end;
	for (int64_t hi = c->n; lo < hi;) {
		int64_t mid = lo + (hi - lo) / 2;
		if (memcmp(&c->list[mid].identity, identity, sizeof *identity) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (end = lo; end < c->n && ckpt_digest_equal(&c->list[end].identity, identity);)
		end++;
	*first = c->list + lo;
	return end - lo;
}

/* --- The newest state --- */

/* Newest first; within a state by owner, then by rank. */
static int compare_states(const void *a, const void *b)
{
	const struct copy_held *x = *(const struct copy_held *const *)a,
			       *y = *(const struct copy_held *const *)b;
	if (x->generation != y->generation)
		return x->generation > y->generation ? -1 : 1;
	if (x->step != y->step)
		return x->step > y->step ? -1 : 1;
	return x->owner != y->owner ? x->owner - y->owner : x->rank - y->rank;
}

static bool same_state(const struct copy_held *a, const struct copy_held *b)
{
	return a->step == b->step && a->generation == b->generation && a->owners == b->owners;
}

/* Keeps the first copy of each owner of the state that begins the list. Returns their number, and
 * sets *next to where the next state begins. */
static int first_copies(const struct copy_held **list, int64_t n, int64_t *next)
{
	const struct copy_held *head = list[0];
	int found = 0;
	int64_t i = 0;
	for (; i < n && same_state(list[i], head); i++)
		if (i == 0 || list[i]->owner != list[found - 1]->owner)
			list[found++] = list[i];
	*next = i;
	return found;
}

int ckpt_copies_newest(const struct copies *c, const struct copy_held ***owned, int *owners,
		       struct err *e)
{
	const struct copy_held **list = malloc(((size_t)c->n + 1) * sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for a list of copies");
	for (int64_t i = 0; i < c->n; i++)
		list[i] = &c->list[i];
	qsort(list, (size_t)c->n, sizeof *list, compare_states);
	for (int64_t at = 0, next; at < c->n; at += next) {
		int found = first_copies(list + at, c->n - at, &next);
		if (found != list[at]->owners)
			continue;
		memmove(list, list + at, (size_t)found * sizeof *list);
		*owned = list;
		*owners = found;
		return 0;
	}
	free(list);
	*owned = NULL;
	return 0;
}
