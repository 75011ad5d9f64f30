/* Rows that are sent to experts and come back, one row at a time; bound by memory bandwidth. */
#include "kernels/cpu/cpu.h"

#include <string.h>

static void gather_rows(struct backend *k, void *yv, const void *xv, const int64_t *from, int64_t n,
			int64_t c)
{
	float *y = yv;
	const float *x = xv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * c))
	for (int64_t i = 0; i < n; i++) {
		if (from[i] < 0)
			memset(y + i * c, 0, (size_t)c * sizeof *y);
		else
			memcpy(y + i * c, x + from[i] * c, (size_t)c * sizeof *y);
	}
}

static void copy_rows(struct backend *k, void *yv, int64_t y_row, const void *xv, int64_t x_row,
		      int64_t n, int64_t c)
{
	float *y = yv;
	const float *x = xv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * c))
	for (int64_t i = 0; i < n; i++)
		memcpy(y + i * y_row, x + i * x_row, (size_t)c * sizeof *y);
}

static void row_set(float *restrict y, const float *restrict x, float w, int64_t c)
{
	#pragma omp simd
	for (int64_t l = 0; l < c; l++)
		y[l] = w * x[l];
}

static void row_add(float *restrict y, const float *restrict x, float w, int64_t c)
{
	#pragma omp simd
	for (int64_t l = 0; l < c; l++)
		y[l] += w * x[l];
}

static void combine_fwd(struct backend *k, void *yv, const void *xv, const int64_t *at,
			const float *weights, int64_t n, int64_t top, int64_t c)
{
	float *y = yv;
	const float *x = xv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * top * c))
	for (int64_t i = 0; i < n; i++) {
		bool any = false;
		for (int64_t j = i * top; j < (i + 1) * top; j++) {
			if (at[j] < 0)
				continue;
			(any ? row_add : row_set)(y + i * c, x + at[j] * c,
						  weights ? weights[j] : 1, c);
			any = true;
		}
		if (!any)
			memset(y + i * c, 0, (size_t)c * sizeof *y);
	}
}

/* Sets dx = w dy and returns dy · x, reading dy once. */
static float row_bwd(float *restrict dx, const float *restrict dy, const float *restrict x, float w,
		     int64_t c)
{
	float sum = 0;
	#pragma omp simd reduction(+ : sum)
	for (int64_t l = 0; l < c; l++) {
		dx[l] = w * dy[l];
		sum += dy[l] * x[l];
	}
	return sum;
}

static void combine_bwd(struct backend *k, void *dxv, float *dweights, const void *dyv,
			const void *xv, const int64_t *at, const float *weights, int64_t n,
			int64_t top, int64_t c)
{
	float *dx = dxv;
	const float *dy = dyv, *x = xv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * top * c))
	for (int64_t j = 0; j < n * top; j++) {
		float w = weights ? weights[j] : 1, sum = 0;
		if (at[j] >= 0 && dweights)
			sum = row_bwd(dx + at[j] * c, dy + j / top * c, x + at[j] * c, w, c);
		else if (at[j] >= 0)
			row_set(dx + at[j] * c, dy + j / top * c, w, c);
		if (dweights)
			dweights[j] = sum;
	}
}

void CPU(rows)(struct ops *o)
{
	o->gather_rows = gather_rows;
	o->copy_rows = copy_rows;
	o->combine_fwd = combine_fwd;
	o->combine_bwd = combine_bwd;
}
