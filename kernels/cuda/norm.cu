/*
 * LayerNorm and RMSNorm after the residual sum. A row is read once and kept in registers, by one
 * warp if it fits there, otherwise by a block. Rows that do not fit in a block's registers, or are
 * not whole packs, are in norm_wide.cu. Where 8-bit copies of the result are wanted, these kernels
 * only compute the sum and the statistics, and the kernel that casts (cast.cuh) computes the rest.
 *
 * In the backward pass each block goes over rows and keeps its threads' columns of dw and dbias in
 * registers. sums.cuh adds those of all blocks.
 */
#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/sums.cuh"

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

/*
 * Each thread holds NUMBERS sums of dw, and of dbias if there is one, for P packs of columns. A
 * block loads R rows before the sums over them, which all share two barriers. So the loads of
 * several rows are under way at once.
 */
enum { BWD_NUMBERS = 16, BWD_MAX = 512, BWD_ROWS = 4 };

/* The largest R with which a kernel has at most 128 registers: so many can 512 threads have. */
template <class T, int NUMBERS>
constexpr int bwd_rows_of = NUMBERS < BWD_NUMBERS       ? 4
			    : sizeof(T) < sizeof(float) ? 2
							: 1;

template <class T, bool CENTRED, int P, int R>
__global__ void __launch_bounds__(BWD_MAX) norm_bwd_kernel(struct norm_bwd_args<T> a, float *parts)
{
	constexpr int V = pack_of<T>;
	const int packs = (int)(a.c / V), width = blockDim.x, first = threadIdx.x;
	float dw[P][V] = {}, db[P][V] = {};
	for (int64_t row = (int64_t)blockIdx.x * R; row < a.n; row += (int64_t)gridDim.x * R) {
		float dy[R][P][V] = {}, x[R][P][V] = {}, rstd[R], sums[2 * R] = {};
		#pragma unroll
		for (int r = 0; r < R; r++)
			#pragma unroll
			for (int p = 0; p < P; p++)
				if (row + r < a.n && first + p * width < packs) {
					const int64_t at = (row + r) * a.c +
							   (first + p * width) * V;
					load<V>(dy[r][p], a.dy + at);
					load<V>(x[r][p], a.x + at);
				}
		#pragma unroll
		for (int r = 0; r < R; r++) {
			const bool there = row + r < a.n;
			const float mean = CENTRED && there ? a.mean[row + r] : 0;
			rstd[r] = there ? a.rstd[row + r] : 0;
			#pragma unroll
			for (int p = 0; p < P; p++)
				if (first + p * width < packs) {
					float w[V];
					load<V>(w, a.w + (first + p * width) * V);
					#pragma unroll
					for (int i = 0; i < V; i++) {
						float d = dy[r][p][i];
						x[r][p][i] = (x[r][p][i] - mean) * rstd[r];
						dw[p][i] += d * x[r][p][i];
						db[p][i] += CENTRED ? d : 0;
						dy[r][p][i] = d * w[i];
						sums[2 * r] += CENTRED ? dy[r][p][i] : 0;
						sums[2 * r + 1] += dy[r][p][i] * x[r][p][i];
					}
				}
		}
		block_sums<2 * R>(sums);
		#pragma unroll
		for (int r = 0; r < R; r++) {
			const float g_mean = sums[2 * r] / (float)a.c,
				    gh_mean = sums[2 * r + 1] / (float)a.c;
			#pragma unroll
			for (int p = 0; p < P; p++)
				if (row + r < a.n && first + p * width < packs) {
					const int64_t at = (row + r) * a.c +
							   (first + p * width) * V;
					float res[V] = {};
					if (a.dres)
						load<V>(res, a.dres + at);
					#pragma unroll
					for (int i = 0; i < V; i++)
						res[i] += rstd[r] * (dy[r][p][i] - g_mean -
								     x[r][p][i] * gh_mean);
					store<V>(a.dx + at, res);
				}
		}
	}
	#pragma unroll
	for (int p = 0; p < P; p++)
		if (first + p * width < packs) {
			store<V>(parts + blockIdx.x * a.c + (first + p * width) * V, dw[p]);
			if (CENTRED)
				store<V>(parts + ((int64_t)gridDim.x + blockIdx.x) * a.c +
						 (first + p * width) * V,
					 db[p]);
		}
}

template <class T> static bool bwd_packs(const struct norm_bwd_args<T> *a)
{
	return a->c <= (int64_t)BWD_MAX * BWD_NUMBERS && pack_fits(a->dx, a->c) &&
	       pack_fits(a->dy, a->c) && pack_fits(a->dres, a->c) && pack_fits(a->x, a->c) &&
	       pack_fits(a->w, 0);
}

template <class T, bool CENTRED, int NUMBERS>
static void norm_bwd_rows(struct backend *k, const char *op, const struct norm_bwd_args<T> *a)
{
	constexpr int V = pack_of<T>, P = NUMBERS / V, R = bwd_rows_of<T, NUMBERS>;
	float *const outs[2] = { a->dw, CENTRED ? a->dbias : NULL };
	int threads = (int)((a->c / V + P - 1) / P + WARP - 1) / WARP * WARP;
	int each = BWD_MAX / threads > 8 ? 8 : BWD_MAX / threads; /* that an SM can hold at once */
	unsigned blocks = cuda_blocks_most(k, a->n, BWD_ROWS, each);
	float *parts = (float *)cuda_scratch(k, 2 * blocks * (size_t)a->c * sizeof *parts, op);
	if (!parts)
		return;
	launch(k, op, norm_bwd_kernel<T, CENTRED, P, R>, blocks, threads, 0, *a, parts);
	cuda_add_columns(k, op, outs, parts, blocks, a->c, a->add);
}

/* Short rows have half as many sums per thread, and twice as many threads. */
template <class T, bool CENTRED>
static void norm_bwd(struct backend *k, const char *op, const struct norm_bwd_args<T> *a)
{
	float *const outs[2] = { a->dw, CENTRED ? a->dbias : NULL };
	if (a->n == 0) {
		for (int i = 0; i < 2 && !a->add; i++)
			if (outs[i])
				cuda_memory_zero(k, outs[i], (size_t)a->c * sizeof(float));
		return;
	}
	if (!bwd_packs<T>(a))
		norm_bwd_wide<T>(k, op, a, CENTRED);
	else if (a->c <= (int64_t)BWD_MAX * BWD_NUMBERS / 2)
		norm_bwd_rows<T, CENTRED, BWD_NUMBERS / 2>(k, op, a);
	else
		norm_bwd_rows<T, CENTRED, BWD_NUMBERS>(k, op, a);
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

template <class T>
static void layernorm_bwd(struct backend *k, void *dx, float *dw, float *dbias, const void *dy,
			  const void *dres, const void *x, const float *mean, const float *rstd,
			  const void *w, int64_t n, int64_t c, bool add)
{
	struct norm_bwd_args<T> a = {
		(T *)dx, dw, dbias, (const T *)dy, (const T *)dres, (const T *)x, mean, rstd,
			(const T *)w, n, c, add
	};
	norm_bwd<T, true>(k, "layernorm_bwd", &a);
}

template <class T>
static void rmsnorm_bwd(struct backend *k, void *dx, float *dw, const void *dy, const void *dres,
			const void *x, const float *rstd, const void *w, int64_t n, int64_t c,
			bool add)
{
	struct norm_bwd_args<T> a = {
		(T *)dx, dw, NULL, (const T *)dy, (const T *)dres, (const T *)x, NULL, rstd,
			(const T *)w, n, c, add
	};
	norm_bwd<T, false>(k, "rmsnorm_bwd", &a);
}

template <class T> static void fill(struct ops *o)
{
	o->layernorm_fwd = layernorm_fwd<T>;
	o->layernorm_bwd = layernorm_bwd<T>;
	o->rmsnorm_fwd = rmsnorm_fwd<T>;
	o->layernorm_fwd_cast = layernorm_fwd_cast<T>;
	o->rmsnorm_fwd_cast = rmsnorm_fwd_cast<T>;
	o->rmsnorm_bwd = rmsnorm_bwd<T>;
}

CUDA_FILL(norm)
