/*
 * LayerNorm and RMSNorm. Forward reads a row once from memory; it stays in the L1 cache for its
 * sums. Backward computes dx row by row, then dw and dbias in strips of columns, so that their sums
 * do not depend on the number of threads.
 */
#include "base/numbers.h"
#include "kernels/cpu/cpu.h"

#include <math.h>

static const float *input_row(float *sum, const float *x, const float *r, int64_t c)
{
	if (!r)
		return x;
	#pragma omp simd
	for (int64_t j = 0; j < c; j++)
		sum[j] = x[j] + r[j];
	return sum;
}

static float row_mean(const float *x, int64_t c)
{
	float sum = 0;
	#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < c; j++)
		sum += x[j];
	return sum / (float)c;
}

/* mean((x - about)²) */
static float row_spread(const float *x, float about, int64_t c)
{
	float sum = 0;
	#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < c; j++)
		sum += (x[j] - about) * (x[j] - about);
	return sum / (float)c;
}

static void layernorm_fwd(struct backend *k, void *yv, void *sumv, float *mean, float *rstd,
			  const void *xv, const void *rv, const void *wv, const void *biasv,
			  int64_t n, int64_t c, float eps)
{
	float *y = yv, *sum = sumv;
	const float *x = xv, *r = rv, *w = wv, *bias = biasv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * c))
	for (int64_t i = 0; i < n; i++) {
		const float *in = input_row(r ? sum + i * c : NULL, x + i * c, r ? r + i * c : NULL,
					    c);
		float m = row_mean(in, c);
		float s = 1.0f / sqrtf(row_spread(in, m, c) + eps);
		float *row = y + i * c;
		#pragma omp simd
		for (int64_t j = 0; j < c; j++)
			row[j] = (in[j] - m) * s * w[j] + bias[j];
		mean[i] = m;
		rstd[i] = s;
	}
}

static void rmsnorm_fwd(struct backend *k, void *yv, void *sumv, float *rstd, const void *xv,
			const void *rv, const void *wv, int64_t n, int64_t c, float eps)
{
	float *y = yv, *sum = sumv;
	const float *x = xv, *r = rv, *w = wv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * c))
	for (int64_t i = 0; i < n; i++) {
		const float *in = input_row(r ? sum + i * c : NULL, x + i * c, r ? r + i * c : NULL,
					    c);
		float s = 1.0f / sqrtf(row_spread(in, 0, c) + eps);
		float *row = y + i * c;
		#pragma omp simd
		for (int64_t j = 0; j < c; j++)
			row[j] = in[j] * s * w[j];
		rstd[i] = s;
	}
}

/* dx = rstd * (g - mean(g) - h * mean(g h)) + dres with g = dy w, h = (x - mean) rstd; RMSNorm
 * has no mean(g). */
static void row_bwd(float *dx, const float *dy, const float *dres, const float *x, float mean,
		    float rstd, const float *w, int64_t c, bool centred)
{
	float g_sum = 0, gh_sum = 0;
	#pragma omp simd reduction(+ : g_sum, gh_sum)
	for (int64_t j = 0; j < c; j++) {
		g_sum += dy[j] * w[j];
		gh_sum += dy[j] * w[j] * (x[j] - mean);
	}
	float g_mean = centred ? g_sum / (float)c : 0;
	float gh_mean = gh_sum * rstd / (float)c;
	if (dres) {
		#pragma omp simd
		for (int64_t j = 0; j < c; j++)
			dx[j] = rstd * (dy[j] * w[j] - g_mean - (x[j] - mean) * rstd * gh_mean) +
				dres[j];
		return;
	}
	#pragma omp simd
	for (int64_t j = 0; j < c; j++)
		dx[j] = rstd * (dy[j] * w[j] - g_mean - (x[j] - mean) * rstd * gh_mean);
}

/* The operands of the sums dw and dbias. mean and dbias are NULL for RMSNorm. */
struct sums {
	float *dw, *dbias;
	const float *dy, *x, *mean, *rstd;
	int64_t n, c;
	bool add;
};

/* Sums rows i0 … i1 of a strip in float. */
static void strip_run(float *restrict dw, float *restrict db, const struct sums *s, int64_t i0,
		      int64_t i1, int64_t j, int64_t w)
{
	for (int64_t i = i0; i < i1; i++) {
		const float *dy = s->dy + i * s->c + j, *x = s->x + i * s->c + j;
		float m = s->mean ? s->mean[i] : 0, r = s->rstd[i];
		#pragma omp simd
		for (int64_t l = 0; l < w; l++) {
			dw[l] += dy[l] * ((x[l] - m) * r);
			db[l] += dy[l];
		}
	}
}

static void strip(const struct sums *s, int64_t j, int64_t w)
{
	double dw[CPU_STRIP] = { 0 }, db[CPU_STRIP] = { 0 };
	for (int64_t i = 0; i < s->n; i += CPU_RUN) {
		float dw_run[CPU_STRIP] = { 0 }, db_run[CPU_STRIP] = { 0 };
		strip_run(dw_run, db_run, s, i, min_int64(s->n, i + CPU_RUN), j, w);
		for (int64_t l = 0; l < w; l++) {
			dw[l] += (double)dw_run[l];
			db[l] += (double)db_run[l];
		}
	}
	for (int64_t l = 0; l < w; l++)
		s->dw[j + l] = (float)((s->add ? (double)s->dw[j + l] : 0) + dw[l]);
	for (int64_t l = 0; l < (s->dbias ? w : 0); l++)
		s->dbias[j + l] = (float)((s->add ? (double)s->dbias[j + l] : 0) + db[l]);
}

/* dres may be dx; dy and x may not. */
static void norm_bwd(struct backend *k, float *dx, const float *dres, const float *w,
		     const struct sums *s)
{
	int64_t n = s->n, c = s->c;
	#pragma omp parallel num_threads(cpu_team(k, n * c))
	{
		#pragma omp for schedule(static) nowait
		for (int64_t j = 0; j < c; j += CPU_STRIP)
			strip(s, j, min_int64(CPU_STRIP, c - j));
		#pragma omp for schedule(static)
		for (int64_t i = 0; i < n; i++)
			row_bwd(dx + i * c, s->dy + i * c, dres ? dres + i * c : NULL, s->x + i * c,
				s->mean ? s->mean[i] : 0, s->rstd[i], w, c, s->mean != NULL);
	}
}

static void layernorm_bwd(struct backend *k, void *dx, float *dw, float *dbias, const void *dy,
			  const void *dres, const void *x, const float *mean, const float *rstd,
			  const void *w, int64_t n, int64_t c, bool add)
{
	norm_bwd(k, dx, dres, w, &(struct sums){ dw, dbias, dy, x, mean, rstd, n, c, add });
}

static void rmsnorm_bwd(struct backend *k, void *dx, float *dw, const void *dy, const void *dres,
			const void *x, const float *rstd, const void *w, int64_t n, int64_t c,
			bool add)
{
	norm_bwd(k, dx, dres, w, &(struct sums){ dw, NULL, dy, x, NULL, rstd, n, c, add });
}

void CPU(norm)(struct ops *o)
{
	o->layernorm_fwd = layernorm_fwd;
	o->layernorm_bwd = layernorm_bwd;
	o->rmsnorm_fwd = rmsnorm_fwd;
	o->rmsnorm_bwd = rmsnorm_bwd;
}
