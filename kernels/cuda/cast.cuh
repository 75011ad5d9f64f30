/*
 * cast — the kernel that writes a tensor in 8 bits (fp8_cast), for tensors that are read and for
 * those that are computed in the same pass.
 *
 * A block takes a tile of EDGE × EDGE, writes it, and transposes it through shared memory. Its numbers
 * come from a source:
 *
 *     PARTS                          the tiles of a block. Part p has the columns p * c … of rows of
 *                                    PARTS * c elements
 *     GRADIENT                       whether the sums of its columns may be wanted
 *     values<PACKS>(x, i, j, left)   sets x[p] to the elements j … j + CHUNK of row i of each part,
 *                                    of which `left` exist, rounded to the storage type
 *
 * A thread of each block raises the largest |x|, unless `current` is set.
 *
 * The sums of the columns of a gradient, which are a bias's gradient, need no pass of their own: the
 * block adds the rows of its tile in order and leaves their sums in the backend's scratch, 4 bytes for
 * each 64 elements, and a second kernel adds those of all tiles (sums.cuh).
 */
#ifndef MUSTER_KERNELS_CUDA_CAST_CUH
#define MUSTER_KERNELS_CUDA_CAST_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/largest.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/sums.cuh"

enum {
	EDGE = 64,
	CAST_THREADS = 256,
	CHUNK = 8,
	ROW_CHUNKS = EDGE / CHUNK,
	CHUNKS = EDGE * ROW_CHUNKS,
	CAST_WARPS = CAST_THREADS / WARP,
	TURN_ROW = EDGE + 4,
	SUM_TILES = 1024 /* rows of tiles whose sums a launch leaves in the scratch, if they fit */
};
static_assert(CAST_THREADS % ROW_CHUNKS == 0, "a thread's chunks are in the same columns");

struct cast_call {
	uint8_t *y, *transposed;
	struct fp8_scale *s;
	__nv_fp8_interpretation_t kind;
	int64_t n, c;   /* rows, and columns of a part */
	int64_t first;  /* row of tiles of the first block */
	float *sums;    /* [rows of tiles of this launch, parts, c]; NULL: not wanted */
	int64_t padded; /* numbers of a row of transposed; those behind n are 0 */
	float current; /* the format's largest number: s->scale follows from s->largest; 0: it is set */
	bool whole, transposed_whole; /* rows of y, and of transposed, are aligned to 8 bytes */
};

/* fp8(scale x). Only infinities do not saturate: they become NaN. */
__device__ inline uint8_t to_fp8(float x, float scale, __nv_fp8_interpretation_t kind)
{
	const bool infinite = magnitude(x) == 0x7f800000u;
	return __nv_cvt_float_to_fp8(infinite ? __uint_as_float(0x7fffffffu) : x * scale,
				     __NV_SATFINITE, kind);
}

/* Writes 8 bytes, in one access if `whole`. */
__device__ inline void put_chunk(uint8_t *to, const uint8_t *from, int64_t left, bool whole)
{
	if (whole && left >= CHUNK) {
		uint2 w;
		w.x = from[0] | from[1] << 8 | from[2] << 16 | (uint32_t)from[3] << 24;
		w.y = from[4] | from[5] << 8 | from[6] << 16 | (uint32_t)from[7] << 24;
		*(uint2 *)to = w;
		return;
	}
	#pragma unroll
	for (int i = 0; i < CHUNK; i++)
		if (i < left)
			to[i] = from[i];
}

/* For sources. Elements beyond the end read as 0. */
template <bool PACKS, class T>
__device__ inline void chunk_load(float (&x)[CHUNK], const T *p, int64_t left)
{
	if constexpr (PACKS) {
		load_some<CHUNK>(x, p, left);
	} else {
		#pragma unroll
		for (int l = 0; l < CHUNK; l++)
			x[l] = l < left ? to_fp32(p[l]) : 0;
	}
}

/* Rounds x to the storage type, and stores it from element `at` on unless y is NULL. */
template <bool PACKS, class T>
__device__ inline void chunk_keep(T *y, int64_t at, float (&x)[CHUNK], int64_t left)
{
	#pragma unroll
	for (int l = 0; l < CHUNK; l++)
		x[l] = stored<T>(x[l]);
	if (!y)
		return;
	if constexpr (PACKS) {
		store_some<CHUNK>(y + at, x, left);
	} else {
		#pragma unroll
		for (int l = 0; l < CHUNK; l++)
			if (l < left)
				y[at + l] = from_fp32<T>(x[l]);
	}
}

/* Whether chunks of rows of c elements that begin at p can be loaded as packs; NULL fits. */
template <class T> static inline bool chunk_fits(const T *p, int64_t c)
{
	return (uintptr_t)p % 16 == 0 && c % CHUNK == 0;
}

/* The largest power of 2 with which `most` fits, as in kernels/fp8.c. */
__device__ inline float scale_of(float most, float largest)
{
	int e = (int)(__float_as_uint(largest / most) >> 23 & 255) - 127;
	e = e > 100 ? 100 : e < -100 ? -100 : e;
	return __uint_as_float((uint32_t)(e + 127) << 23);
}

__device__ inline bool has_scale(uint32_t most)
{
	return most != 0 && most < 0x7f800000u;
}

/* The scale to cast with. All blocks compute the same one, and one block stores it. */
__device__ inline float cast_scale(const cast_call &a)
{
	if (a.current == 0)
		return a.s->scale;
	const float most = a.s->largest;
	const float scale = has_scale(__float_as_uint(most)) ? scale_of(most, a.current) : 0;
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		a.s->scale = scale;
		a.s->inverse = scale == 0 ? 0 : 1.0f / scale;
	}
	return scale;
}

/* Adds the threads' sums of their columns, and stores those of the tile in row `tile` of a.sums. */
template <int PARTS>
__device__ inline void store_sums(const cast_call &a, float (&x)[PARTS][CHUNK], int64_t tile,
				  int64_t j0)
{
	__shared__ float warps[CAST_WARPS][PARTS][EDGE];
	#pragma unroll
	for (int p = 0; p < PARTS; p++)
		#pragma unroll
		for (int l = 0; l < CHUNK; l++) {
			#pragma unroll
			for (int step = WARP / 2; step >= ROW_CHUNKS; step /= 2)
				x[p][l] += __shfl_xor_sync(WARP_ALL, x[p][l], step);
			if (lane_id() < ROW_CHUNKS)
				warps[warp_id()][p][lane_id() * CHUNK + l] = x[p][l];
		}
	__syncthreads();
	for (int q = threadIdx.x; q < PARTS * EDGE; q += CAST_THREADS) {
		const int p = q / EDGE, j = q % EDGE;
		float sum = 0;
		#pragma unroll
		for (int w = 0; w < CAST_WARPS; w++)
			sum += warps[w][p][j];
		if (j0 + j < a.c)
			a.sums[(tile * PARTS + p) * a.c + j0 + j] = sum;
	}
}

/* With 2 blocks per multiprocessor, the sums of two parts have registers enough on each chip. */
template <class S, bool PACKS, bool SUMS>
static __global__ void __launch_bounds__(CAST_THREADS, SUMS ? 2 : 1)
	cast_kernel(const cast_call a, const S source)
{
	__shared__ uint8_t turn[S::PARTS][EDGE][TURN_ROW]; /* [part][column][row] */
	__shared__ uint32_t largest[CAST_WARPS];
	const int64_t across = (a.c + EDGE - 1) / EDGE, tile = blockIdx.x / across,
		      i0 = (a.first + tile) * EDGE, j0 = blockIdx.x % across * EDGE;
	const float scale = cast_scale(a);
	float sums[S::PARTS][CHUNK] = {};
	uint32_t most = 0;
	for (int q = threadIdx.x; q < CHUNKS; q += CAST_THREADS) {
		const int i = q / ROW_CHUNKS, j = q % ROW_CHUNKS * CHUNK;
		const int64_t left = i0 + i < a.n ? a.c - j0 - j : 0;
		float x[S::PARTS][CHUNK] = {};
		if (left > 0)
			source.template values<PACKS>(x, i0 + i, j0 + j, left);
		#pragma unroll
		for (int p = 0; p < S::PARTS; p++) {
			uint8_t bits[CHUNK];
			#pragma unroll
			for (int l = 0; l < CHUNK; l++) {
				const float number = l < left ? x[p][l] : 0;
				most = max(most, magnitude(number));
				if (SUMS)
					sums[p][l] += number;
				bits[l] = to_fp8(number, scale, a.kind);
				turn[p][j + l][i] = bits[l];
			}
			if (a.y)
				put_chunk(a.y + ((i0 + i) * S::PARTS + p) * a.c + j0 + j, bits,
					  left, a.whole);
		}
	}
	most = warp_most(most);
	if (lane_id() == 0)
		largest[warp_id()] = most;
	__syncthreads();
	if (threadIdx.x == 0 && a.current == 0) {
		#pragma unroll
		for (int w = 1; w < CAST_WARPS; w++)
			most = max(most, largest[w]);
		raise_largest(a.s, most);
	}
	if (SUMS)
		store_sums<S::PARTS>(a, sums, tile, j0);
	if (!a.transposed)
		return;
	for (int q = threadIdx.x; q < S::PARTS * CHUNKS; q += CAST_THREADS) {
		const int p = q / CHUNKS, j = q % CHUNKS / ROW_CHUNKS, i = q % ROW_CHUNKS * CHUNK;
		const int64_t left = j0 + j < a.c ? a.padded - i0 - i : 0;
		if (left > 0)
			put_chunk(a.transposed + (p * a.c + j0 + j) * a.padded + i0 + i,
				  &turn[p][j][i], left, a.transposed_whole);
	}
}

static inline __nv_fp8_interpretation_t kind_of(enum fp8 format)
{
	return format == FP8_E4M3 ? __NV_E4M3 : __NV_E5M2;
}

/* Casts `rows` rows of tiles from a.first on. */
template <bool SUMS, class S>
static void queue_tiles(struct backend *k, const char *op, const cast_call &a, const S &source,
			bool packs, int64_t rows)
{
	launch(k, op, packs ? cast_kernel<S, true, SUMS> : cast_kernel<S, false, SUMS>,
	       cuda_blocks(rows * ((a.c + EDGE - 1) / EDGE), 1), CAST_THREADS, 0, a, source);
}

/* Casts as many rows of tiles at a time as have room for their sums, and adds those. */
template <class S>
static void queue_sums(struct backend *k, const char *op, cast_call a, const S &source, bool packs,
		       int64_t rows, const struct fp8_copies *to)
{
	const int64_t width = S::PARTS * a.c, fit = CUDA_SCRATCH / (width * (int64_t)sizeof(float)),
		      most = fit < SUM_TILES ? fit : (int64_t)SUM_TILES;
	float *const outs[2] = { to->sums, NULL };
	a.sums = (float *)cuda_scratch(
		k, (size_t)((rows < most ? rows : most) * width) * sizeof *a.sums, op);
	for (; a.sums && a.first < rows; a.first += most) {
		const int64_t some = rows - a.first < most ? rows - a.first : most;
		queue_tiles<true>(k, op, a, source, packs, some);
		cuda_add_columns(k, op, outs, a.sums, some, width, to->add || a.first);
	}
}

/* packs: the source's chunks fit packs. current: as in struct cast_call. */
template <class S>
static void queue_cast(struct backend *k, const char *op, const struct fp8_copies *to,
		       float current, const S &source, bool packs, int64_t n, int64_t c)
{
	const int64_t rows = (n + EDGE - 1) / EDGE;
	const cast_call a = { to->at,
			      to->transposed,
			      to->scale,
			      kind_of(to->format),
			      n,
			      c,
			      0,
			      NULL,
			      (n + FP8_ROW - 1) / FP8_ROW * FP8_ROW,
			      current,
			      (uintptr_t)to->at % CHUNK == 0 && c % CHUNK == 0,
			      (uintptr_t)to->transposed % CHUNK == 0 };
	if constexpr (S::GRADIENT) {
		if (to->sums && n && c) {
			queue_sums(k, op, a, source, packs, rows, to);
			return;
		}
		if (to->sums && !to->add)
			cuda_memory_zero(k, to->sums, (size_t)(S::PARTS * c) * sizeof(float));
	}
	queue_tiles<false>(k, op, a, source, packs, rows);
}

/* Whether the op that calls this only finds the largest number. */
static inline bool only_largest(const struct fp8_copies *to)
{
	return !to->at && !to->transposed && !to->sums;
}

#endif
