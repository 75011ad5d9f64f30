/*
 * Any matrix product without tensor cores: for sizes and addresses that cuBLASLt does not support.
 *
 * A block computes a tile of EDGE × EDGE, and each of its 256 threads 4 × 4 of it, from slices of
 * left and right, DEPTH deep, in shared memory. Sums are fp32, in the order of k.
 */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

enum { EDGE = 64, DEPTH = 16, SIDE = 16, EACH = EDGE / SIDE, THREADS = SIDE * SIDE };

/* Element (i, l) of a matrix is at i * row + l * col. */
template <class T> struct fallback_matrix {
	const T *at;
	int64_t row, col;
};

template <class T, class D> struct fallback_call {
	fallback_matrix<T> left, right; /* [m, k], and right transposed to [n, k] */
	D *d;
	const T *bias;
	int64_t m, n, k;
	bool add;
};

/* slice[l][i] = element (first + i, k0 + l), and 0 beyond the matrix. Neighbouring threads read along
 * the dense side. */
template <class T>
__device__ inline void slice_load(float (&slice)[DEPTH][EDGE + 1], const fallback_matrix<T> &x,
				  int64_t first, int64_t rows, int64_t k0, int64_t k)
{
	for (int j = threadIdx.x; j < EDGE * DEPTH; j += THREADS) {
		int i = x.col == 1 ? j / DEPTH : j % EDGE, l = x.col == 1 ? j % DEPTH : j / EDGE;
		bool there = first + i < rows && k0 + l < k;
		slice[l][i] = there ? to_fp32(x.at[(first + i) * x.row + (k0 + l) * x.col]) : 0;
	}
}

template <class T, class D>
__device__ inline void tile_store(const fallback_call<T, D> &c, int64_t i, int64_t j, float sum)
{
	if (i >= c.m || j >= c.n)
		return;
	D *d = c.d + i * c.n + j;
	sum += c.bias ? to_fp32(c.bias[j]) : 0;
	*d = from_fp32<D>(c.add ? to_fp32(*d) + sum : sum);
}

/* The tile of this block. */
template <class T, class D> __device__ inline void tile_product(const fallback_call<T, D> &c)
{
	__shared__ float left[DEPTH][EDGE + 1], right[DEPTH][EDGE + 1];
	const int64_t across = (c.n + EDGE - 1) / EDGE;
	const int64_t i0 = blockIdx.x / across * EDGE, j0 = blockIdx.x % across * EDGE;
	const int i = threadIdx.x / SIDE, j = threadIdx.x % SIDE;
	float sum[EACH][EACH] = {};
	for (int64_t k0 = 0; k0 < c.k; k0 += DEPTH) {
		slice_load(left, c.left, i0, c.m, k0, c.k);
		slice_load(right, c.right, j0, c.n, k0, c.k);
		__syncthreads();
		for (int l = 0; l < DEPTH; l++)
			#pragma unroll
			for (int a = 0; a < EACH; a++)
				#pragma unroll
				for (int b = 0; b < EACH; b++)
					sum[a][b] = fmaf(left[l][i + a * SIDE],
							 right[l][j + b * SIDE], sum[a][b]);
		__syncthreads();
	}
	#pragma unroll
	for (int a = 0; a < EACH; a++)
		#pragma unroll
		for (int b = 0; b < EACH; b++)
			tile_store(c, i0 + i + a * SIDE, j0 + j + b * SIDE, sum[a][b]);
}

template <class T, class D>
static __global__ void __launch_bounds__(THREADS) fallback_kernel(const fallback_call<T, D> c)
{
	tile_product(c);
}

/* One group of those whose rows are counted in device memory. `c` is that of a group that has all
 * rows; there are blocks for as many. */
template <class T, class D, int FORM>
static __global__ void __launch_bounds__(THREADS)
	counted_kernel(fallback_call<T, D> c, const int64_t *rows, int group)
{
	const int64_t n = rows[group], across = (c.n + EDGE - 1) / EDGE;
	int64_t first = 0;
	for (int i = 0; i < group; i++)
		first += rows[i];
	if constexpr (FORM == GROUPED_WEIGHT) {
		c.left.at += first * c.left.col;
		c.right.at += first * c.right.col;
		c.k = n;
	} else {
		c.left.at += first * c.left.row;
		c.d += first * c.n;
		c.m = n;
		if (blockIdx.x >= (n + EDGE - 1) / EDGE * across)
			return;
	}
	if (n || (FORM == GROUPED_WEIGHT && !c.add))
		tile_product(c);
}

template <class T, class D>
static void product(struct backend *k, const struct blas_product *p, const char *op)
{
	const int64_t left_row = p->left_row ? p->left_row : p->left_flipped ? p->m : p->k;
	const fallback_call<T, D> c = {
		{ (const T *)p->left, p->left_flipped ? 1 : left_row,
		  p->left_flipped ? left_row : 1 },
		{ (const T *)p->right, p->right_flipped ? p->k : 1, p->right_flipped ? 1 : p->n },
		(D *)p->d,
		p->after == BLAS_BIAS ? (const T *)p->bias : NULL,
		p->m,
		p->n,
		p->k,
		p->add,
	};
	int64_t tiles = (p->m + EDGE - 1) / EDGE * ((p->n + EDGE - 1) / EDGE);
	launch(k, op, fallback_kernel<T, D>, cuda_blocks(tiles, 1), THREADS, 0, c);
}

template <class T>
static void product_of(struct backend *k, const struct blas_product *p, const char *op)
{
	if (p->single)
		product<T, float>(k, p, op);
	else
		product<T, T>(k, p, op);
}

extern "C" void fallback_product(struct backend *k, const struct blas_product *p, const char *op)
{
	switch (cuda_of(k)->storage) {
	case STORE_FP32:
		product_of<float>(k, p, op);
		break;
	case STORE_BF16:
		product_of<__nv_bfloat16>(k, p, op);
		break;
	case STORE_FP16:
		product_of<__half>(k, p, op);
		break;
	}
}

template <class T, class D, int FORM>
static void counted(struct backend *k, const struct grouped *g, const char *op)
{
	constexpr bool weight = FORM == GROUPED_WEIGHT, fwd = FORM == GROUPED_FWD;
	const int64_t side = fwd ? g->in : g->out; /* of a row of left */
	for (int i = 0; i < g->groups; i++) {
		const int64_t skip = i * g->stride;
		const fallback_call<T, D> c = {
			{ (const T *)g->left, weight ? 1 : side, weight ? side : 1 },
			{ (const T *)g->right + (weight ? 0 : skip), fwd ? g->in : 1,
			  fwd ? 1 : g->in },
			(D *)g->d + (weight ? skip : 0),
			NULL,
			weight ? g->out : g->most,
			fwd ? g->out : g->in,
			weight ? 0 : side,
			g->add,
		};
		int64_t tiles = (c.m + EDGE - 1) / EDGE * ((c.n + EDGE - 1) / EDGE);
		launch(k, op, counted_kernel<T, D, FORM>, cuda_blocks(tiles, 1), THREADS, 0, c,
		       g->rows, i);
	}
}

template <class T>
static void counted_of(struct backend *k, const struct grouped *g, const char *op)
{
	switch (g->form) {
	case GROUPED_FWD:
		counted<T, T, GROUPED_FWD>(k, g, op);
		break;
	case GROUPED_INPUT:
		counted<T, T, GROUPED_INPUT>(k, g, op);
		break;
	case GROUPED_WEIGHT:
		counted<T, float, GROUPED_WEIGHT>(k, g, op);
		break;
	}
}

extern "C" void fallback_counted(struct backend *k, const struct grouped *g, const char *op)
{
	switch (cuda_of(k)->storage) {
	case STORE_FP32:
		counted_of<float>(k, g, op);
		break;
	case STORE_BF16:
		counted_of<__nv_bfloat16>(k, g, op);
		break;
	case STORE_FP16:
		counted_of<__half>(k, g, op);
		break;
	}
}
