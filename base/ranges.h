/*
 * ranges — a sorted set of ranges of numbers, such as 320-335,640-655.
 *
 * The samples that a run skips are such a set (agent/engine/data/feed.h). Ranges that touch or
 * overlap are joined. Every function is pure.
 */
#ifndef MUSTER_BASE_RANGES_H
#define MUSTER_BASE_RANGES_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

enum { RANGES_MAX = 256 };
#define RANGES_END (INT64_MAX / 4) /* every number is below it, so that sums do not overflow */
/* In a text, every number is below it: a checkpoint counts skipped samples in a double. */
#define RANGES_TEXT_END (1LL << 53)

struct range {
	int64_t first, end; /* [first, end), not empty */
};

struct ranges {
	int n;
	struct range list[RANGES_MAX]; /* ascending; a gap is between two of them */
};

/* Reads numbers and ranges that commas or blanks separate: "7, 320-335". A range includes its last
 * number. "" is the empty set. ERR_USAGE names the part that is wrong. */
int ranges_parse(const char *text, struct ranges *out, struct err *e);
/* Adds [first, first + count). ERR_USAGE: it is empty or not within [0, RANGES_END), or there are
 * RANGES_MAX ranges. */
int ranges_add(struct ranges *r, int64_t first, int64_t count, struct err *e);
/* Appends the set in the form that ranges_parse reads. */
void ranges_write(const struct ranges *r, struct buf *out);
/* How many numbers of [from, to) are in the set. */
int64_t ranges_count(const struct ranges *r, int64_t from, int64_t to);
/* The number that follows when the numbers from `from` on are counted and those in the set are left
 * out: with n = 0 the first number outside of the set, which is `from` itself unless the set has
 * it. r may be NULL: the empty set. 0 <= from, n <= RANGES_END. */
int64_t ranges_skip(const struct ranges *r, int64_t from, int64_t n);
/* The end of the first n numbers outside of the set from `from` on: one after the last of them;
 * with n = 0 it is `from`. */
int64_t ranges_end(const struct ranges *r, int64_t from, int64_t n);

/* The last number `at` <= to so that n numbers outside of the set are in [at, to); 0 if there are
 * not so many. */
int64_t ranges_back(const struct ranges *r, int64_t to, int64_t n);

#endif
