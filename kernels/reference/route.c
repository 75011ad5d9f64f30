/*
 * Mixture of experts: the router, and the rows that are sent to experts and come back.
 *
 * The backward pass of a softmax p with gradient dp: dlogit_i = p_i (dp_i - sum of dp_j p_j over j).
 */
#include "kernels/reference/reference.h"

#include <math.h>

static double log_sum_exp(const real *x, int64_t n)
{
	double max = -INFINITY, sum = 0;
	for (int64_t i = 0; i < n; i++)
		max = fmax(max, (double)x[i]);
	for (int64_t i = 0; i < n; i++)
		sum += exp((double)x[i] - max);
	return max + log(sum);
}

static bool among(const int32_t *chosen, int64_t n, int64_t j)
{
	for (int64_t i = 0; i < n; i++)
		if (chosen[i] == j)
			return true;
	return false;
}

/* The expert with the largest logit that is not chosen yet; the first among equals. */
static int32_t next_largest(const real *logits, int64_t e, const int32_t *chosen, int64_t n)
{
	int64_t best = -1;
	for (int64_t j = 0; j < e; j++)
		if (!among(chosen, n, j) && (best < 0 || logits[j] > logits[best]))
			best = j;
	return (int32_t)best;
}

static void route_token(int32_t *chosen, real *weights, real *probs, real *lse, const real *logits,
			int64_t e, int64_t top, bool before)
{
	double l = log_sum_exp(logits, e), sum = 0;
	for (int64_t j = 0; j < e; j++)
		probs[j] = (real)exp((double)logits[j] - l);
	*lse = (real)l;
	for (int64_t j = 0; j < top; j++)
		chosen[j] = next_largest(logits, e, chosen, j);
	for (int64_t j = 0; j < top; j++)
		sum += exp((double)logits[chosen[j]] - (double)logits[chosen[0]]);
	for (int64_t j = 0; j < top; j++)
		weights[j] =
			before ? probs[chosen[j]]
			       : (real)(exp((double)logits[chosen[j]] - (double)logits[chosen[0]]) /
					sum);
}

static void route_fwd(struct backend *k, int32_t *chosen, float *weights, float *probs, float *lse,
		      const float *logits, int64_t n, int64_t e, int64_t top, bool before)
{
	(void)k;
	for (int64_t i = 0; i < n; i++)
		route_token(chosen + i * top, (real *)weights + i * top, (real *)probs + i * e,
			    (real *)lse + i, (const real *)logits + i * e, e, top, before);
}

/* The inputs of one token's backward pass. */
struct routed {
	const real *dweights, *weights, *probs, *load;
	double aux; /* the gradient of probs[j] has aux * load[j] */
	const int32_t *chosen;
	int64_t e, top;
	bool before;
};

/* The gradient of probs[j]. */
static double prob_gradient(const struct routed *r, int64_t j)
{
	double d = r->load ? r->aux * (double)r->load[j] : 0;
	for (int64_t i = 0; i < r->top && r->before; i++)
		d += r->chosen[i] == j ? (double)r->dweights[i] : 0;
	return d;
}

static void route_token_bwd(real *dlogits, const struct routed *r, double z_slope)
{
	double mean = 0, mean_chosen = 0;
	for (int64_t j = 0; j < r->e; j++)
		mean += prob_gradient(r, j) * (double)r->probs[j];
	for (int64_t i = 0; i < r->top; i++)
		mean_chosen += (double)r->dweights[i] * (double)r->weights[i];
	for (int64_t j = 0; j < r->e; j++) {
		double d = (double)r->probs[j] * (prob_gradient(r, j) - mean + z_slope);
		for (int64_t i = 0; i < r->top && !r->before; i++)
			if (r->chosen[i] == j)
				d += (double)r->weights[i] * ((double)r->dweights[i] - mean_chosen);
		dlogits[j] = (real)d;
	}
}

static void route_bwd(struct backend *k, float *dlogits, const float *dweights,
		      const int32_t *chosen, const float *weights, const float *probs,
		      const float *lse, const float *load, float aux, float z, const float *scale,
		      int64_t n, int64_t e, int64_t top, bool before)
{
	(void)k;
	for (int64_t i = 0; i < n; i++) {
		double by = (double)*(const real *)scale;
		struct routed r = {
			(const real *)dweights + i * top,
			(const real *)weights + i * top,
			(const real *)probs + i * e,
			(const real *)load,
			(double)aux * by,
			chosen + i * top,
			e,
			top,
			before,
		};
		route_token_bwd((real *)dlogits + i * e, &r,
				2 * (double)z * by * (double)((const real *)lse)[i]);
	}
}

static void route_load(struct backend *k, float *load, const int64_t *choices, int64_t count,
		       int64_t all)
{
	(void)k;
	for (int64_t i = 0; i < count; i++)
		((real *)load)[i] = (real)choices[i] / (real)all;
}

static void route_loss(struct backend *k, double *loss, const float *loadf, const float *probsf,
		       const float *lsef, int64_t n, int64_t e, int64_t seq, double aux, double z)
{
	(void)k;
	const real *load = (const real *)loadf, *probs = (const real *)probsf,
		   *lse = (const real *)lsef;
	double balance = 0, squares = 0;
	for (int64_t t = 0; t < n; t++) {
		for (int64_t x = 0; x < e; x++)
			balance += (double)load[t / seq * e + x] * (double)probs[t * e + x];
		squares += (double)lse[t] * (double)lse[t];
	}
	*loss += aux * balance + z * squares;
}

static void gather_rows(struct backend *k, void *yv, const void *xv, const int64_t *from, int64_t n,
			int64_t c)
{
	(void)k;
	real *y = yv;
	const real *x = xv;
	for (int64_t i = 0; i < n; i++)
		for (int64_t l = 0; l < c; l++)
			y[i * c + l] = from[i] < 0 ? 0 : x[from[i] * c + l];
}

static void copy_rows(struct backend *k, void *yv, int64_t y_row, const void *xv, int64_t x_row,
		      int64_t n, int64_t c)
{
	(void)k;
	real *y = yv;
	const real *x = xv;
	for (int64_t i = 0; i < n; i++)
		for (int64_t l = 0; l < c; l++)
			y[i * y_row + l] = x[i * x_row + l];
}

static void combine_fwd(struct backend *k, void *yv, const void *xv, const int64_t *at,
			const float *weightsf, int64_t n, int64_t top, int64_t c)
{
	(void)k;
	real *y = yv;
	const real *x = xv, *weights = (const real *)weightsf;
	for (int64_t i = 0; i < n; i++)
		for (int64_t l = 0; l < c; l++) {
			double sum = 0;
			for (int64_t j = i * top; j < (i + 1) * top; j++)
				if (at[j] >= 0)
					sum += (weights ? (double)weights[j] : 1) *
					       (double)x[at[j] * c + l];
			y[i * c + l] = (real)sum;
		}
}

static void combine_bwd(struct backend *k, void *dxv, float *dweightsf, const void *dyv,
			const void *xv, const int64_t *at, const float *weightsf, int64_t n,
			int64_t top, int64_t c)
{
	(void)k;
	real *dx = dxv, *dweights = (real *)dweightsf;
	const real *dy = dyv, *x = xv, *weights = (const real *)weightsf;
	for (int64_t j = 0; j < n * top; j++) {
		double sum = 0;
		for (int64_t l = 0; l < c && at[j] >= 0; l++) {
			double d = (double)dy[j / top * c + l];
			dx[at[j] * c + l] = (real)((weights ? (double)weights[j] : 1) * d);
			if (dweights)
				sum += d * (double)x[at[j] * c + l];
		}
		if (dweights)
			dweights[j] = (real)sum;
	}
}

void REFERENCE(route)(struct ops *o)
{
	o->route_fwd = route_fwd;
	o->route_bwd = route_bwd;
	o->route_load = route_load;
	o->route_loss = route_loss;
	o->gather_rows = gather_rows;
	o->copy_rows = copy_rows;
	o->combine_fwd = combine_fwd;
	o->combine_bwd = combine_bwd;
}
