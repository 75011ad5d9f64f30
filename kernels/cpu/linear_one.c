/*
 * The product of one row, as in generating text token by token. It is bound by the bandwidth of
 * reading the weights, which a BLAS for larger products also copies to pack them. Each output is
 * one sum in a fixed order, so any number of threads gives the same bits.
 */
#include "base/numbers.h"
#include "kernels/cpu/linear.h"

/* Rows of weights that are read at the same time: enough streams to use the memory's bandwidth, and
 * few enough for the registers. */
enum { SIDE = 4 };

static void dot_rows(float *restrict y, const float *restrict x, const float *restrict w,
		     int64_t in)
{
	const float *w1 = w + in, *w2 = w1 + in, *w3 = w2 + in;
	float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
	#pragma omp simd reduction(+ : s0, s1, s2, s3)
	for (int64_t i = 0; i < in; i++) {
		s0 += x[i] * w[i];
		s1 += x[i] * w1[i];
		s2 += x[i] * w2[i];
		s3 += x[i] * w3[i];
	}
	y[0] = s0;
	y[1] = s1;
	y[2] = s2;
	y[3] = s3;
}

static float dot_row(const float *restrict x, const float *restrict w, int64_t in)
{
	float s = 0;
	#pragma omp simd reduction(+ : s)
	for (int64_t i = 0; i < in; i++)
		s += x[i] * w[i];
	return s;
}

void CPU(linear_one)(struct backend *k, float *y, const float *x, const float *w, const float *bias,
		     int64_t in, int64_t out)
{
	int64_t groups = (out + SIDE - 1) / SIDE;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, in * out))
	for (int64_t g = 0; g < groups; g++) {
		int64_t first = g * SIDE, last = min_int64(first + SIDE, out);
		if (last - first == SIDE)
			dot_rows(y + first, x, w + first * in, in);
		else
			for (int64_t i = first; i < last; i++)
				y[i] = dot_row(x, w + i * in, in);
		for (int64_t i = first; bias && i < last; i++)
			y[i] += bias[i];
	}
}
