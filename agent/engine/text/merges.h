/*
 * merges — byte-pair encoding (Sennrich, Haddow, Birch, arXiv 1508.07909): which two neighbours
 * become one, and in which order.
 *
 * Of all neighbours that may be merged the pair of the lowest rank is, the leftmost of equals,
 * until none is left. Short words are searched anew each time; long ones keep their pairs in a
 * heap: n log n steps for n symbols.
 */
#ifndef MUSTER_AGENT_ENGINE_TEXT_MERGES_H
#define MUSTER_AGENT_ENGINE_TEXT_MERGES_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { MERGES_WORD_MOST = 1 << 30 }; /* symbols */

struct merges {
	struct merges_pair *slots; /* open addressing; at least half are free */
	size_t mask;
};

int text_merges_init(struct merges *m, size_t count, struct err *e);
void text_merges_fini(struct merges *m);
/* A pair given twice has its last rank. No more than `count` may be put. */
void text_merges_put(struct merges *m, int32_t left, int32_t right, uint32_t rank, int32_t becomes);

/* Memory for long words, kept from word to word; zeroed at first. */
struct merges_work {
	uint32_t *before, *after, *rank;
	int32_t *becomes;
	uint64_t *heap;
	size_t cap;
};

void text_merges_work_fini(struct merges_work *w);
/* Merges the n symbols in place; *left is how many there are then. ERR_NOMEM. */
int text_merges_apply(const struct merges *m, struct merges_work *w, int32_t *symbols, size_t n,
		      size_t *left, struct err *e);

#endif
