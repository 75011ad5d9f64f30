/* Ops over the flat parameter buffer. They are bound by memory bandwidth, so each makes one
 * pass. */
#include "base/numbers.h"
#include "kernels/cpu/cpu.h"

#include <math.h>

/* Elements per block of sqnorm: so many that the blocks' sums fit in the scratch of one thread. */
enum { BLOCK = 1 << 16 };

static double block_sum(const float *x, int64_t n)
{
	double sum = 0;
	#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	return sum;
}

/* Blocks have a fixed size and are added in order, so any number of threads gives the same bits. */
static void sqnorm(struct backend *k, double *sum, const float *x, int64_t count)
{
	double *sums = backend_scratch(k, 0), total = 0;
	const int64_t most = (int64_t)(BACKEND_SCRATCH / sizeof *sums) * BLOCK;
	for (int64_t at = 0; at < count; at += most) {
		int64_t n = min_int64(most, count - at), blocks = (n + BLOCK - 1) / BLOCK;
		#pragma omp parallel for schedule(static) num_threads(cpu_team(k, n))
		for (int64_t b = 0; b < blocks; b++)
			sums[b] = block_sum(x + at + b * BLOCK, min_int64(BLOCK, n - b * BLOCK));
		for (int64_t b = 0; b < blocks; b++)
			total += sums[b];
	}
	*sum += total;
}

static void adamw_one(struct backend *k, const struct update *u, const struct adamw_args *a,
		      const struct step_numbers *s)
{
	float *p = u->p, *m = u->m, *v = u->v;
	const float *g = u->g;
	const float b1 = a->beta1, b2 = a->beta2, scale = s->grad_scale, eps = a->eps;
	const float c1 = (float)(1 - (double)b1), c2 = (float)(1 - (double)b2);
	const float unbias2 = (float)(1 / sqrt(1 - pow((double)b2, (double)s->step)));
	const float rate = (float)((double)s->lr / (1 - pow((double)b1, (double)s->step)));
	const float keep = (float)(1 - (double)s->lr * (double)u->weight_decay);
	#pragma omp parallel for simd schedule(static) num_threads(cpu_team(k, u->count))
	for (int64_t i = 0; i < u->count; i++) {
		float gi = g[i] * scale;
		float mi = m[i] * b1 + gi * c1;
		float vi = v[i] * b2 + gi * gi * c2;
		p[i] = p[i] * keep - rate * mi / (sqrtf(vi) * unbias2 + eps);
		m[i] = mi;
		v[i] = vi;
	}
}

static void adamw(struct backend *k, const struct update *u, int n, const struct adamw_args *a,
		  const struct step_numbers *s)
{
	for (int i = 0; i < n && !s->skip; i++) {
		adamw_one(k, &u[i], a, s);
		backend_update_store(k, &u[i]);
	}
}

static void sgd_one(struct backend *k, const struct update *u, const struct sgd_args *a,
		    const struct step_numbers *s)
{
	float *p = u->p, *m = u->m;
	const float *g = u->g;
	const float scale = s->grad_scale, decay = u->weight_decay, lr = s->lr,
		    momentum = a->momentum;
	const bool first = s->step <= 1; /* ignores what m holds, even NaN */
	#pragma omp parallel for simd schedule(static) num_threads(cpu_team(k, u->count))
	for (int64_t i = 0; i < u->count; i++) {
		float before = first ? 0 : momentum * m[i];
		float mi = before + (g[i] * scale + p[i] * decay);
		p[i] -= lr * mi;
		m[i] = mi;
	}
}

static void sgd(struct backend *k, const struct update *u, int n, const struct sgd_args *a,
		const struct step_numbers *s)
{
	for (int i = 0; i < n && !s->skip; i++) {
		sgd_one(k, &u[i], a, s);
		backend_update_store(k, &u[i]);
	}
}

void CPU(optim)(struct ops *o)
{
	o->sqnorm = sqnorm;
	o->adamw = adamw;
	o->sgd = sgd;
}
