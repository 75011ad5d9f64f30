/* numbers — minimum, maximum and rounding of integers. */
#ifndef MUSTER_BASE_NUMBERS_H
#define MUSTER_BASE_NUMBERS_H

#include <stdint.h>

static inline int64_t min_int64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t max_int64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The smallest multiple of `multiple` that is at least n; n >= 0, multiple > 0. */
static inline int64_t round_up_int64(int64_t n, int64_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

#endif
