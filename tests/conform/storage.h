/*
 * storage — the numbers that a storage type can hold, as doubles. It does not use the conversions
 * under test.
 */
#ifndef MUSTER_TESTS_STORAGE_H
#define MUSTER_TESTS_STORAGE_H

#include <stddef.h>
#include <stdint.h>

struct storage {
	const char *name;
	size_t width;     /* bytes */
	int fraction;     /* bits after the binary point */
	int exponent;     /* bits */
	double tolerance; /* the largest |out - ref| / |ref| of an op whose results are stored */
};

/* fp32, bf16, fp16, and float64, in which the reference computes. */
extern const struct storage storage_fp32, storage_bf16, storage_fp16, storage_fp64;

/* The storage type of a backend: the text after the colon in its name, or fp32. */
const struct storage *storage_of(const char *backend_name);

/* The nearest number that the type can hold; of two equally near, the one with the even fraction. A
 * number that is too large becomes infinity. */
double storage_round(const struct storage *s, double x);

/* Element i of an array. storage_put accepts NaN and numbers that the type can hold. */
double storage_get(const struct storage *s, const void *array, int64_t i);
void storage_put(const struct storage *s, void *array, int64_t i, double x);

#endif
