/*
 * blend — parses data.path, and assigns each sample to one of its sources.
 *
 * data.path is a path, or a list of weights (above 0), each before a path: "0.7 A 0.3 B". Paths may
 * contain blanks. A number followed by a blank starts a weight, so that a single path like
 * "7 dwarfs" is written "./7 dwarfs". The weights need no particular sum: the share of a source is
 * its weight over the sum of all.
 *
 * The assignment is not random. The sources are the leaves of a Huffman tree over their weights. A
 * node that has handed out k samples has given round(k a / (a + b)) of them to its heavier child, of
 * weight a, and the rest to the lighter one, of weight b. Therefore
 *   - the number of the first k samples that come from a source is computed in one descent, without
 *     the samples before k;
 *   - with every sample it grows by one for exactly one source;
 *   - it differs from k times the share by less than two samples. A node adds at most half a sample
 *     to its own error times its child's share, and an inner node has at most two thirds of its
 *     parent's weight (a Huffman tree merges the lightest first), so inner nodes stay within 3/2 and
 *     leaves within 2. With two sources the difference is at most 1/2.
 * The data order of a run depends on this: a change here changes every blended run.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_BLEND_H
#define MUSTER_AGENT_ENGINE_DATA_BLEND_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct blend_source {
	const char *path;
	double weight; /* as given */
	double share;  /* weight over the sum of all; samples follow it to within 2^-52 */
};

struct blend {
	int n;
	struct blend_source *sources; /* [n] */
	char **paths;                 /* [n] the memory of the sources' paths */
	struct blend_node *nodes;     /* [n - 1]; private to blend.c, like `parents` */
	int *parents;
};

/* Parses the words. ERR_USAGE names a weight that is not above 0, a weight without a path, or a path
 * that occurs twice. */
int data_blend_open(const char *words, struct blend *out, struct err *e);
/* Makes a blend of a list; copies the paths and ignores the shares. */
int data_blend_of(const struct blend_source *list, int n, struct blend *out, struct err *e);
void data_blend_fini(struct blend *b);
/* Whether two texts assign samples in the same way: the same number of sources, with the same shares
 * in the same order. Paths do not matter. */
bool data_blend_alike(const char *words, const char *others);

/* Sets the source of the run's sample k >= 0, and the sample's index in that source. */
void data_blend_place(const struct blend *b, int64_t k, int *source, int64_t *index);
/* The number of the samples [0, k) that come from the source. */
int64_t data_blend_count(const struct blend *b, int64_t k, int source);

#endif
