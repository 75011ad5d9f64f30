/*
 * Grouped products on tensor cores, all groups in one launch.
 *
 * A block computes a tile of EDGE × EDGE of one group's result, and each of its 8 warps 64 × 32 of it,
 * from slices of left and right that are DEPTH deep. Asynchronous copies bring the slices STAGES - 1
 * ahead. A slice has the same layout in shared memory as in global memory: dense along k, or along
 * the other side. ldmatrix transposes it where the tensor cores need that. Rows are padded so that
 * neither way has bank conflicts. Sums are fp32, in the order of k.
 */
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

enum {
	EDGE = 128,
	DEPTH = 32,
	STAGES = 3,
	THREADS = 256,
	WARPS_ACROSS = 4, /* of 8 warps */
	WARP_M = 64,
	WARP_N = 32,
	CHUNK = 8, /* elements in 16 bytes */
	DENSE_ROW = DEPTH + 8,
	FLAT_ROW = EDGE + 8,
	SLICE = EDGE * DENSE_ROW, /* elements; more than DEPTH * FLAT_ROW */
	CHUNKS = EDGE * DEPTH / CHUNK
};

/* The most groups of one launch: their entries are in the kernel's parameters. */
enum { GROUPS_AT_ONCE = 128 };

struct grouped_call {
	void *d;
	const void *left, *right;
	int64_t stride, in, out;
	int groups;
	bool add;
	/* each group's first row; the last entry: the end */
	int64_t row[GROUPS_AT_ONCE + 1];
	int tile[GROUPS_AT_ONCE + 1]; /* each group's first tile; the last entry: the end */
};

/* The operands of a tile: left is [m, k] and right [n, k], either one perhaps transposed. */
template <class T> struct tile_job {
	const T *left, *right;
	int64_t left_row, right_row; /* elements from one row in memory to the next */
	int64_t m, n, k;
	int64_t i0, j0;
};

/* Element (e, k) of a slice: e along the side that is not summed over. */
template <bool DENSE> __device__ inline int slice_at(int e, int k)
{
	return DENSE ? e * DENSE_ROW + k : k * FLAT_ROW + e;
}

/* Begins the copies of the slice e0 …, k0 … of a matrix of e_end × k_end, with zeros beyond it.
 * DENSE: elements along k are consecutive. */
template <bool DENSE, class T>
__device__ inline void slice_copy(T *slice, const T *x, int64_t row, int64_t e0, int64_t e_end,
				  int64_t k0, int64_t k_end)
{
	#pragma unroll
	for (int j = threadIdx.x; j < CHUNKS; j += THREADS) {
		int e = DENSE ? j / (DEPTH / CHUNK) : j % (EDGE / CHUNK) * CHUNK;
		int k = DENSE ? j % (DEPTH / CHUNK) * CHUNK : j / (EDGE / CHUNK);
		bool there = e0 + e < e_end && k0 + k < k_end;
		const T *from = DENSE ? x + (e0 + e) * row + k0 + k : x + (k0 + k) * row + e0 + e;
		cp_async16_zfill(slice + slice_at<DENSE>(e, k), there ? from : x, there);
	}
}

/* left's fragment of 16 × 16 at (e, k). */
template <bool DENSE, class T>
__device__ inline void left_fragment(uint32_t (&r)[4], const T *slice, int e, int k)
{
	const int lane = threadIdx.x % 32, matrix = lane / 8, in = lane % 8;
	e += matrix % 2 * 8;
	k += matrix / 2 * 8;
	if constexpr (DENSE)
		ldmatrix_x4(r, slice + slice_at<DENSE>(e + in, k));
	else
		ldmatrix_x4_trans(r, slice + slice_at<DENSE>(e, k + in));
}

/* right's fragment of 16 × 16: two of 8 columns. */
template <bool DENSE, class T>
__device__ inline void right_fragments(uint32_t (&first)[2], uint32_t (&second)[2], const T *slice,
				       int e, int k)
{
	const int lane = threadIdx.x % 32, matrix = lane / 8, in = lane % 8;
	uint32_t r[4];
	e += matrix / 2 * 8;
	k += matrix % 2 * 8;
	if constexpr (DENSE)
		ldmatrix_x4(r, slice + slice_at<DENSE>(e + in, k));
	else
		ldmatrix_x4_trans(r, slice + slice_at<DENSE>(e, k + in));
	first[0] = r[0];
	first[1] = r[1];
	second[0] = r[2];
	second[1] = r[3];
}

enum { TILES_M = WARP_M / 16, TILES_N = WARP_N / 8 };
typedef float warp_sums[TILES_M][TILES_N][4];

template <bool LEFT_DENSE, bool RIGHT_DENSE, class T>
__device__ inline void slice_product(warp_sums &sum, const T *left, const T *right)
{
	const int warp = threadIdx.x / 32, m0 = warp / WARPS_ACROSS * WARP_M,
		  n0 = warp % WARPS_ACROSS * WARP_N;
	#pragma unroll
	for (int k = 0; k < DEPTH; k += 16) {
		uint32_t a[TILES_M][4], b[TILES_N][2];
		#pragma unroll
		for (int i = 0; i < TILES_M; i++)
			left_fragment<LEFT_DENSE>(a[i], left, m0 + 16 * i, k);
		#pragma unroll
		for (int j = 0; j < TILES_N; j += 2)
			right_fragments<RIGHT_DENSE>(b[j], b[j + 1], right, n0 + 8 * j, k);
		#pragma unroll
		for (int i = 0; i < TILES_M; i++)
			#pragma unroll
			for (int j = 0; j < TILES_N; j++)
				mma_16816<T>(sum[i][j], a[i], b[j]);
	}
}

template <bool LEFT_DENSE, bool RIGHT_DENSE, class T>
__device__ inline void tile_product(warp_sums &sum, const tile_job<T> &t)
{
	T *shared = dynamic_shared<T>();
	const int64_t slices = (t.k + DEPTH - 1) / DEPTH;
	auto copy = [&](int64_t s) {
		T *at = shared + s % STAGES * 2 * SLICE;
		if (s < slices) {
			slice_copy<LEFT_DENSE>(at, t.left, t.left_row, t.i0, t.m, s * DEPTH, t.k);
			slice_copy<RIGHT_DENSE>(at + SLICE, t.right, t.right_row, t.j0, t.n,
						s * DEPTH, t.k);
		}
		cp_async_commit();
	};
	for (int s = 0; s < STAGES - 1; s++)
		copy(s);
	for (int64_t s = 0; s < slices; s++) {
		cp_async_wait<STAGES - 2>();
		__syncthreads(); /* slice s is complete, and all have read s - 1 */
		copy(s + STAGES - 1);
		const T *at = shared + s % STAGES * 2 * SLICE;
		slice_product<LEFT_DENSE, RIGHT_DENSE>(sum, at, at + SLICE);
	}
	cp_async_wait<0>();
}

/* Two neighbouring elements of a row; n is even. */
template <class T> __device__ inline void put_pair(T *d, float first, float second, bool)
{
	*(uint32_t *)d = pack2<T>(first, second);
}

__device__ inline void put_pair(float *d, float first, float second, bool add)
{
	float2 before = add ? *(const float2 *)d : make_float2(0, 0);
	*(float2 *)d = make_float2(before.x + first, before.y + second);
}

template <class D, class T>
__device__ inline void tile_store(D *d, const warp_sums &sum, const tile_job<T> &t, bool add)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int64_t i0 = t.i0 + warp / WARPS_ACROSS * WARP_M + lane / 4,
		      j0 = t.j0 + warp % WARPS_ACROSS * WARP_N + lane % 4 * 2;
	#pragma unroll
	for (int i = 0; i < 2 * TILES_M; i++)
		#pragma unroll
		for (int j = 0; j < TILES_N; j++) {
			int64_t row = i0 + 8 * i, col = j0 + 8 * j;
			if (row < t.m && col < t.n)
				put_pair(d + row * t.n + col, sum[i / 2][j][i % 2 * 2],
					 sum[i / 2][j][i % 2 * 2 + 1], add);
		}
}

/* The group of this block's tile. */
__device__ inline int group_find(const grouped_call &c)
{
	int lo = 0, hi = c.groups - 1;
	while (lo < hi) {
		int middle = (lo + hi + 1) / 2;
		if (c.tile[middle] <= (int)blockIdx.x)
			lo = middle;
		else
			hi = middle - 1;
	}
	return lo;
}

template <class T, int FORM>
static __global__ void __launch_bounds__(THREADS, 2) grouped_kernel(const grouped_call c)
{
	constexpr bool weight = FORM == GROUPED_WEIGHT, fwd = FORM == GROUPED_FWD;
	const int g = group_find(c);
	const int64_t first = c.row[g], rows = c.row[g + 1] - first, down = blockIdx.x - c.tile[g];
	const int64_t x_row = weight || !fwd ? c.out : c.in; /* of left */
	tile_job<T> t;
	t.left = (const T *)c.left + first * x_row;
	t.left_row = x_row;
	t.right = (const T *)c.right + (weight ? first * c.in : g * c.stride);
	t.right_row = c.in;
	t.m = weight ? c.out : rows;
	t.n = fwd ? c.out : c.in;
	t.k = weight ? rows : x_row;
	/* tiles that share right follow one another */
	const int64_t tiles_m = (t.m + EDGE - 1) / EDGE;
	t.i0 = down % tiles_m * EDGE;
	t.j0 = down / tiles_m * EDGE;
	warp_sums sum = {};
	tile_product<!weight, fwd>(sum, t);
	if constexpr (weight)
		tile_store((float *)c.d + g * c.stride, sum, t, c.add);
	else
		tile_store((T *)c.d + first * t.n, sum, t, false);
}

/* --- On the host -------------------------------------------------------------------------- */

static int64_t edges(int64_t n)
{
	return (n + EDGE - 1) / EDGE;
}

/* The number of tiles of a group; 0 if there is nothing to do. */
static int64_t tiles_of(const struct grouped *g, int64_t rows)
{
	if (rows == 0 && (g->form != GROUPED_WEIGHT || g->add))
		return 0;
	return g->form == GROUPED_WEIGHT
		       ? edges(g->out) * edges(g->in)
		       : edges(rows) * edges(g->form == GROUPED_FWD ? g->out : g->in);
}

template <class T>
static void launch_form(struct backend *k, enum grouped_form form, const struct grouped_call &c,
			const char *op)
{
	const size_t shared = STAGES * 2 * SLICE * sizeof(T);
	const dim3 grid((unsigned)c.tile[c.groups]);
	switch (form) {
	case GROUPED_FWD:
		launch(k, op, grouped_kernel<T, GROUPED_FWD>, grid, THREADS, shared, c);
		break;
	case GROUPED_INPUT:
		launch(k, op, grouped_kernel<T, GROUPED_INPUT>, grid, THREADS, shared, c);
		break;
	case GROUPED_WEIGHT:
		launch(k, op, grouped_kernel<T, GROUPED_WEIGHT>, grid, THREADS, shared, c);
		break;
	}
}

/* Launches groups first … of g, at most GROUPS_AT_ONCE, whose rows begin at `row`. Returns how many
 * rows they have. */
template <class T>
static int launch_some(struct backend *k, const struct grouped *g, int first, int64_t *row,
		       const char *op)
{
	const size_t skip = (size_t)first * g->stride;
	struct grouped_call c = { g->d,   g->left, g->right, g->stride, g->in,
				  g->out, 0,       g->add,   {},        {} };
	if (g->form == GROUPED_WEIGHT)
		c.d = (float *)c.d + skip;
	else
		c.right = (const T *)c.right + skip;
	c.row[0] = *row;
	while (c.groups < GROUPS_AT_ONCE && first + c.groups < g->groups) {
		int64_t rows = g->rows[first + c.groups];
		c.row[c.groups + 1] = c.row[c.groups] + rows;
		c.tile[c.groups + 1] = c.tile[c.groups] + (int)tiles_of(g, rows);
		c.groups++;
	}
	*row = c.row[c.groups];
	launch_form<T>(k, g->form, c, op);
	return c.groups;
}

template <class T>
static void launch_all(struct backend *k, const struct grouped *g, const char *op)
{
	int64_t row = 0;
	for (int i = 0; i < g->groups;)
		i += launch_some<T>(k, g, i, &row, op);
}

extern "C" bool grouped_kernel_product(struct backend *k, const struct grouped *g, const char *op)
{
	const bool weight = g->form == GROUPED_WEIGHT;
	if (cuda_of(k)->storage == STORE_FP32 || g->in % CHUNK || g->out % CHUNK ||
	    !cuda_aligned(g->left, 0, 2) || !cuda_aligned(g->right, weight ? 0 : g->stride, 2) ||
	    !cuda_aligned(g->d, 0, 2) || (weight && g->stride % 2))
		return false;
	if (cuda_of(k)->storage == STORE_BF16)
		launch_all<__nv_bfloat16>(k, g, op);
	else
		launch_all<__half>(k, g, op);
	return true;
}
