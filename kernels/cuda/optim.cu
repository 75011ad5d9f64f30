/*
 * Ops over parameters; each goes over memory once. A list of updates is passed by value in a kernel's
 * parameters, BATCH at a time, so that nothing has to be copied to the device first. Each block
 * finds its range from the number of blocks of the updates before it.
 */
#include <math.h>
#include <string.h>

#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/sums.cuh"

/* threads per block, elements per thread, updates per launch, which fit in 4 KiB */
enum { UPDATE = 256, UPDATE_EACH = 8, BATCH = 32 };

struct batch {
	struct update u[BATCH];
	double row_part[BATCH];    /* 1 / u.row */
	unsigned first[BATCH + 1]; /* block of each update */
	uint32_t packs;            /* bit i: packs of four fit update i */
};

/* Each thread reads the step's numbers by begin(), which returns false if nothing is to change. */

/* What a step has in common, computed once for all blocks. */
struct adamw_unbias {
	float unbias2, rate;
};

struct adamw_rule {
	float beta1, beta2, rest1, rest2, eps;
	const struct step_numbers *numbers;
	const struct adamw_unbias *unbias;
	float unbias2 = 0, rate = 0, lr = 0, grad_scale = 0; /* set by begin */
	static constexpr bool second = true;
	__device__ bool begin()
	{
		unbias2 = unbias->unbias2;
		rate = unbias->rate;
		lr = numbers->lr;
		grad_scale = numbers->grad_scale;
		return !numbers->skip;
	}
	__device__ void step(float &p, float g, float &m, float &v, float decay) const
	{
		g *= grad_scale;
		m = m * beta1 + g * rest1;
		v = v * beta2 + g * g * rest2;
		p = p * (1.0f - lr * decay) - rate * m / (sqrtf(v) * unbias2 + eps);
	}
};

/* The first step ignores what m holds, even NaN. */
struct sgd_rule {
	float momentum;
	const struct step_numbers *numbers;
	float lr = 0, grad_scale = 0; /* set by begin */
	bool begins = false;
	static constexpr bool second = false;
	__device__ bool begin()
	{
		lr = numbers->lr;
		grad_scale = numbers->grad_scale;
		begins = numbers->step <= 1;
		return !numbers->skip;
	}
	__device__ void step(float &p, float g, float &m, float &, float decay) const
	{
		m = (begins ? 0 : momentum * m) + (g * grad_scale + p * decay);
		p -= lr * m;
	}
};

__device__ inline int update_of_block(const struct batch &b)
{
	int lo = 0;
	#pragma unroll
	for (int step = BATCH / 2; step; step /= 2)
		lo += b.first[lo + step] <= blockIdx.x ? step : 0;
	return lo;
}

/* As backend_update_row: the number of element `at`. *count is at most `most`. A division of 64 bits
 * would be a call, which keeps registers in local memory; the product is off by at most one row. */
__device__ inline uint64_t update_row(const struct update &u, double row_part, int64_t at, int most,
				      int *count)
{
	const int64_t in = u.column + at, near = (int64_t)((double)in * row_part),
		      off = in - near * u.row,
		      rows = near + (off >= u.row ? 1
				     : off < 0    ? -1
						  : 0),
		      left = (rows + 1) * u.row - in;
	*count = left < most ? (int)left : most;
	return u.first + (uint64_t)(at + rows * u.gap);
}

/* Rounds the elements [at, at + V) of the update, which may end before, as its `stored` is. */
template <class T, int V>
__device__ inline void round_update(float (&p)[V], const struct update &u, double row_part,
				    int64_t at)
{
	int count = V;
	const uint64_t first = update_row(u, row_part, at, V, &count);
	if (count == V) {
		round_randomly<T, V>(p, u.key, first);
		return;
	}
	#pragma unroll
	for (int i = 0; i < V; i++) {
		float one[1] = { p[i] };
		round_randomly<T, 1>(one, u.key, update_row(u, row_part, at + i, 1, &count));
		p[i] = one[0];
	}
}

/* The block's range of one update, in packs of V. ROWS: its random numbers may have gaps. */
template <class T, int V, bool ROWS, class Rule>
__device__ inline void update_stretch(const struct update &u, double row_part, unsigned block,
				      const Rule &rule)
{
	constexpr int turns = UPDATE_EACH / V;
	float p[turns][V], g[turns][V], m[turns][V], v[turns][V];
	#pragma unroll
	for (int t = 0; t < turns; t++) {
		const int64_t at = (((int64_t)block * turns + t) * UPDATE + threadIdx.x) * V,
			      left = u.count - at;
		load_some<V>(p[t], u.p + at, left);
		load_some<V>(g[t], u.g + at, left);
		load_some<V>(m[t], u.m + at, left);
		if (Rule::second)
			load_some<V>(v[t], u.v + at, left);
	}
	#pragma unroll
	for (int t = 0; t < turns; t++) {
		const int64_t at = (((int64_t)block * turns + t) * UPDATE + threadIdx.x) * V,
			      left = u.count - at;
		#pragma unroll
		for (int i = 0; i < V; i++)
			rule.step(p[t][i], g[t][i], m[t][i], v[t][i], u.weight_decay);
		store_some<V>(u.p + at, p[t], left);
		store_some<V>(u.m + at, m[t], left);
		if (Rule::second)
			store_some<V>(u.v + at, v[t], left);
		if (ROWS && u.gap && left > 0)
			round_update<T, V>(p[t], u, row_part, at);
		else if (u.stored && u.random && left > 0)
			round_randomly<T, V>(p[t], u.key, u.first + (uint64_t)at);
		if (u.stored)
			store_some<V>((T *)u.stored + at, p[t], left);
	}
}

template <class T, bool ROWS, class Rule>
__global__ void __launch_bounds__(UPDATE)
	update_kernel(const __grid_constant__ struct batch b, Rule rule)
{
	const int i = update_of_block(b);
	if (!rule.begin())
		return;
	if (b.packs >> i & 1)
		update_stretch<T, 4, ROWS>(b.u[i], b.row_part[i], blockIdx.x - b.first[i], rule);
	else
		update_stretch<T, 1, ROWS>(b.u[i], b.row_part[i], blockIdx.x - b.first[i], rule);
}

template <class T> static bool update_packs(const struct update *u)
{
	return pack_fits(u->p, 0) && pack_fits(u->g, 0) && pack_fits(u->m, 0) &&
	       pack_fits(u->v, 0) && (uintptr_t)u->stored % (4 * sizeof(T)) == 0;
}

template <class T, class Rule>
static void update_all(struct backend *k, const char *op, const struct update *u, int n,
		       const Rule &rule)
{
	for (int i = 0; i < n; i += BATCH) {
		struct batch b;
		bool rows = false;
		memset(&b, 0, sizeof b);
		for (int j = 0; j < BATCH; j++) {
			bool there = i + j < n;
			if (there)
				b.u[j] = u[i + j];
			if (there && u[i + j].gap) {
				b.row_part[j] = 1.0 / (double)u[i + j].row;
				rows = true;
			}
			if (there && update_packs<T>(&u[i + j]))
				b.packs |= 1u << j;
			b.first[j + 1] = b.first[j] +
					 (there ? cuda_blocks(u[i + j].count, UPDATE * UPDATE_EACH)
						: 0);
		}
		launch(k, op, rows ? update_kernel<T, true, Rule> : update_kernel<T, false, Rule>,
		       b.first[BATCH], UPDATE, 0, b, rule);
	}
}

static __global__ void unbias_kernel(struct adamw_unbias *out, const struct step_numbers *s,
				     double beta1, double beta2)
{
	const double step = (double)s->step;
	out->unbias2 = (float)(1 / sqrt(1 - pow(beta2, step)));
	out->rate = (float)((double)s->lr / (1 - pow(beta1, step)));
}

template <class T>
static void adamw(struct backend *k, const struct update *u, int n, const struct adamw_args *a,
		  const struct step_numbers *s)
{
	struct adamw_unbias *unbias = (struct adamw_unbias *)cuda_scratch(k, sizeof *unbias,
									  "adamw");
	struct adamw_rule rule = { a->beta1,
				   a->beta2,
				   (float)(1 - (double)a->beta1),
				   (float)(1 - (double)a->beta2),
				   a->eps,
				   s,
				   unbias };
	launch(k, "adamw", unbias_kernel, n > 0, 1, 0, unbias, s, (double)a->beta1,
	       (double)a->beta2);
	update_all<T, adamw_rule>(k, "adamw", u, n, rule);
}

template <class T>
static void sgd(struct backend *k, const struct update *u, int n, const struct sgd_args *a,
		const struct step_numbers *s)
{
	struct sgd_rule rule = { a->momentum, s };
	update_all<T, sgd_rule>(k, "sgd", u, n, rule);
}

/* --- the step's numbers; as backend_host_step_judge --- */

static __global__ void judge_kernel(struct step_numbers *s, struct step_rule r)
{
	const double norm = sqrt(s->sums[STEP_SQUARES]) / s->loss_scale;
	const bool finite = isfinite(s->sums[STEP_LOSS]) && isfinite(norm);
	s->norm = norm;
	s->grad_scale = (float)((r.clip > 0 && norm > r.clip ? r.clip / norm : 1) / s->loss_scale);
	s->skip = !finite || s->sums[STEP_LOSS] / r.tokens > s->loss_limit || norm > s->norm_limit;
	if (r.window > 0 && !finite) {
		s->loss_scale = s->loss_scale > 1 ? s->loss_scale / 2 : s->loss_scale;
		s->good = 0;
	} else if (r.window > 0 && ++s->good >= r.window && s->loss_scale < r.scale_max) {
		s->loss_scale *= 2;
		s->good = 0;
	}
	s->logit_scale = (float)(s->loss_scale / r.tokens);
}

static void step_judge(struct backend *k, struct step_numbers *s, const struct step_rule *r)
{
	launch(k, "step_judge", judge_kernel, 1, 1, 0, s, *r);
}

/* --- the sum of squares --- */

enum { SQUARES = 256, SQUARES_TURNS = 4, SQUARES_BLOCKS = 1024 };

/* A single block adds to `sum` itself; several write their parts. */
template <int V>
__global__ void __launch_bounds__(SQUARES)
	sqnorm_kernel(double *sum, double *parts, const float *x, int64_t count)
{
	double total = 0;
	for (int64_t base = (int64_t)blockIdx.x * SQUARES * SQUARES_TURNS * V; base < count;
	     base += (int64_t)gridDim.x * SQUARES * SQUARES_TURNS * V) {
		float a[SQUARES_TURNS][V];
		#pragma unroll
		for (int t = 0; t < SQUARES_TURNS; t++) {
			const int64_t at = base + (t * SQUARES + (int)threadIdx.x) * V;
			load_some<V>(a[t], x + at, count - at);
		}
		#pragma unroll
		for (int t = 0; t < SQUARES_TURNS; t++)
			#pragma unroll
			for (int i = 0; i < V; i++)
				total += (double)a[t][i] * (double)a[t][i];
	}
	total = block_sum(total);
	if (threadIdx.x == 0 && gridDim.x == 1)
		*sum += total;
	else if (threadIdx.x == 0)
		parts[blockIdx.x] = total;
}

static void sqnorm(struct backend *k, double *sum, const float *x, int64_t count)
{
	bool packs = pack_fits(x, 0);
	unsigned blocks = cuda_blocks(count, SQUARES * SQUARES_TURNS * (packs ? 4 : 1));
	blocks = blocks < SQUARES_BLOCKS ? blocks : (unsigned)SQUARES_BLOCKS;
	double *parts = (double *)cuda_scratch(k, SQUARES_BLOCKS * sizeof *parts, "sqnorm");
	launch(k, "sqnorm", packs ? sqnorm_kernel<4> : sqnorm_kernel<1>, blocks, SQUARES, 0, sum,
	       parts, x, count);
	if (blocks > 1)
		cuda_add_parts(k, "sqnorm", sum, parts, blocks);
}

template <class T> static void fill(struct ops *o)
{
	o->adamw = adamw<T>;
	o->sgd = sgd<T>;
	o->sqnorm = sqnorm;
	o->step_judge = step_judge;
}

CUDA_FILL(optim)
