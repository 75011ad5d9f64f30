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
	unsigned first[BATCH + 1]; /* block of each update */
	uint32_t packs;            /* bit i: packs of four fit update i */
};

/* adamw_args, with what the host computes once. */
struct adamw_step {
	float beta1, beta2, rest1, rest2, unbias2, rate, lr, eps, grad_scale;
};

struct adamw_rule {
	struct adamw_step a;
	static constexpr bool second = true;
	__device__ void step(float &p, float g, float &m, float &v, float decay) const
	{
		g *= a.grad_scale;
		m = m * a.beta1 + g * a.rest1;
		v = v * a.beta2 + g * g * a.rest2;
		p = p * (1.0f - a.lr * decay) - a.rate * m / (sqrtf(v) * a.unbias2 + a.eps);
	}
};

/* The first step ignores what m holds, even NaN. */
struct sgd_rule {
	float lr, momentum, grad_scale;
	bool begins;
	static constexpr bool second = false;
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

/* The block's range of one update, in packs of V. */
template <class T, int V, class Rule>
__device__ inline void update_stretch(const struct update &u, unsigned block, const Rule &rule)
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
		if (u.stored && u.random && left > 0)
			round_randomly<T, V>(p[t], u.key, u.first + (uint64_t)at);
		if (u.stored)
			store_some<V>((T *)u.stored + at, p[t], left);
	}
}

template <class T, class Rule>
__global__ void __launch_bounds__(UPDATE)
	update_kernel(const __grid_constant__ struct batch b, Rule rule)
{
	const int i = update_of_block(b);
	if (b.packs >> i & 1)
		update_stretch<T, 4>(b.u[i], blockIdx.x - b.first[i], rule);
	else
		update_stretch<T, 1>(b.u[i], blockIdx.x - b.first[i], rule);
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
		memset(&b, 0, sizeof b);
		for (int j = 0; j < BATCH; j++) {
			bool there = i + j < n;
			if (there)
				b.u[j] = u[i + j];
			if (there && update_packs<T>(&u[i + j]))
				b.packs |= 1u << j;
			b.first[j + 1] = b.first[j] +
					 (there ? cuda_blocks(u[i + j].count, UPDATE * UPDATE_EACH)
						: 0);
		}
		launch(k, op, update_kernel<T, Rule>, b.first[BATCH], UPDATE, 0, b, rule);
	}
}

template <class T>
static void adamw(struct backend *k, const struct update *u, int n, const struct adamw_args *a)
{
	double bias1 = 1 - pow((double)a->beta1, (double)a->step),
	       bias2 = 1 - pow((double)a->beta2, (double)a->step);
	struct adamw_rule rule = { {
		a->beta1,
		a->beta2,
		(float)(1 - (double)a->beta1),
		(float)(1 - (double)a->beta2),
		(float)(1 / sqrt(bias2)),
		(float)((double)a->lr / bias1),
		a->lr,
		a->eps,
		a->grad_scale,
	} };
	update_all<T, adamw_rule>(k, "adamw", u, n, rule);
}

template <class T>
static void sgd(struct backend *k, const struct update *u, int n, const struct sgd_args *a)
{
	struct sgd_rule rule = { a->lr, a->momentum, a->grad_scale, a->step <= 1 };
	update_all<T, sgd_rule>(k, "sgd", u, n, rule);
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
}

CUDA_FILL(optim)
