/* The three steps of vocabulary-parallel cross-entropy (kernels/ops_table.h), and its loss. */
#include "kernels/reference/reference.h"

#include <math.h>

static void xent_max(struct backend *k, float *maxf, const void *logitsv, int64_t n, int64_t v,
		     int64_t row)
{
	(void)k;
	real *max = (real *)maxf;
	const real *logits = logitsv;
	for (int64_t i = 0; i < n; i++) {
		max[i] = -(real)INFINITY;
		for (int64_t j = 0; j < v; j++)
			if (logits[i * row + j] > max[i])
				max[i] = logits[i * row + j];
	}
}

/* The target's column in this shard, or -1. */
static int64_t target_column(int32_t target, int32_t lo, int64_t v)
{
	int64_t j = (int64_t)target - lo;
	return j >= 0 && j < v ? j : -1;
}

static void xent_exp(struct backend *k, void *logitsv, float *sumf, float *targetf,
		     const float *maxf, const int32_t *targets, int64_t n, int64_t v, int64_t row,
		     int32_t lo)
{
	(void)k;
	real *logits = logitsv, *sum = (real *)sumf, *target = (real *)targetf;
	const real *max = (const real *)maxf;
	for (int64_t i = 0; i < n; i++) {
		real *x = logits + i * row;
		int64_t t = target_column(targets[i], lo, v);
		target[i] = t < 0 ? 0 : x[t] - max[i];
		double total = 0;
		for (int64_t j = 0; j < v; j++) {
			double p = exp((double)x[j] - (double)max[i]);
			x[j] = (real)p;
			total += p;
		}
		sum[i] = (real)total;
	}
}

static void xent_grad(struct backend *k, void *logitsv, const float *sumf, const int32_t *targets,
		      const float *scale, int64_t n, int64_t v, int64_t row, int32_t lo)
{
	(void)k;
	real *logits = logitsv;
	const real *sum = (const real *)sumf, *by = (const real *)scale;
	for (int64_t i = 0; i < n; i++) {
		int64_t t = target_column(targets[i], lo, v);
		for (int64_t j = 0; j < v; j++) {
			double p = (double)logits[i * row + j] / (double)sum[i];
			logits[i * row + j] = (real)((p - (j == t)) * (double)*by);
		}
	}
}

static void xent_loss(struct backend *k, double *loss, const float *sumf, const float *targetf,
		      int64_t n)
{
	(void)k;
	const real *sum = (const real *)sumf, *target = (const real *)targetf;
	double total = 0;
	for (int64_t i = 0; i < n; i++)
		total += log((double)sum[i]) - (double)target[i];
	*loss += total;
}

void REFERENCE(xent)(struct ops *o)
{
	o->xent_max = xent_max;
	o->xent_exp = xent_exp;
	o->xent_grad = xent_grad;
	o->xent_loss = xent_loss;
}
