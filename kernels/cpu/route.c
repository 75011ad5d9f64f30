/* The router of a mixture of experts, one token at a time, since rows are small. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vmath.h"

#include <math.h>

static float row_max(const float *x, int64_t n)
{
	float max = -INFINITY;
	#pragma omp simd reduction(max : max)
	for (int64_t j = 0; j < n; j++)
		max = x[j] > max ? x[j] : max;
	return max;
}

/* y = exp(x - max); returns the sum. */
static float row_exp(float *y, const float *x, float max, int64_t n)
{
	float sum = 0;
	#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < n; j++) {
		y[j] = v_exp(x[j] - max);
		sum += y[j];
	}
	return sum;
}

static bool among(const int32_t *chosen, int64_t n, int64_t j)
{
	for (int64_t i = 0; i < n; i++)
		if (chosen[i] == j)
			return true;
	return false;
}

/* The expert with the largest logit that is not chosen yet; the first among equals. */
static int32_t next_largest(const float *logits, int64_t e, const int32_t *chosen, int64_t n)
{
	int64_t best = -1;
	for (int64_t j = 0; j < e; j++)
		if ((best < 0 || logits[j] > logits[best]) && !among(chosen, n, j))
			best = j;
	return (int32_t)best;
}

static void route_token(int32_t *chosen, float *weights, float *probs, float *lse,
			const float *logits, int64_t e, int64_t top, bool before)
{
	float max = row_max(logits, e), sum = row_exp(probs, logits, max, e), chosen_sum = 0;
	for (int64_t j = 0; j < top; j++) {
		chosen[j] = next_largest(logits, e, chosen, j);
		chosen_sum += probs[chosen[j]];
	}
	for (int64_t j = 0; j < top; j++)
		weights[j] = probs[chosen[j]] / (before ? sum : chosen_sum);
	for (int64_t j = 0; j < e; j++)
		probs[j] /= sum;
	*lse = max + logf(sum);
}

static void route_fwd(struct backend *k, int32_t *chosen, float *weights, float *probs, float *lse,
		      const float *logits, int64_t n, int64_t e, int64_t top, bool before)
{
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * e * 4))
	for (int64_t i = 0; i < n; i++)
		route_token(chosen + i * top, weights + i * top, probs + i * e, lse + i,
			    logits + i * e, e, top, before);
}

/* Turns dlogits from the gradient of probs into that of the logits. slope: the gradient of lse. */
static void softmax_bwd(float *dlogits, const float *probs, float slope, int64_t e)
{
	float mean = 0;
	#pragma omp simd reduction(+ : mean)
	for (int64_t j = 0; j < e; j++)
		mean += dlogits[j] * probs[j];
	#pragma omp simd
	for (int64_t j = 0; j < e; j++)
		dlogits[j] = probs[j] * (dlogits[j] - mean + slope);
}

static void add_chosen(float *dlogits, const float *dweights, const int32_t *chosen,
		       const float *weights, int64_t top)
{
	float mean = 0;
	for (int64_t j = 0; j < top; j++)
		mean += dweights[j] * weights[j];
	for (int64_t j = 0; j < top; j++)
		dlogits[chosen[j]] += weights[j] * (dweights[j] - mean);
}

static void route_bwd(struct backend *k, float *dlogits, const float *dweights,
		      const int32_t *chosen, const float *weights, const float *probs,
		      const float *lse, const float *load, float aux, float z, const float *scale,
		      int64_t n, int64_t e, int64_t top, bool before)
{
	#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n * e * 4))
	for (int64_t i = 0; i < n; i++) {
		float *row = dlogits + i * e;
		float share = aux * *scale;
		for (int64_t j = 0; j < e; j++)
			row[j] = load ? share * load[j] : 0;
		for (int64_t j = i * top; j < (before ? (i + 1) * top : 0); j++)
			row[chosen[j]] += dweights[j];
		softmax_bwd(row, probs + i * e, 2 * (z * *scale) * lse[i], e);
		if (!before)
			add_chosen(row, dweights + i * top, chosen + i * top, weights + i * top,
				   top);
	}
}

static void route_load(struct backend *k, float *load, const int64_t *choices, int64_t count,
		       int64_t all)
{
	(void)k;
	for (int64_t i = 0; i < count; i++)
		load[i] = (float)choices[i] / (float)all;
}

static void route_loss(struct backend *k, double *loss, const float *load, const float *probs,
		       const float *lse, int64_t n, int64_t e, int64_t seq, double aux, double z)
{
	(void)k;
	double balance = 0, squares = 0;
	for (int64_t t = 0; t < n; t++) {
		const float *shares = load + t / seq * e, *row = probs + t * e;
		double sum = 0;
		#pragma omp simd reduction(+ : sum)
		for (int64_t x = 0; x < e; x++)
			sum += (double)shares[x] * (double)row[x];
		balance += sum;
		squares += (double)lse[t] * (double)lse[t];
	}
	*loss += aux * balance + z * squares;
}

void CPU(route)(struct ops *o)
{
	o->route_fwd = route_fwd;
	o->route_bwd = route_bwd;
	o->route_load = route_load;
	o->route_loss = route_loss;
}
