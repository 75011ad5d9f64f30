/*
 * The forward passes of LayerNorm and RMSNorm after the residual sum. A row is read once and kept in
 * registers, by one warp if it fits there, otherwise by a block. Rows that do not fit in a block's
 * registers, or are not whole packs, are in norm_wide.cu. Where 8-bit copies of the result are wanted,
 * these kernels only compute the sum and the statistics, and the kernel that casts (cast.cuh) computes
 * the rest.
 */
#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/norm.cuh"

/* Packs per thread; threads per block, and per block whose rows take a warp each. */
enum { FWD_PACKS = 4, FWD_MAX = 1024, FWD_SHORT = 128 };

__device__ inline float row_sum(float x, int width)
{
	return width == WARP ? warp_sum(x) : block_sum(x);
}

template <class T, bool CENTRED, bool LARGEST>
__global__ void __launch_bounds__(FWD_MAX) norm_fwd_kernel(struct norm_fwd_args<T> a, int width)
{
	constexpr int V = pack_of<T>;
	const int64_t row = (int64_t)blockIdx.x * (blockDim.x / width) + threadIdx.x / width;
	const int first = threadIdx.x % width, packs = (int)(a.c / V);
	const int64_t at = row * a.c;
	float x[FWD_PACKS][V], sum = 0, spread = 0;
	uint32_t most = 0;
	if (row >= a.n) /* only in blocks of several rows, which have no barriers: the whole warp */
		return;
	#pragma unroll
	for (int p = 0; p < FWD_PACKS; p++)
		if (first + p * width < packs)
			load<V>(x[p], a.x + at + (first + p * width) * V);
	#pragma unroll
	for (int p = 0; p < FWD_PACKS; p++)
		if (a.r && first + p * width < packs) {
			float r[V];
			load<V>(r, a.r + at + (first + p * width) * V);
			#pragma unroll
			for (int i = 0; i < V; i++)
				x[p][i] = stored<T>(x[p][i] + r[i]);
			store<V>(a.sum + at + (first + p * width) * V, x[p]);
		}
	float mean = 0;
	if (CENTRED) {
		#pragma unroll
		for (int p = 0; p < FWD_PACKS; p++)
			#pragma unroll
			for (int i = 0; i < V; i++)
				sum += first + p * width < packs ? x[p][i] : 0;
		mean = row_sum(sum, width) / (float)a.c;
	}
	#pragma unroll
	for (int p = 0; p < FWD_PACKS; p++)
		#pragma unroll
		for (int i = 0; i < V; i++)
			spread += first + p * width < packs ? (x[p][i] - mean) * (x[p][i] - mean)
							    : 0;
	float rstd = 1.0f / sqrtf(row_sum(spread, width) / (float)a.c + a.eps);
	#pragma unroll
	for (int p = 0; p < FWD_PACKS; p++)
		if (a.y && first + p * width < packs) {
			float w[V], bias[V];
			load<V>(w, a.w + (first + p * width) * V);
			if (CENTRED)
				load<V>(bias, a.bias + (first + p * width) * V);
			#pragma unroll
			for (int i = 0; i < V; i++)
				x[p][i] = (x[p][i] - mean) * rstd * w[i] + (CENTRED ? bias[i] : 0);
			store<V>(a.y + at + (first + p * width) * V, x[p]);
			if (LARGEST)
				most = most_of<T, V>(x[p], most);
		}
	if (LARGEST)
		raise_largest_of_warp(a.largest, most);
	if (first == 0) {
		a.rstd[row] = rstd;
		if (CENTRED)
			a.mean[row] = mean;
	}
}

template <class T, bool CENTRED> static bool fwd_packs(const struct norm_fwd_args<T> *a)
{
	return a->c <= (int64_t)FWD_MAX * FWD_PACKS * pack_of<T> && pack_fits(a->y, a->c) &&
	       pack_fits(a->sum, a->c) && pack_fits(a->x, a->c) && pack_fits(a->r, a->c) &&
	       pack_fits(a->w, 0) && pack_fits(a->bias, 0);
}

template <class T, bool CENTRED>
static void norm_fwd(struct backend *k, const char *op, const struct norm_fwd_args<T> *a)
{
	int width = WARP;
	if (!fwd_packs<T, CENTRED>(a)) {
		norm_fwd_wide<T>(k, op, a, CENTRED);
		return;
	}
	while ((int64_t)width * FWD_PACKS * pack_of<T> < a->c)
		width *= 2;
	int threads = width == WARP ? FWD_SHORT : width;
	launch(k, op,
	       a->largest ? norm_fwd_kernel<T, CENTRED, true> : norm_fwd_kernel<T, CENTRED, false>,
	       cuda_blocks(a->n, threads / width), threads, 0, *a, width);
}

/* What the forward pass sets once the statistics are known. y NULL: it is not stored. */
template <class T, bool CENTRED> struct norm_source {
	static constexpr int PARTS = 1;
	static constexpr bool GRADIENT = false;
	T *y;
	const T *x, *w, *bias;
	const float *mean, *rstd;
	int64_t c;
	template <bool PACKS>
	__device__ void values(float (&v)[PARTS][CHUNK], int64_t i, int64_t j, int64_t left) const
	{
		const float middle = CENTRED ? mean[i] : 0, factor = rstd[i];
		float weight[CHUNK], more[CHUNK] = {};
		chunk_load<PACKS>(v[0], x + i * c + j, left);
		chunk_load<PACKS>(weight, w + j, left);
		if (CENTRED)
			chunk_load<PACKS>(more, bias + j, left);
		#pragma unroll
		for (int l = 0; l < CHUNK; l++)
			v[0][l] = (v[0][l] - middle) * factor * weight[l] + more[l];
		chunk_keep<PACKS>(y, i * c + j, v[0], left);
	}
};

template <class T, bool CENTRED>
static void norm_fwd_cast(struct backend *k, const char *op, struct norm_fwd_args<T> *a,
			  const struct fp8_copies *to)
{
	const norm_source<T, CENTRED> s = {
		to->only ? NULL : a->y, a->r ? a->sum : a->x, a->w, a->bias, a->mean, a->rstd, a->c
	};
	if (only_largest(to)) {
		a->largest = to->scale;
		norm_fwd<T, CENTRED>(k, op, a);
		return;
	}
	a->y = NULL;
	norm_fwd<T, CENTRED>(k, op, a);
	queue_cast(k, op, to, 0, s,
		   chunk_fits(s.y, a->c) && chunk_fits(s.x, a->c) && chunk_fits(s.w, 0) &&
			   chunk_fits(s.bias, 0),
		   a->n, a->c);
}

template <class T>
static struct norm_fwd_args<T> fwd_args(void *y, void *sum, float *mean, float *rstd, const void *x,
					const void *r, const void *w, const void *bias, int64_t n,
					int64_t c, float eps) {
	return { (T *)y,       (T *)sum,        mean, rstd, (const T *)x, (const T *)r,
		 (const T *)w, (const T *)bias, n,    c,    eps,          NULL };
}

template <class T>
static void layernorm_fwd(struct backend *k, void *y, void *sum, float *mean, float *rstd,
			  const void *x, const void *r, const void *w, const void *bias, int64_t n,
			  int64_t c, float eps)
{
	struct norm_fwd_args<T> a = fwd_args<T>(y, sum, mean, rstd, x, r, w, bias, n, c, eps);
	norm_fwd<T, true>(k, "layernorm_fwd", &a);
}

template <class T>
static void layernorm_fwd_cast(struct backend *k, void *y, void *sum, float *mean, float *rstd,
			       const void *x, const void *r, const void *w, const void *bias,
			       int64_t n, int64_t c, float eps, const struct fp8_copies *to)
{
	struct norm_fwd_args<T> a = fwd_args<T>(y, sum, mean, rstd, x, r, w, bias, n, c, eps);
	norm_fwd_cast<T, true>(k, "layernorm_fwd_cast", &a, to);
}

template <class T>
static void rmsnorm_fwd(struct backend *k, void *y, void *sum, float *rstd, const void *x,
			const void *r, const void *w, int64_t n, int64_t c, float eps)
{
	struct norm_fwd_args<T> a = fwd_args<T>(y, sum, NULL, rstd, x, r, w, NULL, n, c, eps);
	norm_fwd<T, false>(k, "rmsnorm_fwd", &a);
}

template <class T>
static void rmsnorm_fwd_cast(struct backend *k, void *y, void *sum, float *rstd, const void *x,
			     const void *r, const void *w, int64_t n, int64_t c, float eps,
			     const struct fp8_copies *to)
{
	struct norm_fwd_args<T> a = fwd_args<T>(y, sum, NULL, rstd, x, r, w, NULL, n, c, eps);
	norm_fwd_cast<T, false>(k, "rmsnorm_fwd_cast", &a, to);
}

template <class T> static void fill(struct ops *o)
{
	norm_fill_bwd<T>(o);
	o->layernorm_fwd = layernorm_fwd<T>;
	o->rmsnorm_fwd = rmsnorm_fwd<T>;
	o->layernorm_fwd_cast = layernorm_fwd_cast<T>;
	o->rmsnorm_fwd_cast = rmsnorm_fwd_cast<T>;
}

CUDA_FILL(norm)
