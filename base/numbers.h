/*
 * numbers — minimum, maximum, clamping, rounding and order.
 *
 * Each name ends with the type of its arguments: int, int64 (int64_t), uint64 (uint64_t),
 * size (size_t) or double.
 */
#ifndef MUSTER_BASE_NUMBERS_H
#define MUSTER_BASE_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

static inline int min_int(int a, int b)
{
	return a < b ? a : b;
}

static inline int max_int(int a, int b)
{
	return a > b ? a : b;
}

static inline int64_t min_int64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t max_int64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t min_uint64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_uint64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* min_double and max_double return b if either argument is not a number. */
static inline double min_double(double a, double b)
{
	return a < b ? a : b;
}

static inline double max_double(double a, double b)
{
	return a > b ? a : b;
}

/* Returns the value in [low, high] that is nearest to x; low <= high. */
static inline int64_t clamp_int64(int64_t x, int64_t low, int64_t high)
{
	return x < low ? low : x > high ? high : x;
}

/* Both return the smallest multiple of `multiple` that is at least n; n >= 0, multiple > 0. */
static inline int64_t round_up_int64(int64_t n, int64_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

static inline size_t round_up_size(size_t n, size_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

/* For qsort: the smallest first. */
static inline int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

#endif
