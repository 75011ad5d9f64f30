/* Norms of rows of any width and alignment: a block goes over its row several times. */
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/sums.cuh"

enum { WIDE = 512 };

/* `in` may be a.sum, since a thread reads only what it wrote itself. */
template <class T>
__global__ void __launch_bounds__(WIDE) fwd_wide_kernel(struct norm_fwd_args<T> a, bool centred)
{
	const int64_t row = blockIdx.x, at = row * a.c;
	const T *in = a.r ? a.sum + at : a.x + at;
	float sum = 0, spread = 0;
	uint32_t most = 0;
	for (int64_t j = threadIdx.x; j < a.c; j += blockDim.x) {
		if (a.r)
			a.sum[at + j] = from_fp32<T>(to_fp32(a.x[at + j]) + to_fp32(a.r[at + j]));
		sum += to_fp32(in[j]);
	}
	const float mean = centred ? block_sum(sum) / (float)a.c : 0;
	for (int64_t j = threadIdx.x; j < a.c; j += blockDim.x)
		spread += (to_fp32(in[j]) - mean) * (to_fp32(in[j]) - mean);
	const float rstd = 1.0f / sqrtf(block_sum(spread) / (float)a.c + a.eps);
	for (int64_t j = threadIdx.x; a.y && j < a.c; j += blockDim.x) {
		const T y = from_fp32<T>((to_fp32(in[j]) - mean) * rstd * to_fp32(a.w[j]) +
					 (centred ? to_fp32(a.bias[j]) : 0));
		most = max(most, magnitude(to_fp32(y)));
		a.y[at + j] = y;
	}
	if (a.largest)
		raise_largest_of_warp(a.largest, most);
	if (threadIdx.x == 0) {
		a.rstd[row] = rstd;
		if (centred)
			a.mean[row] = mean;
	}
}

template <class T>
__global__ void __launch_bounds__(WIDE) bwd_wide_kernel(struct norm_bwd_args<T> a, bool centred)
{
	const int64_t row = blockIdx.x, at = row * a.c;
	const float mean = centred ? a.mean[row] : 0, rstd = a.rstd[row];
	float sums[2] = { 0, 0 };
	for (int64_t j = threadIdx.x; j < a.c; j += blockDim.x) {
		float g = to_fp32(a.dy[at + j]) * to_fp32(a.w[j]);
		sums[0] += centred ? g : 0;
		sums[1] += g * (to_fp32(a.x[at + j]) - mean) * rstd;
	}
	uint32_t most = 0;
	block_sums<2>(sums);
	for (int64_t j = threadIdx.x; j < a.c; j += blockDim.x) {
		float g = to_fp32(a.dy[at + j]) * to_fp32(a.w[j]),
		      h = (to_fp32(a.x[at + j]) - mean) * rstd;
		float through = rstd * (g - sums[0] / (float)a.c - h * (sums[1] / (float)a.c));
		const T dx = from_fp32<T>(through + (a.dres ? to_fp32(a.dres[at + j]) : 0));
		most = max(most, magnitude(to_fp32(dx)));
		a.dx[at + j] = dx;
	}
	if (a.scale)
		raise_largest_of_warp(a.scale, most);
}

/* Each block sums one strip of columns over one part of the rows. The parts of dw come first, then
 * those of dbias. */
template <class T, int V>
__global__ void __launch_bounds__(SUM_COLUMNS, 4)
	columns_kernel(struct norm_bwd_args<T> a, float *parts, bool centred)
{
	const int64_t j = ((int64_t)blockIdx.x * SUM_COLUMNS + threadIdx.x) * V;
	const int64_t end = sum_first(a.n, gridDim.y, blockIdx.y + 1);
	float dw[V] = {}, db[V] = {};
	if (j >= a.c)
		return;
	#pragma unroll 2
	for (int64_t i = sum_first(a.n, gridDim.y, blockIdx.y); i < end; i++) {
		const float mean = centred ? a.mean[i] : 0, rstd = a.rstd[i];
		float dy[V], x[V];
		load<V>(dy, a.dy + i * a.c + j);
		load<V>(x, a.x + i * a.c + j);
		#pragma unroll
		for (int l = 0; l < V; l++) {
			dw[l] += dy[l] * ((x[l] - mean) * rstd);
			db[l] += dy[l];
		}
	}
	store<V>(parts + blockIdx.y * a.c + j, dw);
	if (centred)
		store<V>(parts + ((int64_t)gridDim.y + blockIdx.y) * a.c + j, db);
}

static int wide_threads(int64_t c)
{
	return c < WIDE ? (int)(c + WARP - 1) / WARP * WARP : (int)WIDE;
}

template <class T>
void norm_fwd_wide(struct backend *k, const char *op, const struct norm_fwd_args<T> *a,
		   bool centred)
{
	launch(k, op, fwd_wide_kernel<T>, cuda_blocks(a->n, 1), wide_threads(a->c), 0, *a, centred);
}

template <class T>
void norm_bwd_wide(struct backend *k, const char *op, const struct norm_bwd_args<T> *a,
		   bool centred)
{
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(a->dy, a->c) && pack_fits(a->x, a->c);
	int64_t strips = cuda_blocks(a->c, SUM_COLUMNS * (packs ? v : 1)),
		rows = sum_parts(k, a->n, strips, 2 * a->c);
	float *const outs[2] = { a->dw, a->dbias };
	float *parts = (float *)cuda_scratch(k, (size_t)(2 * rows * a->c) * sizeof *parts, op);
	if (!parts)
		return;
	launch(k, op, packs ? columns_kernel<T, v> : columns_kernel<T, 1>,
	       dim3((unsigned)strips, (unsigned)rows), SUM_COLUMNS, 0, *a, parts, centred);
	cuda_add_columns(k, op, outs, parts, rows, a->c, a->add);
	launch(k, op, bwd_wide_kernel<T>, cuda_blocks(a->n, 1), wide_threads(a->c), 0, *a, centred);
}

#define WIDE_OF(T) \
	template void norm_fwd_wide<T>(struct backend *, const char *, \
				       const struct norm_fwd_args<T> *, bool); \
	template void norm_bwd_wide<T>(struct backend *, const char *, \
				       const struct norm_bwd_args<T> *, bool);
WIDE_OF(float)
WIDE_OF(__nv_bfloat16)
WIDE_OF(__half)
