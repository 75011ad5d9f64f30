/*
 * merges — byte-pair encoding (Sennrich, Haddow, Birch, arXiv 1508.07909): which two neighbouring
 * symbols are merged, and in which order.
 *
 * The pair of the lowest rank is merged first, and of equal pairs the leftmost one, until no pair
 * can be merged. A short word is searched again after each merge. For a long word the pairs are
 * kept in a heap, which takes O(n log n) time for n symbols.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_MERGES_H
#define MUSTER_AGENT_ENGINE_TEXT_MERGES_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { MERGES_WORD_MAX = 1 << 30 }; /* symbols */

struct merges {
	struct merges_pair *slots; /* open addressing; at least half are free */
	size_t mask;
};

int text_merges_init(struct merges *m, size_t count, struct err *e);
void text_merges_fini(struct merges *m);
/* Adds a pair. If a pair is added twice, the last rank is valid. At most `count` pairs may be
 * added. */
void text_merges_put(struct merges *m, int32_t left, int32_t right, uint32_t rank, int32_t becomes);

/* Scratch memory for long words, kept between words; initially zero. */
struct merges_work {
	uint32_t *before, *after, *rank;
	int32_t *becomes;
	uint64_t *heap;
	size_t cap;
};

void text_merges_work_fini(struct merges_work *w);
/* Merges the n symbols in place; *left is the number that remains. ERR_NOMEM. */
int text_merges_apply(const struct merges *m, struct merges_work *w, int32_t *symbols, size_t n,
		      size_t *left, struct err *e);

#endif
