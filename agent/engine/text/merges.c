#include "agent/engine/text/merges.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_WORD = 48 };
static const uint32_t NO_RANK = UINT32_MAX, NO_PLACE = UINT32_MAX;

struct merges_pair {
	int32_t left, right; /* left -1: the slot is free */
	uint32_t rank;
	int32_t becomes;
};

int text_merges_init(struct merges *m, size_t count, struct err *e)
{
	size_t n = 64;
	while (n < 2 * count)
		n *= 2;
	m->slots = malloc(n * sizeof *m->slots);
	if (!m->slots)
		return err_set(e, ERR_NOMEM, "no memory for %zu merges", count);
	memset(m->slots, 0xff, n * sizeof *m->slots);
	m->mask = n - 1;
	return 0;
}

void text_merges_fini(struct merges *m)
{
	free(m->slots);
	*m = (struct merges){ 0 };
}

static struct merges_pair *pair_of(const struct merges *m, int32_t left, int32_t right)
{
	uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) *
		     UINT64_C(0x9e3779b97f4a7c15);
	size_t i = (h ^ h >> 32) & m->mask;
	while (m->slots[i].left >= 0 && (m->slots[i].left != left || m->slots[i].right != right))
		i = (i + 1) & m->mask;
	return &m->slots[i];
}

void text_merges_put(struct merges *m, int32_t left, int32_t right, uint32_t rank, int32_t becomes)
{
	*pair_of(m, left, right) = (struct merges_pair){ left, right, rank, becomes };
}

/* Returns the pair's rank; NO_RANK: it is not merged. */
static uint32_t look_up(const struct merges *m, int32_t left, int32_t right, int32_t *becomes)
{
	const struct merges_pair *p = pair_of(m, left, right);
	*becomes = p->becomes;
	return p->left < 0 ? NO_RANK : p->rank;
}

static size_t apply_short(const struct merges *m, int32_t *symbols, size_t n)
{
	uint32_t rank[SHORT_WORD];
	int32_t becomes[SHORT_WORD];
	for (size_t i = 0; i + 1 < n; i++)
		rank[i] = look_up(m, symbols[i], symbols[i + 1], &becomes[i]);
	while (n > 1) {
		size_t best = 0;
		for (size_t i = 1; i + 1 < n; i++)
			if (rank[i] < rank[best])
				best = i;
		if (rank[best] == NO_RANK)
			break;
		symbols[best] = becomes[best];
		size_t behind = n - best - 2; /* symbols after the pair */
		memmove(symbols + best + 1, symbols + best + 2, behind * sizeof *symbols);
		memmove(rank + best, rank + best + 1, behind * sizeof *rank);
		memmove(becomes + best, becomes + best + 1, behind * sizeof *becomes);
		n--;
		if (best > 0)
			rank[best - 1] = look_up(m, symbols[best - 1], symbols[best],
						 &becomes[best - 1]);
		if (best + 1 < n)
			rank[best] = look_up(m, symbols[best], symbols[best + 1], &becomes[best]);
	}
	return n;
}

/* --- Long words: a list of symbols and a heap of (rank, place) --- */

static void heap_push(uint64_t *heap, size_t *n, uint64_t v)
{
	size_t i = (*n)++;
	for (; i && heap[(i - 1) / 2] > v; i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = v;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
	uint64_t least = heap[0], last = heap[--*n];
	size_t i = 0;
	for (size_t child; (child = 2 * i + 1) < *n; i = child) {
		if (child + 1 < *n && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= last)
			break;
		heap[i] = heap[child];
	}
	heap[i] = last;
	return least;
}

void text_merges_work_fini(struct merges_work *w)
{
	free(w->before);
	free(w->after);
	free(w->rank);
	free(w->becomes);
	free(w->heap);
	*w = (struct merges_work){ 0 };
}

/* The heap holds n - 1 pairs at first. Each of at most n - 1 merges removes one pair and adds two.
 */
static int work_grow(struct merges_work *w, size_t n, struct err *e)
{
	if (n <= w->cap)
		return 0;
	text_merges_work_fini(w);
	w->before = malloc(n * sizeof *w->before);
	w->after = malloc(n * sizeof *w->after);
	w->rank = malloc(n * sizeof *w->rank);
	w->becomes = malloc(n * sizeof *w->becomes);
	w->heap = malloc(2 * n * sizeof *w->heap);
	if (!w->before || !w->after || !w->rank || !w->becomes || !w->heap) {
		text_merges_work_fini(w);
		return err_set(e, ERR_NOMEM, "no memory to merge a word of %zu symbols", n);
	}
	w->cap = n;
	return 0;
}

/* Looks up the pair at `place` and adds it to the heap. */
static void queue(const struct merges *m, struct merges_work *w, const int32_t *symbols,
		  uint32_t place, size_t *n_heap)
{
	uint32_t next = w->after[place];
	w->rank[place] = next == NO_PLACE
				 ? NO_RANK
				 : look_up(m, symbols[place], symbols[next], &w->becomes[place]);
	if (w->rank[place] != NO_RANK)
		heap_push(w->heap, n_heap, (uint64_t)w->rank[place] << 32 | place);
}

static void merge_at(const struct merges *m, struct merges_work *w, int32_t *symbols,
		     uint32_t place, size_t *n_heap)
{
	uint32_t gone = w->after[place], next = w->after[gone];
	symbols[place] = w->becomes[place];
	w->after[place] = next;
	w->rank[gone] = NO_RANK;
	if (next != NO_PLACE)
		w->before[next] = place;
	queue(m, w, symbols, place, n_heap);
	if (w->before[place] != NO_PLACE)
		queue(m, w, symbols, w->before[place], n_heap);
}

/* A pair in the heap is out of date if its place has another rank now. A place's symbols only
 * become longer, so no pair occurs there twice. */
static size_t apply_long(const struct merges *m, struct merges_work *w, int32_t *symbols, size_t n)
{
	size_t n_heap = 0, left = 0;
	for (size_t i = 0; i < n; i++) {
		w->before[i] = i ? (uint32_t)i - 1 : NO_PLACE;
		w->after[i] = i + 1 < n ? (uint32_t)i + 1 : NO_PLACE;
	}
	for (size_t i = 0; i < n; i++)
		queue(m, w, symbols, (uint32_t)i, &n_heap);
	while (n_heap) {
		uint64_t v = heap_pop(w->heap, &n_heap);
		uint32_t place = (uint32_t)v;
		if (w->rank[place] == v >> 32)
			merge_at(m, w, symbols, place, &n_heap);
	}
	for (uint32_t i = 0; i != NO_PLACE; i = w->after[i])
		symbols[left++] = symbols[i];
	return left;
}

int text_merges_apply(const struct merges *m, struct merges_work *w, int32_t *symbols, size_t n,
		      size_t *left, struct err *e)
{
	if (n <= SHORT_WORD) {
		*left = apply_short(m, symbols, n);
		return 0;
	}
	if (n > MERGES_WORD_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "a word has %zu symbols; at most %d can be merged at once", n,
			       MERGES_WORD_MAX);
	if (work_grow(w, n, e))
		return -1;
	*left = apply_long(m, w, symbols, n);
	return 0;
}
