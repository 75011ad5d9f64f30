/*
 * Vocabulary-parallel cross-entropy with one block per row, in the three steps of
 * kernels/ops_table.h, or in one.
 *
 * Rows need not begin at a multiple of 16 bytes (with 50257 columns and no gaps they do not). The
 * elements before the first whole pack and after the last one are the row's edges, and are handled
 * singly. The stride is that from one row to the next.
 */
#include <float.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

enum { ROW_MAX = 512, ROW_TURNS = 3 }; /* threads per block; packs that a thread loads at once */

/* The whole packs of a row of v elements: `packs` of them from element `head` on. */
struct row_packs {
	int head, packs, edges;
};

template <class T> __device__ inline struct row_packs packs_of(const T *row, int v)
{
	const int before = (int)((16 - (uintptr_t)row % 16) % 16 / sizeof(T)),
		  head = before < v ? before : v;
	const int packs = (v - head) / pack_of<T>;
	return { head, packs, v - packs * pack_of<T> };
}

/* The column of an edge's element. */
template <class T> __device__ inline int edge_column(const struct row_packs &r, int edge)
{
	return edge < r.head ? edge : edge + r.packs * pack_of<T>;
}

/* The target's column in this shard, or -1. */
__device__ inline int target_column(int32_t target, int32_t lo, int v)
{
	const int64_t j = (int64_t)target - lo;
	return j >= 0 && j < v ? (int)j : -1;
}

/* exp, as exact as the storage type needs. */
template <class T> __device__ inline float exp_for(float x)
{
	if constexpr (sizeof(T) == sizeof(float))
		return expf(x);
	else
		return __expf(x);
}

/* A NaN is never the maximum. */
template <class T>
__global__ void __launch_bounds__(ROW_MAX)
	max_kernel(float *max, const T *logits, int v, int64_t stride)
{
	constexpr int V = pack_of<T>;
	const T *row = logits + (int64_t)blockIdx.x * stride;
	const struct row_packs r = packs_of(row, v);
	float most = -INFINITY;
	for (int e = threadIdx.x; e < r.edges; e += blockDim.x)
		most = fmaxf(most, to_fp32(row[edge_column<T>(r, e)]));
	#pragma unroll ROW_TURNS
	for (int p = threadIdx.x; p < r.packs; p += blockDim.x) {
		float a[V];
		load<V>(a, row + r.head + p * V);
		#pragma unroll
		for (int i = 0; i < V; i++)
			most = fmaxf(most, a[i]);
	}
	most = block_max(most);
	if (threadIdx.x == 0)
		max[blockIdx.x] = most;
}

template <class T>
__global__ void __launch_bounds__(ROW_MAX, 2)
	exp_kernel(T *logits, float *sums, float *target, const float *max, const int32_t *targets,
		   int v, int64_t stride, int32_t lo)
{
	constexpr int V = pack_of<T>;
	T *row = logits + (int64_t)blockIdx.x * stride;
	const struct row_packs r = packs_of(row, v);
	const float most = max[blockIdx.x];
	float sum = 0;
	if (threadIdx.x == 0) {
		const int t = target_column(targets[blockIdx.x], lo, v);
		target[blockIdx.x] = t < 0 ? 0 : to_fp32(row[t]) - most;
	}
	__syncthreads(); /* all threads have read the target's logit */
	for (int e = threadIdx.x; e < r.edges; e += blockDim.x) {
		T *at = row + edge_column<T>(r, e);
		const float a = exp_for<T>(to_fp32(*at) - most);
		sum += a;
		*at = from_fp32<T>(a);
	}
	for (int p = threadIdx.x; p < r.packs; p += ROW_TURNS * blockDim.x) {
		float a[ROW_TURNS][V];
		#pragma unroll
		for (int t = 0; t < ROW_TURNS; t++)
			if (p + t * (int)blockDim.x < r.packs)
				load<V>(a[t], row + r.head + (p + t * (int)blockDim.x) * V);
		#pragma unroll
		for (int t = 0; t < ROW_TURNS; t++)
			if (p + t * (int)blockDim.x < r.packs) {
				#pragma unroll
				for (int i = 0; i < V; i++) {
					a[t][i] = exp_for<T>(a[t][i] - most);
					sum += a[t][i];
				}
				store<V>(row + r.head + (p + t * (int)blockDim.x) * V, a[t]);
			}
	}
	sum = block_sum(sum);
	if (threadIdx.x == 0)
		sums[blockIdx.x] = sum;
}

/* Computes the gradient of a row in place: from exponentials, or, with WHOLE, from logits. packs: the
 * row's whole packs, there or copied. */
template <class T, bool WHOLE>
__device__ inline void row_grad(T *row, const T *packs, const struct row_packs &r, float most,
				float by, float scale, int target)
{
	constexpr int V = pack_of<T>;
	for (int e = threadIdx.x; e < r.edges; e += blockDim.x) {
		const int j = edge_column<T>(r, e);
		const float a = WHOLE ? exp_for<T>(to_fp32(row[j]) - most) : to_fp32(row[j]);
		row[j] = from_fp32<T>((a * by - (j == target ? 1.0f : 0.0f)) * scale);
	}
	for (int p = threadIdx.x; p < r.packs; p += ROW_TURNS * blockDim.x) {
		float a[ROW_TURNS][V];
		#pragma unroll
		for (int t = 0; t < ROW_TURNS; t++)
			if (p + t * (int)blockDim.x < r.packs)
				load<V>(a[t], packs + (p + t * (int)blockDim.x) * V);
		#pragma unroll
		for (int t = 0; t < ROW_TURNS; t++)
			if (p + t * (int)blockDim.x < r.packs) {
				const int j = r.head + (p + t * (int)blockDim.x) * V;
				#pragma unroll
				for (int i = 0; i < V; i++) {
					const float x = WHOLE ? exp_for<T>(a[t][i] - most)
							      : a[t][i];
					a[t][i] = (x * by - (j + i == target ? 1.0f : 0.0f)) *
						  scale;
				}
				store<V>(row + j, a[t]);
			}
	}
}

template <class T>
__global__ void __launch_bounds__(ROW_MAX, 2)
	grad_kernel(T *logits, const float *sums, const int32_t *targets, const float *scale, int v,
		    int64_t stride, int32_t lo)
{
	T *row = logits + (int64_t)blockIdx.x * stride;
	const struct row_packs r = packs_of(row, v);
	row_grad<T, false>(row, row + r.head, r, 0, 1.0f / sums[blockIdx.x], *scale,
			   target_column(targets[blockIdx.x], lo, v));
}

/* The maximum of the elements so far, and the sum of exp(x - maximum). */
struct online {
	float most, sum;
};

template <class T, int N> __device__ inline void online_add(struct online &o, const float (&a)[N])
{
	float most = o.most, sum = 0;
	#pragma unroll
	for (int i = 0; i < N; i++)
		most = fmaxf(most, a[i]);
	#pragma unroll
	for (int i = 0; i < N; i++)
		sum += exp_for<T>(a[i] - most);
	o.sum = o.sum * exp_for<T>(o.most - most) + sum;
	o.most = most;
}

/* All three steps. A row is read twice: with STAGED the second time from shared memory, where it has
 * room for 2 blocks of a multiprocessor, and otherwise mostly from the L2 cache. */
template <class T, bool STAGED>
__global__ void __launch_bounds__(ROW_MAX, 2)
	whole_kernel(T *logits, float *sums, float *targets_less, const int32_t *targets,
		     const float *scale, int v, int64_t stride)
{
	constexpr int V = pack_of<T>;
	T *row = logits + (int64_t)blockIdx.x * stride;
	const struct row_packs r = packs_of(row, v);
	uint4 *staged = STAGED ? dynamic_shared<uint4>() : NULL;
	struct online o = { -FLT_MAX, 0 };
	for (int e = threadIdx.x; e < r.edges; e += blockDim.x) {
		const float a[1] = { to_fp32(row[edge_column<T>(r, e)]) };
		online_add<T, 1>(o, a);
	}
	for (int p = threadIdx.x; p < r.packs; p += ROW_TURNS * blockDim.x) {
		uint4 pack[ROW_TURNS];
		#pragma unroll
		for (int t = 0; t < ROW_TURNS; t++)
			if (p + t * (int)blockDim.x < r.packs)
				pack[t] = *(const uint4 *)(row + r.head +
							   (p + t * (int)blockDim.x) * V);
		#pragma unroll
		for (int t = 0; t < ROW_TURNS; t++)
			if (p + t * (int)blockDim.x < r.packs) {
				float a[V];
				load<V>(a, (const T *)&pack[t]);
				online_add<T, V>(o, a);
				if (STAGED)
					staged[p + t * (int)blockDim.x] = pack[t];
			}
	}
	const int target = target_column(targets[blockIdx.x], 0, v);
	/* before the barriers, since it changes after them */
	const float of_target = target < 0 ? 0 : to_fp32(row[target]);
	const float most = block_max(o.most), sum = block_sum(o.sum * exp_for<T>(o.most - most)),
		    by = 1.0f / sum;
	if (threadIdx.x == 0) {
		sums[blockIdx.x] = sum;
		targets_less[blockIdx.x] = target < 0 ? 0 : of_target - most;
	}
	row_grad<T, true>(row, STAGED ? (const T *)staged : row + r.head, r, most, by, *scale,
			  target);
}

/* The number of threads for rows of v elements, so that each has a few packs. */
static int row_threads(int64_t v)
{
	return v <= 4096 ? 128 : v <= 16384 ? 256 : (int)ROW_MAX;
}

template <class T>
static void xent_max(struct backend *k, float *max, const void *logits, int64_t n, int64_t v,
		     int64_t row)
{
	launch(k, "xent_max", max_kernel<T>, cuda_blocks(n, 1), row_threads(v), 0, max,
	       (const T *)logits, (int)v, row);
}

template <class T>
static void xent_exp(struct backend *k, void *logits, float *sum, float *target, const float *max,
		     const int32_t *targets, int64_t n, int64_t v, int64_t row, int32_t lo)
{
	launch(k, "xent_exp", exp_kernel<T>, cuda_blocks(n, 1), row_threads(v), 0, (T *)logits, sum,
	       target, max, targets, (int)v, row, lo);
}

template <class T>
static void xent_grad(struct backend *k, void *logits, const float *sum, const int32_t *targets,
		      const float *scale, int64_t n, int64_t v, int64_t row, int32_t lo)
{
	launch(k, "xent_grad", grad_kernel<T>, cuda_blocks(n, 1), row_threads(v), 0, (T *)logits,
	       sum, targets, scale, (int)v, row, lo);
}

template <class T>
static void xent(struct backend *k, void *logits, float *sum, float *target, const int32_t *targets,
		 const float *scale, int64_t n, int64_t v, int64_t row)
{
	/* Each block takes this much shared memory besides the row: the system takes 1024 bytes, block_max and block_sum
	 * take 128 each. */
	enum { SHARED_KEPT = 1024 + 256 };
	const size_t bytes = (size_t)v * sizeof(T) / 16 * 16;
	const bool fits = 2 * (bytes + SHARED_KEPT) <= cuda_of(k)->shared_most + SHARED_KEPT;
	launch(k, "xent", fits ? whole_kernel<T, true> : whole_kernel<T, false>, cuda_blocks(n, 1),
	       row_threads(v), fits ? bytes : 0, (T *)logits, sum, target, targets, scale, (int)v,
	       row);
}

enum { LOSS = 1024 };

__global__ void __launch_bounds__(LOSS)
	loss_kernel(double *loss, const float *sum, const float *target, int64_t n)
{
	double total = 0;
	for (int64_t i = threadIdx.x; i < n; i += LOSS)
		total += log((double)sum[i]) - (double)target[i];
	total = block_sum(total);
	if (threadIdx.x == 0)
		*loss += total;
}

static void xent_loss(struct backend *k, double *loss, const float *sum, const float *target,
		      int64_t n)
{
	launch(k, "xent_loss", loss_kernel, cuda_blocks(n, INT64_MAX / 2), LOSS, 0, loss, sum,
	       target, n);
}

template <class T> static void fill(struct ops *o)
{
	o->xent_max = xent_max<T>;
	o->xent_exp = xent_exp<T>;
	o->xent_grad = xent_grad<T>;
	o->xent = xent<T>;
	o->xent_loss = xent_loss;
}

CUDA_FILL(xent)
