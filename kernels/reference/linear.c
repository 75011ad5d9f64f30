/* Matrix products and their sums. */
#include "kernels/reference/reference.h"

static void linear_fwd(struct backend *k, void *yv, const void *xv, const void *wv,
		       const void *biasv, int64_t n, int64_t in, int64_t out)
{
	(void)k;
	real *y = yv;
	const real *x = xv, *w = wv, *bias = biasv;
	for (int64_t i = 0; i < n; i++)
		for (int64_t o = 0; o < out; o++) {
			double sum = bias ? (double)bias[o] : 0;
			for (int64_t j = 0; j < in; j++)
				sum += (double)x[i * in + j] * (double)w[o * in + j];
			y[i * out + o] = (real)sum;
		}
}

static void linear_bwd_input(struct backend *k, void *dxv, const void *dyv, const void *wv,
			     int64_t n, int64_t in, int64_t out)
{
	(void)k;
	real *dx = dxv;
	const real *dy = dyv, *w = wv;
	if (!dx)
		return;
	for (int64_t i = 0; i < n; i++)
		for (int64_t j = 0; j < in; j++) {
			double sum = 0;
			for (int64_t o = 0; o < out; o++)
				sum += (double)dy[i * out + o] * (double)w[o * in + j];
			dx[i * in + j] = (real)sum;
		}
}

static void sum_rows(struct backend *k, float *outf, const void *xv, int64_t n, int64_t c, bool add)
{
	(void)k;
	real *out = (real *)outf;
	const real *x = xv;
	for (int64_t j = 0; j < c; j++) {
		double sum = 0;
		for (int64_t i = 0; i < n; i++)
			sum += (double)x[i * c + j];
		out[j] = (real)((add ? (double)out[j] : 0) + sum);
	}
}

static void linear_bwd_weight_strided(struct backend *k, float *dwf, const void *dyv, int64_t row,
				      const void *xv, int64_t n, int64_t in, int64_t out, bool add)
{
	(void)k;
	real *dw = (real *)dwf;
	const real *dy = dyv, *x = xv;
	for (int64_t o = 0; o < out; o++)
		for (int64_t j = 0; j < in; j++) {
			double sum = 0;
			for (int64_t i = 0; i < n; i++)
				sum += (double)dy[i * row + o] * (double)x[i * in + j];
			dw[o * in + j] = (real)((add ? (double)dw[o * in + j] : 0) + sum);
		}
}

static void linear_bwd_weight(struct backend *k, float *dw, float *dbias, const void *dy,
			      const void *x, int64_t n, int64_t in, int64_t out, bool add)
{
	linear_bwd_weight_strided(k, dw, dy, out, x, n, in, out, add);
	if (dbias)
		sum_rows(k, dbias, dy, n, out, add);
}

static void add_elements(struct backend *k, void *yv, const void *xv, int64_t count)
{
	(void)k;
	real *y = yv;
	const real *x = xv;
	for (int64_t i = 0; i < count; i++)
		y[i] += x[i];
}

static void add_bias(struct backend *k, void *xv, const void *biasv, int64_t n, int64_t c)
{
	for (int64_t i = 0; i < n; i++)
		add_elements(k, (real *)xv + i * c, biasv, c);
}

void REFERENCE(linear)(struct ops *o)
{
	o->linear_fwd = linear_fwd;
	o->linear_bwd_input = linear_bwd_input;
	o->linear_bwd_weight = linear_bwd_weight;
	o->linear_bwd_weight_strided = linear_bwd_weight_strided;
	o->add = add_elements;
	o->add_bias = add_bias;
	o->sum_rows = sum_rows;
}
