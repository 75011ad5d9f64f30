/*
 * blend — data.path in words, and which of its sources a sample comes from.
 *
 * The words: a path, or weights (above 0) each before a path: "0.7 A 0.3 B". Paths may have blanks
 * in them; what is a number, with a blank behind it, begins a weight, so that a lone path like "7
 * dwarfs" is written "./7 dwarfs". Weights need not add up to anything: a source's share is its
 * weight over their sum.
 *
 * Who gets a sample is no matter of chance: the sources sit at the leaves of a Huffman tree over
 * their weights, and a node that has dealt k samples has given round(k a / (a + b)) of them to its
 * heavier child, of weight a, and the rest to the lighter one, of weight b. So
 *     how many of the first k samples come from a source is computed in one walk, without the
 *     samples before k; it grows by one for exactly one source with every sample; it is never two
 *     samples or more away from k times the share: a node adds half a sample at most to its own
 *     error times its child's part, an inner node has two thirds of its parent's weight at most (a
 *     Huffman tree merges the lightest first), so inner nodes stay within 3/2 and leaves within 2.
 *     Two sources stay within 1/2.
 * This is part of what a run's data order means: changing anything here changes every blended run.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_BLEND_H
#define MUSTER_AGENT_ENGINE_DATA_BLEND_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct blend_source {
	char *path;
	double weight; /* as given */
	double share;  /* of all weights; the samples follow it to within 2^-52 */
};

struct blend {
	int n;
	struct blend_source *sources; /* [n] */
	struct blend_node *nodes;     /* [n - 1]; of blend.c, as is `parents` */
	int *parents;
};

/* Reads the words. Refuses, by name, weights that are not above 0, a weight without a path, a
 * path that comes twice. */
int data_blend_open(const char *words, struct blend *out, struct err *e);
/* The same from a list: paths are copied, shares ignored. */
int data_blend_of(const struct blend_source *list, int n, struct blend *out, struct err *e);
void data_blend_fini(struct blend *b);
/* Whether two texts deal samples alike: as many sources, with the same shares in the same order.
 * Paths do not matter. */
bool data_blend_alike(const char *words, const char *others);

/* Sample k >= 0 of the run is sample *index of the source. */
void data_blend_place(const struct blend *b, int64_t k, int *source, int64_t *index);
/* How many of the samples [0, k) come from the source. */
int64_t data_blend_count(const struct blend *b, int64_t k, int source);

#endif
