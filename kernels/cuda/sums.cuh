/*
 * sums — sums over many blocks in two steps: each block writes its part to the backend's scratch,
 * then the parts are added in order. So no sum depends on which block ran first.
 */
#ifndef MUSTER_KERNELS_CUDA_SUMS_CUH
#define MUSTER_KERNELS_CUDA_SUMS_CUH

#include "kernels/cuda/cuda.h"

/* Sets out[0][j] to the sum of parts[i, j] over the first `rows` rows i, for j < c; with `add`,
 * adds it. If out[1] is not NULL, the same with out[1][j] over the next `rows` rows. */
void cuda_add_columns(struct backend *k, const char *op, float *const out[2], const float *parts,
		      int64_t rows, int64_t c, bool add);

/* *out += the sum of parts[0 … count). */
void cuda_add_parts(struct backend *k, const char *op, double *out, const double *parts,
		    int64_t count);

/* The first step over [n, c]: each block sums SUM_COLUMNS packs of columns over part `part` of
 * `parts` of the rows. */
enum { SUM_COLUMNS = 128, SUM_ROWS = 64 };

/* The number of parts for `strips` strips of columns: enough to fill the device, with at least
 * SUM_ROWS rows each, and no more than fit in the scratch with `floats` each. */
static inline int64_t sum_parts(const struct backend *k, int64_t n, int64_t strips, int64_t floats)
{
	int64_t most = (int64_t)cuda_of(k)->sms * 8 / strips + 1,
		rows = (n + SUM_ROWS - 1) / SUM_ROWS;
	int64_t fit = CUDA_SCRATCH / (floats * (int64_t)sizeof(float));
	int64_t parts = rows < most ? rows : most;
	return parts < fit ? parts : fit;
}

/* The first row of a part. */
__host__ __device__ static inline int64_t sum_first(int64_t n, int64_t parts, int64_t part)
{
	return n / parts * part + (part < n % parts ? part : n % parts);
}

#endif
