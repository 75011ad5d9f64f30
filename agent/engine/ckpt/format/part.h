/*
 * part — rectangles of a tensor, and the elements that two of them share.
 *
 * A slice of a checkpoint, the box that a rank wants, and what the two have in common (a cut) are
 * rectangles of one global tensor. The elements of each are numbered row by row. A vector is one
 * row, so that all its elements are consecutive.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_FORMAT_PART_H
#define MUSTER_AGENT_ENGINE_CKPT_FORMAT_PART_H

#include <stdbool.h>
#include <stdint.h>

struct part {
	int64_t lo[2], hi[2]; /* rows, columns */
};

/* lo and hi: of `dims` dimensions. */
struct part ckpt_part_of(int dims, const int64_t *lo, const int64_t *hi);
int64_t ckpt_part_elements(const struct part *p);
/* false: a and b have no element in common; *cut is then undefined. */
bool ckpt_part_cut(const struct part *a, const struct part *b, struct part *cut);
/* Orders parts; 0: they are equal. */
int ckpt_part_compare(const struct part *a, const struct part *b);

/* How many of the elements [0, n) of `from` lie in the cut of it. */
int64_t ckpt_part_count(const struct part *from, const struct part *cut, int64_t n);
/* Whether the cut's elements are consecutive in `whole`. */
bool ckpt_part_is_run(const struct part *whole, const struct part *cut);
/* The number in `whole` of the cut's element k. */
int64_t ckpt_part_index(const struct part *whole, const struct part *cut, int64_t k);

/* Copies those of the elements [first, first + n) of `from` that lie in `to`. data: element `first`
 * of `from`. out: element `base` of `to`. */
void ckpt_part_copy(const struct part *from, const float *data, int64_t first, int64_t n,
		    const struct part *to, float *out, int64_t base);

#endif
