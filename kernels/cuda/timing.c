#include "kernels/cuda/timing.h"

#include "base/numbers.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLE_BYTES = 4096 };

bool timing_open(struct backend *k, struct timing *t)
{
	static const char where[] = "creating an event";
	return (t->from || cuda_ok(k, cudaEventCreate(&t->from), where)) &&
	       (t->to || cuda_ok(k, cudaEventCreate(&t->to), where));
}

void timing_close(struct timing *t)
{
	if (t->from)
		cudaEventDestroy(t->from);
	if (t->to)
		cudaEventDestroy(t->to);
	*t = (struct timing){ NULL, NULL };
}

bool timing_begin(struct backend *k, const struct timing *t, const char *where)
{
	return cuda_ok(k, cudaEventRecord(t->from, cuda_of(k)->stream), where);
}

double timing_end(struct backend *k, const struct timing *t, const char *where)
{
	float ms = 0;
	return cuda_ok(k, cudaEventRecord(t->to, cuda_of(k)->stream), where) &&
			       cuda_ok(k, cudaEventSynchronize(t->to), where) &&
			       cuda_ok(k, cudaEventElapsedTime(&ms, t->from, t->to), where)
		       ? 1e-3 * (double)ms
		       : INFINITY;
}

double timing_median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof *values, compare_double);
	return values[n / 2];
}

bool timing_has_numbers(struct backend *k, const void *at, size_t bytes)
{
	unsigned char sample[SAMPLE_BYTES];
	const size_t n = bytes < sizeof sample ? bytes : sizeof sample;
	if (cuda_get(k, sample, (const char *)at + (bytes - n) / 2, n, NULL))
		return false;
	for (size_t i = 0; i < n; i++)
		if (sample[i])
			return true;
	return false;
}

bool timing_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
	return a && b && x < y + b_bytes && y < x + a_bytes;
}
