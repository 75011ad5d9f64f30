/* LayerNorm and RMSNorm over rows of c elements, after the residual sum. */
#include "kernels/reference/reference.h"

#include <math.h>

/* The norm's input of one row: x, or x + r, which is stored in sum. */
static const real *input_row(real *sum, const real *x, const real *r, int64_t c)
{
	if (!r)
		return x;
	for (int64_t j = 0; j < c; j++)
		sum[j] = x[j] + r[j];
	return sum;
}

static double row_mean(const real *x, int64_t c)
{
	double sum = 0;
	for (int64_t j = 0; j < c; j++)
		sum += (double)x[j];
	return sum / (double)c;
}

/* mean((x - about)²) */
static double row_spread(const real *x, double about, int64_t c)
{
	double sum = 0;
	for (int64_t j = 0; j < c; j++)
		sum += ((double)x[j] - about) * ((double)x[j] - about);
	return sum / (double)c;
}

/* y = (x - mean) * rstd * w + bias of one row */
static void norm_row(real *y, const real *x, double mean, double rstd, const real *w,
		     const real *bias, int64_t c)
{
	for (int64_t j = 0; j < c; j++)
		y[j] = (real)(((double)x[j] - mean) * rstd * (double)w[j] +
			      (bias ? (double)bias[j] : 0));
}

/*
 * With h = (x - mean) * rstd and g = dy * w:
 *     dx = rstd * (g - mean(g) - h * mean(g * h)) + dres, where RMSNorm has no mean(g);
 *     dw += dy * h, dbias += dy.
 */
static void norm_row_bwd(real *dx, real *dw, real *dbias, const real *dy, const real *dres,
			 const real *x, double mean, double rstd, const real *w, int64_t c)
{
	double g_mean = 0, gh_mean = 0;
	for (int64_t j = 0; j < c; j++) {
		double g = (double)dy[j] * (double)w[j];
		g_mean += dbias ? g : 0;
		gh_mean += g * ((double)x[j] - mean) * rstd;
	}
	g_mean /= (double)c;
	gh_mean /= (double)c;
	for (int64_t j = 0; j < c; j++) {
		double h = ((double)x[j] - mean) * rstd, d = (double)dy[j];
		double through = rstd * (d * (double)w[j] - g_mean - h * gh_mean);
		dx[j] = (real)(through + (dres ? (double)dres[j] : 0));
		dw[j] = (real)((double)dw[j] + d * h);
		if (dbias)
			dbias[j] = (real)((double)dbias[j] + d);
	}
}

static void layernorm_fwd(struct backend *k, void *yv, void *sumv, float *meanf, float *rstdf,
			  const void *xv, const void *rv, const void *w, const void *bias,
			  int64_t n, int64_t c, float eps)
{
	(void)k;
	real *y = yv, *sum = sumv, *mean = (real *)meanf, *rstd = (real *)rstdf;
	const real *x = xv, *r = rv;
	for (int64_t i = 0; i < n; i++) {
		const real *in = input_row(r ? sum + i * c : NULL, x + i * c, r ? r + i * c : NULL,
					   c);
		double m = row_mean(in, c);
		double s = 1 / sqrt(row_spread(in, m, c) + (double)eps);
		norm_row(y + i * c, in, m, s, w, bias, c);
		mean[i] = (real)m;
		rstd[i] = (real)s;
	}
}

static void layernorm_bwd(struct backend *k, void *dxv, float *dw, float *dbias, const void *dyv,
			  const void *dresv, const void *xv, const float *meanf, const float *rstdf,
			  const void *w, int64_t n, int64_t c, bool add)
{
	(void)k;
	real *dx = dxv;
	const real *dy = dyv, *dres = dresv, *x = xv, *mean = (const real *)meanf,
		   *rstd = (const real *)rstdf;
	for (int64_t j = 0; j < c && !add; j++)
		((real *)dw)[j] = ((real *)dbias)[j] = 0;
	for (int64_t i = 0; i < n; i++)
		norm_row_bwd(dx + i * c, (real *)dw, (real *)dbias, dy + i * c,
			     dres ? dres + i * c : NULL, x + i * c, (double)mean[i],
			     (double)rstd[i], w, c);
}

static void rmsnorm_fwd(struct backend *k, void *yv, void *sumv, float *rstdf, const void *xv,
			const void *rv, const void *w, int64_t n, int64_t c, float eps)
{
	(void)k;
	real *y = yv, *sum = sumv, *rstd = (real *)rstdf;
	const real *x = xv, *r = rv;
	for (int64_t i = 0; i < n; i++) {
		const real *in = input_row(r ? sum + i * c : NULL, x + i * c, r ? r + i * c : NULL,
					   c);
		double s = 1 / sqrt(row_spread(in, 0, c) + (double)eps);
		norm_row(y + i * c, in, 0, s, w, NULL, c);
		rstd[i] = (real)s;
	}
}

static void rmsnorm_bwd(struct backend *k, void *dxv, float *dw, const void *dyv, const void *dresv,
			const void *xv, const float *rstdf, const void *w, int64_t n, int64_t c,
			bool add)
{
	(void)k;
	real *dx = dxv;
	const real *dy = dyv, *dres = dresv, *x = xv, *rstd = (const real *)rstdf;
	for (int64_t j = 0; j < c && !add; j++)
		((real *)dw)[j] = 0;
	for (int64_t i = 0; i < n; i++)
		norm_row_bwd(dx + i * c, (real *)dw, NULL, dy + i * c, dres ? dres + i * c : NULL,
			     x + i * c, 0, (double)rstd[i], w, c);
}

void REFERENCE(norm)(struct ops *o)
{
	o->layernorm_fwd = layernorm_fwd;
	o->layernorm_bwd = layernorm_bwd;
	o->rmsnorm_fwd = rmsnorm_fwd;
	o->rmsnorm_bwd = rmsnorm_bwd;
}
