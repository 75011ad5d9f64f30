/* Sums of columns, and the second steps of sums over many blocks. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/sums.cuh"

enum { SLOTS = 32 }; /* threads per column, and columns per block */

/* A slot adds every SLOTS-th part; then the slots are added in order. */
__global__ void __launch_bounds__(SLOTS *WARP)
	add_columns_kernel(float *out0, float *out1, const float *parts, int64_t rows, int64_t c,
			   bool add)
{
	__shared__ float slots[SLOTS][WARP];
	const int64_t j = (int64_t)blockIdx.x * WARP + lane_id();
	const float *first = parts + blockIdx.y * rows * c + j;
	float sum = 0;
	if (j < c) {
		#pragma unroll 8
		for (int64_t i = warp_id(); i < rows; i += SLOTS)
			sum += first[i * c];
	}
	slots[warp_id()][lane_id()] = sum;
	__syncthreads();
	if (warp_id() || j >= c)
		return;
	#pragma unroll
	for (int s = 1; s < SLOTS; s++)
		sum += slots[s][lane_id()];
	float *out = (blockIdx.y ? out1 : out0) + j;
	*out = (add ? *out : 0) + sum;
}

void cuda_add_columns(struct backend *k, const char *op, float *const out[2], const float *parts,
		      int64_t rows, int64_t c, bool add)
{
	launch(k, op, add_columns_kernel, dim3(cuda_blocks(c, WARP), out[1] ? 2 : 1), SLOTS * WARP,
	       0, out[0], out[1], parts, rows, c, add);
}

__global__ void __launch_bounds__(1024)
	add_parts_kernel(double *out, const double *parts, int64_t count)
{
	double sum = 0;
	for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
		sum += parts[i];
	sum = block_sum(sum);
	if (threadIdx.x == 0)
		*out += sum;
}

void cuda_add_parts(struct backend *k, const char *op, double *out, const double *parts,
		    int64_t count)
{
	launch(k, op, add_parts_kernel, 1, count > 256 ? 1024 : 256, 0, out, parts, count);
}

/* Each block sums one strip of columns over one part of the rows. */
template <class T, int V>
__global__ void __launch_bounds__(SUM_COLUMNS)
	sum_rows_kernel(float *parts, const T *x, int64_t n, int64_t c)
{
	const int64_t j = ((int64_t)blockIdx.x * SUM_COLUMNS + threadIdx.x) * V;
	const int64_t end = sum_first(n, gridDim.y, blockIdx.y + 1);
	float sum[V] = { 0 };
	if (j >= c)
		return;
	#pragma unroll 4
	for (int64_t i = sum_first(n, gridDim.y, blockIdx.y); i < end; i++) {
		float a[V];
		load<V>(a, x + i * c + j);
		#pragma unroll
		for (int l = 0; l < V; l++)
			sum[l] += a[l];
	}
	store<V>(parts + blockIdx.y * c + j, sum);
}

template <class T>
static void sum_rows(struct backend *k, float *out, const void *xv, int64_t n, int64_t c, bool add)
{
	const T *x = (const T *)xv;
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(x, c);
	int64_t strips = cuda_blocks(c, SUM_COLUMNS * (packs ? v : 1));
	if (n == 0 && !add)
		cuda_memory_zero(k, out, (size_t)c * sizeof *out);
	if (n == 0 || c == 0)
		return;
	int64_t rows = sum_parts(k, n, strips, c);
	float *parts = (float *)cuda_scratch(k, (size_t)(rows * c) * sizeof *parts, "sum_rows");
	float *const outs[2] = { out, NULL };
	if (!parts)
		return;
	launch(k, "sum_rows", packs ? sum_rows_kernel<T, v> : sum_rows_kernel<T, 1>,
	       dim3((unsigned)strips, (unsigned)rows), SUM_COLUMNS, 0, parts, x, n, c);
	cuda_add_columns(k, "sum_rows", outs, parts, rows, c, add);
}

template <class T> static void fill(struct ops *o)
{
	o->sum_rows = sum_rows<T>;
}

CUDA_FILL(sums)
