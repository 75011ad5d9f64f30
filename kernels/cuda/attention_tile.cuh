/*
 * attention_tile — tiles of rows in shared memory, and a warp's products over them, on tensor
 * cores.
 *
 * A tile has rows of D elements of 2 bytes, in chunks of 16 bytes. Chunk c of row r is stored at the
 * place of chunk c ^ (r % 8). Thus the 8 rows of one chunk that ldmatrix reads at once, and the 8
 * chunks of one row that a copy writes, are in different banks. Heads with fewer than D elements are
 * padded with zeros, which change no product.
 *
 * Tiles are 16-byte aligned and D is a power of two, so for an even chunk the chunk 2 k after it is
 * at index ^ 16 k.
 *
 * A warp's sums are acc[m][n][4]: 16 rows by 8 columns each, in mma_16816's layout. This lane has
 * rows lane / 4 + 8 i + 16 m (i of 2) and columns 8 n + 2 (lane % 4) + e (e of 2) in
 * acc[m][n][2 i + e].
 */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_TILE_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/ptx.cuh"

#include <math.h>

/* The index at which chunk c of row r of a tile begins. */
template <int D> static __device__ __forceinline__ int tile_at(int r, int c)
{
	return r * D + (c ^ (r & 7)) * 8;
}

/* Begins the copy of rows first … first + ROWS - 1 of an array of `rows` rows, `row` elements from
 * one to the next. */
template <class T, int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tile_copy(T *tile, const T *from, int64_t row, int64_t first,
						 int64_t rows, int dim)
{
	/* a thread's rows are STEP apart, a multiple of 8 */
	constexpr int CHUNKS = D / 8, STEP = THREADS / CHUNKS;
	const int thread = thread_again(), r = thread / CHUNKS, c = thread % CHUNKS;
	int64_t left = 8 * c < dim ? rows - first - r : 0;
	const T *at = from + (first + r) * row + 8 * c;
	T *to = tile + tile_at<D>(r, c);
	#pragma unroll
	for (int i = 0; i < ROWS / STEP; i++) {
		bool there = STEP * i < left;
		cp_async16_zfill(to + STEP * i * D, there ? at : from, there);
		at += STEP * row;
	}
}

template <int M, int N> static __device__ __forceinline__ void clear(float (&acc)[M][N][4])
{
	#pragma unroll
	for (int m = 0; m < M; m++)
		#pragma unroll
		for (int n = 0; n < N; n++)
			acc[m][n][0] = acc[m][n][1] = acc[m][n][2] = acc[m][n][3] = 0;
}

/* acc = a · bᵀ: 16 M rows of tile a from row0 on, 8 N rows of tile b from column0 on. */
template <class T, int D, int M, int N>
static __device__ __forceinline__ void score_product(float (&acc)[M][N][4], const T *a, int row0,
						     const T *b, int column0)
{
	int lane = lane_id();
	int a_at = tile_at<D>(row0 + lane % 16, lane / 16),
	    b_at = tile_at<D>(column0 + lane / 16 * 8 + lane % 8, lane / 8 % 2);
	clear(acc);
	#pragma unroll
	for (int k = 0; k < D / 16; k++) {
		uint32_t left[M][4];
		#pragma unroll
		for (int m = 0; m < M; m++)
			ldmatrix_x4(left[m], a + (a_at ^ 16 * k) + 16 * m * D);
		#pragma unroll
		for (int n = 0; n < N; n += 2) {
			uint32_t r[4];
			ldmatrix_x4(r, b + (b_at ^ 16 * k) + 8 * n * D);
			const uint32_t right[2][2] = { { r[0], r[1] }, { r[2], r[3] } };
			#pragma unroll
			for (int m = 0; m < M; m++) {
				mma_16816<T>(acc[m][n], left[m], right[0]);
				mma_16816<T>(acc[m][n + 1], left[m], right[1]);
			}
		}
	}
}

/* acc += w · b. w[16 M, 8 N] has the layout of sums and is rounded to T; b is the rows of a tile
 * from row0 on. */
template <class T, int D, int M, int N>
static __device__ __forceinline__ void weighted_sum(float (&acc)[M][D / 8][4],
						    const float (&w)[M][N][4], const T *b, int row0)
{
	int lane = thread_again() % WARP, b_at = tile_at<D>(row0 + lane % 16, lane / 16);
	#pragma unroll
	for (int k = 0; k < N / 2; k++) {
		uint32_t left[M][4];
		#pragma unroll
		for (int m = 0; m < M; m++) {
			left[m][0] = pack2<T>(w[m][2 * k][0], w[m][2 * k][1]);
			left[m][1] = pack2<T>(w[m][2 * k][2], w[m][2 * k][3]);
			left[m][2] = pack2<T>(w[m][2 * k + 1][0], w[m][2 * k + 1][1]);
			left[m][3] = pack2<T>(w[m][2 * k + 1][2], w[m][2 * k + 1][3]);
		}
		#pragma unroll
		for (int n = 0; n < D / 8; n += 2) {
			uint32_t r[4];
			ldmatrix_x4_trans(r, b + (b_at ^ 8 * n) + 16 * k * D);
			const uint32_t right[2][2] = { { r[0], r[1] }, { r[2], r[3] } };
			#pragma unroll
			for (int m = 0; m < M; m++) {
				mma_16816<T>(acc[m][n], left[m], right[0]);
				mma_16816<T>(acc[m][n + 1], left[m], right[1]);
			}
		}
	}
}

/* --- masks --- */

/* How much the rows of a warp's lanes, which see ranges of columns, see of columns first …
 * first + COUNT - 1 (or the columns of the lanes, of rows). */
enum view { SEES_NOTHING, SEES_SOME, SEES_ALL };

template <int COUNT>
static __device__ __forceinline__ enum view warp_sees(struct range seen, bool real, int first)
{
	bool some = real && seen.lo < first + COUNT && seen.hi > first;
	bool all = !real || (seen.lo <= first && seen.hi >= first + COUNT);
	if (!__any_sync(WARP_ALL, some))
		return SEES_NOTHING;
	return __any_sync(WARP_ALL, !all) ? SEES_SOME : SEES_ALL;
}

/* --- results --- */

/* Two neighbouring numbers of T at p, 4-byte aligned. */
template <class T>
static __device__ __forceinline__ void put_pair(T *p, float first, float second, bool add)
{
	if (add) {
		float was[2];
		word_open(was, *reinterpret_cast<const uint32_t *>(p), p);
		first += was[0];
		second += was[1];
	}
	*reinterpret_cast<uint32_t *>(p) = pack2<T>(first, second);
}

/* Writes a warp's sums to rows row0 … of an array of `rows` rows. Row r of the sums is multiplied by
 * by[m][i]. */
template <class T, int D, int M>
static __device__ __forceinline__ void put_rows(T *to, int64_t row, int64_t row0, int64_t rows,
						int dim, const float (&acc)[M][D / 8][4],
						const float (&by)[M][2], bool add)
{
	int lane = lane_id();
	#pragma unroll
	for (int m = 0; m < M; m++)
		#pragma unroll
		for (int i = 0; i < 2; i++) {
			int64_t r = row0 + 16 * m + 8 * i + lane / 4;
			#pragma unroll
			for (int n = 0; n < D / 8; n++) {
				int column = 8 * n + 2 * (lane % 4);
				if (r < rows && column < dim)
					put_pair(to + r * row + column, acc[m][n][2 * i] * by[m][i],
						 acc[m][n][2 * i + 1] * by[m][i], add);
			}
		}
}

#endif
