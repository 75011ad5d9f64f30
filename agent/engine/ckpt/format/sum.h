/*
 * sum — digests of the blocks of a global tensor, which any cut of the tensor adds up to.
 *
 * The elements of a tensor, row by row, are cut into segments of at most 2048 columns, and
 * consecutive segments into blocks of 2^22 elements (16 MiB). This depends on the shape alone. A
 * vector counts as one row. The sum of a block is, modulo 2^128,
 *
 *     sum over its segments s of  A(s) * (sum over the words j of s of  B(j) * w(j))
 *
 * where w(j) is the 64-bit little-endian word of the columns 2j (low half) and 2j + 1 (high half)
 * of the segment, B(j) is an odd 64-bit key of the place in the segment, and A(s) an odd 128-bit
 * key of the segment's place in the tensor. Both keys come from splitmix64. Because the sum is
 * linear in w, every element counts by itself: ranks add up whatever elements they have, in any
 * order and with any boundaries, and their sums add up to that of the whole tensor.
 *
 * What it detects. A change within one 8-byte word, such as any single flipped bit, is always
 * detected, because |difference| * B(j) * A(s) cannot be 0 modulo 2^128. Any other change that does
 * not depend on the keys (a disk's, a network's, an exchange of rows or boxes) goes undetected with
 * a probability of at most about 2^-58. What it does not: zeros add nothing, so a missing box
 * counts as zeros (the coverage proof of manifest.h finds it), and the keys are public, so a change
 * can be made up that keeps the sums. It is no signature.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_FORMAT_SUM_H
#define MUSTER_AGENT_ENGINE_CKPT_FORMAT_SUM_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 ckpt_sum;

enum { CKPT_SUM_BYTES = 16 };

/* The blocks of a tensor. */
struct ckpt_blocks {
	int64_t rows, columns;
	int64_t per_row;   /* segments of a row */
	int64_t per_block; /* segments of a block */
	int64_t n;         /* blocks */
};

/* The sums of the blocks [first, first + n) of a tensor; those of all other blocks are 0. */
struct ckpt_sums {
	int64_t first, n;
	ckpt_sum *at; /* NULL: nothing was added */
};

/* dims is 1 or 2; the shape is positive and its product does not overflow. */
struct ckpt_blocks ckpt_blocks_of(int dims, const int64_t *shape);

/* Sets the first and the last block that the box touches. */
void ckpt_blocks_touched(int dims, const int64_t *shape, const int64_t *lo, const int64_t *hi,
			 int64_t *first, int64_t *last);

/* Makes room for the sums of the blocks from `first` to `last`. */
int ckpt_sums_reserve(struct ckpt_sums *s, int64_t first, int64_t last, struct err *e);
/* Adds the elements [from, from + n) of the row-major box. Their blocks were reserved. */
void ckpt_sums_add(struct ckpt_sums *s, int dims, const int64_t *shape, const int64_t *lo,
		   const int64_t *hi, int64_t from, int64_t n, const float *data);
/* Adds the sums of another part of the same tensor. */
int ckpt_sums_merge(struct ckpt_sums *s, const struct ckpt_sums *more, struct err *e);
ckpt_sum ckpt_sums_get(const struct ckpt_sums *s, int64_t block);
bool ckpt_sums_equal(const struct ckpt_sums *a, const struct ckpt_sums *b);
void ckpt_sums_fini(struct ckpt_sums *s);

/* An odd 128-bit key of (seed, i). */
ckpt_sum ckpt_sum_key(uint64_t seed, uint64_t i);

#endif
