/* Cross-entropy over rows of logits. Each step is one pass over the row. */
#include "base/numbers.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vmath.h"

#include <math.h>

/* Elements of a row that are summed in float before they are added in double. */
enum { RUN = 2048 };

static float row_max(const float *x, int64_t v)
{
	float max = -INFINITY;
	#pragma omp simd reduction(max : max)
	for (int64_t j = 0; j < v; j++)
		max = x[j] > max ? x[j] : max;
	return max;
}

static void xent_max(struct backend *k, float *max, const void *logitsv, int64_t n, int64_t v,
		     int64_t row)
{
	const float *logits = logitsv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * v))
	for (int64_t i = 0; i < n; i++)
		max[i] = row_max(logits + i * row, v);
}

static float exp_run(float *x, float max, int64_t v)
{
	float sum = 0;
	#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < v; j++) {
		x[j] = v_exp(x[j] - max);
		sum += x[j];
	}
	return sum;
}

static double row_exp(float *x, float max, int64_t v)
{
	double sum = 0;
	for (int64_t j = 0; j < v; j += RUN)
		sum += (double)exp_run(x + j, max, min_int64(RUN, v - j));
	return sum;
}

/* The target's column in this shard, or -1. */
static int64_t target_column(int32_t target, int32_t lo, int64_t v)
{
	int64_t j = (int64_t)target - lo;
	return j >= 0 && j < v ? j : -1;
}

static void xent_exp(struct backend *k, void *logitsv, float *sum, float *target, const float *max,
		     const int32_t *targets, int64_t n, int64_t v, int64_t row, int32_t lo)
{
	float *logits = logitsv;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * v))
	for (int64_t i = 0; i < n; i++) {
		int64_t t = target_column(targets[i], lo, v);
		target[i] = t < 0 ? 0 : logits[i * row + t] - max[i];
		sum[i] = (float)row_exp(logits + i * row, max[i], v);
	}
}

static void xent_grad(struct backend *k, void *logitsv, const float *sum, const int32_t *targets,
		      const float *scale_at, int64_t n, int64_t v, int64_t row, int32_t lo)
{
	float *logits = logitsv;
	const float scale = n ? *scale_at : 0;
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * v))
	for (int64_t i = 0; i < n; i++) {
		float *x = logits + i * row, by = scale / sum[i];
		int64_t t = target_column(targets[i], lo, v);
		float p = t < 0 ? 0 : x[t] / sum[i];
		#pragma omp simd
		for (int64_t j = 0; j < v; j++)
			x[j] *= by;
		if (t >= 0)
			x[t] = (p - 1) * scale;
	}
}

static void xent_loss(struct backend *k, double *loss, const float *sum, const float *target,
		      int64_t n)
{
	(void)k;
	double total = 0;
	for (int64_t i = 0; i < n; i++)
		total += log((double)sum[i]) - (double)target[i];
	*loss += total;
}

void CPU(xent)(struct ops *o)
{
	o->xent_max = xent_max;
	o->xent_exp = xent_exp;
	o->xent_grad = xent_grad;
	o->xent_loss = xent_loss;
}
