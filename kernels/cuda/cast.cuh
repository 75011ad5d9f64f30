/*
 * cast — the kernel that writes a tensor in 8 bits (fp8_cast), for tensors that are read and for
 * those that are computed in the same pass.
 *
 * A block takes a tile of CAST_ROWS × CAST_COLUMNS. A thread casts CHUNK columns of QUAD rows, and
 * turns them in its registers into words of QUAD rows of a column. It writes the rows from there, and
 * the columns through shared memory. The numbers come from a source:
 *
 *     PARTS                          the tiles of a block. Part p has the columns p * c … of rows of
 *                                    PARTS * c elements
 *     GRADIENT                       whether the sums of its columns may be wanted
 *     values<PACKS>(x, i, j, left)   sets x[p] to the elements j … j + CHUNK of row i of each part,
 *                                    of which `left` exist, rounded to the storage type; the others
 *                                    are 0
 *
 * A thread of each block raises the largest |x|, unless `current` is set.
 *
 * The sums of the columns of a gradient, which are a bias's gradient, need no pass of their own: the
 * block adds the rows of its tile in order and leaves their sums in the backend's scratch, 4 bytes for
 * each CAST_ROWS elements, and a second kernel adds those of all tiles (sums.cuh).
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
	CAST_ROWS = 128,
	CAST_COLUMNS = 64,
	CHUNK = 8,
	QUAD = 4,
	WORDS = CHUNK / QUAD, /* of 4 bytes, in a chunk of 8-bit numbers */
	ROW_CHUNKS = CAST_COLUMNS / CHUNK,
	QUADS = CAST_ROWS / QUAD, /* words of a column */
	CAST_THREADS = ROW_CHUNKS * QUADS,
	CAST_WARPS = CAST_THREADS / WARP,
	LONG = 16, /* bytes of an access to a column */
	COLUMN_LONGS = CAST_ROWS / LONG,
	SUM_TILES = 1024 /* rows of tiles whose sums a launch leaves in the scratch, if they fit */
};
static_assert(WARP % ROW_CHUNKS == 0, "lanes at a distance of ROW_CHUNKS have the same columns");
static_assert((int)LONG == (int)FP8_ROW, "a column's accesses fit its rows");

struct cast_call {
	uint8_t *y, *transposed;
	struct fp8_scale *s;
	__nv_fp8_interpretation_t kind;
	int64_t n, c;   /* rows, and columns of a part */
	int64_t first;  /* row of tiles of the first block */
	float *sums;    /* [rows of tiles of this launch, parts, c]; NULL: not wanted */
	int64_t padded; /* numbers of a row of transposed; those behind n are 0 */
	float current; /* the format's largest number: s->scale follows from s->largest; 0: it is set */
	bool whole,
		transposed_whole; /* rows of y are aligned to CHUNK bytes, of transposed to LONG */
};

/* fp8(scale x) of two numbers, the first one in the low byte. Only infinities do not saturate: they
 * become NaN, since x - x is 0, or NaN if x is infinite. */
__device__ inline uint32_t to_fp8_pair(float x, float y, float scale,
				       __nv_fp8_interpretation_t kind)
{
	const float2 both = make_float2(fmaf(x, scale, -(x - x)), fmaf(y, scale, -(y - y)));
	return __nv_cvt_float2_to_fp8x2(both, __NV_SATFINITE, kind);
}

__device__ inline void put_whole(uint8_t *to, const uint32_t (&w)[2])
{
	*(uint2 *)to = make_uint2(w[0], w[1]);
}

__device__ inline void put_whole(uint8_t *to, const uint32_t (&w)[4])
{
	*(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
}

/* Writes the first `left` bytes of w, in one access if these are all and `whole` is set. */
template <int N>
__device__ inline void put_words(uint8_t *to, const uint32_t (&w)[N], int64_t left, bool whole)
{
	if (whole && left >= 4 * N) {
		put_whole(to, w);
		return;
	}
	#pragma unroll
	for (int i = 0; i < 4 * N; i++)
		if (i < left)
			to[i] = (uint8_t)(w[i / 4] >> 8 * (i % 4));
}

/* Turns rows of bytes into columns: byte r of column[j] is byte j of row r. */
__device__ inline void turn_bytes(uint32_t (&column)[QUAD], uint32_t row0, uint32_t row1,
				  uint32_t row2, uint32_t row3)
{
	const uint32_t low = __byte_perm(row0, row1, 0x5140), /* 0:0 1:0 0:1 1:1, as row:byte */
		high = __byte_perm(row0, row1, 0x7362), next_low = __byte_perm(row2, row3, 0x5140),
		       next_high = __byte_perm(row2, row3, 0x7362);
	column[0] = __byte_perm(low, next_low, 0x5410);
	column[1] = __byte_perm(low, next_low, 0x7632);
	column[2] = __byte_perm(high, next_high, 0x5410);
	column[3] = __byte_perm(high, next_high, 0x7632);
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
	__shared__ float warps[CAST_WARPS][PARTS][CAST_COLUMNS];
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
	for (int q = threadIdx.x; q < PARTS * CAST_COLUMNS; q += CAST_THREADS) {
		const int p = q / CAST_COLUMNS, j = q % CAST_COLUMNS;
		float sum = 0;
		#pragma unroll
		for (int w = 0; w < CAST_WARPS; w++)
			sum += warps[w][p][j];
		if (j0 + j < a.c)
			a.sums[(tile * PARTS + p) * a.c + j0 + j] = sum;
	}
}

/* The numbers of a thread in 8 bits: words of rows. */
template <int PARTS> struct cast_quad {
	uint32_t word[QUAD][PARTS][WORDS];
};

/* Casts a thread's chunk of row r of its quad. Returns the largest magnitude, at least `most`. */
template <bool SUMS, int PARTS>
__device__ inline uint32_t cast_chunk(cast_quad<PARTS> &out, float (&sums)[PARTS][CHUNK], int r,
				      const float (&x)[PARTS][CHUNK], float scale,
				      __nv_fp8_interpretation_t kind, uint32_t most)
{
	#pragma unroll
	for (int p = 0; p < PARTS; p++) {
		#pragma unroll
		for (int l = 0; l < CHUNK; l++) {
			most = max(most, magnitude(x[p][l]));
			if (SUMS)
				sums[p][l] += x[p][l];
		}
		#pragma unroll
		for (int w = 0; w < WORDS; w++)
			out.word[r][p][w] =
				to_fp8_pair(x[p][4 * w], x[p][4 * w + 1], scale, kind) |
				to_fp8_pair(x[p][4 * w + 2], x[p][4 * w + 3], scale, kind) << 16;
	}
	return most;
}

/* The columns of a tile in shared memory: words of QUAD rows. One word more for each column, and QUAD
 * more for each half of the columns, so that neither side has bank conflicts. */
struct cast_turn {
	uint32_t word[CAST_COLUMNS * (QUADS + 1) + CAST_COLUMNS / WARP * QUAD];
	__device__ uint32_t &at(int column, int quad)
	{
		return word[column * (QUADS + 1) + column / WARP * QUAD + quad];
	}
};

template <int PARTS>
__device__ inline void stage_columns(cast_turn (&turn)[PARTS], const cast_quad<PARTS> &x, int j,
				     int quad)
{
	#pragma unroll
	for (int p = 0; p < PARTS; p++)
		#pragma unroll
		for (int w = 0; w < WORDS; w++) {
			uint32_t column[QUAD];
			turn_bytes(column, x.word[0][p][w], x.word[1][p][w], x.word[2][p][w],
				   x.word[3][p][w]);
			#pragma unroll
			for (int l = 0; l < QUAD; l++)
				turn[p].at(j + QUAD * w + l, quad) = column[l];
		}
}

template <int PARTS>
__device__ inline void store_columns(const cast_call &a, cast_turn (&turn)[PARTS], int64_t i0,
				     int64_t j0)
{
	for (int q = threadIdx.x; q < PARTS * CAST_COLUMNS * COLUMN_LONGS; q += CAST_THREADS) {
		const int p = q / (CAST_COLUMNS * COLUMN_LONGS),
			  j = q / COLUMN_LONGS % CAST_COLUMNS, at = q % COLUMN_LONGS;
		const int64_t i = i0 + at * LONG, left = j0 + j < a.c ? a.padded - i : 0;
		uint32_t w[LONG / 4];
		#pragma unroll
		for (int n = 0; n < LONG / 4; n++)
			w[n] = turn[p].at(j, at * (LONG / 4) + n);
		if (left > 0)
			put_words(a.transposed + (p * a.c + j0 + j) * a.padded + i, w, left,
				  a.transposed_whole);
	}
}

/* With 2 blocks per multiprocessor, the sums of two parts have registers enough on each chip. */
template <class S, bool PACKS, bool SUMS>
static __global__ void __launch_bounds__(CAST_THREADS, 2)
	cast_kernel(const cast_call a, const S source)
{
	constexpr int PARTS = S::PARTS;
	__shared__ cast_turn turn[PARTS];
	__shared__ uint32_t largest[CAST_WARPS];
	const int64_t across = (a.c + CAST_COLUMNS - 1) / CAST_COLUMNS, tile = blockIdx.x / across,
		      i0 = (a.first + tile) * CAST_ROWS, j0 = blockIdx.x % across * CAST_COLUMNS;
	const int j = threadIdx.x % ROW_CHUNKS * CHUNK, quad = threadIdx.x / ROW_CHUNKS;
	const int64_t i = i0 + quad * QUAD, left = a.c - j0 - j;
	const float scale = cast_scale(a);
	float sums[PARTS][CHUNK] = {};
	cast_quad<PARTS> mine;
	uint32_t most = 0;
	#pragma unroll
	for (int r = 0; r < QUAD; r++) {
		float x[PARTS][CHUNK] = {};
		if (i + r < a.n && left > 0)
			source.template values<PACKS>(x, i + r, j0 + j, left);
		most = cast_chunk<SUMS>(mine, sums, r, x, scale, a.kind, most);
	}
	#pragma unroll
	for (int r = 0; r < QUAD; r++)
		#pragma unroll
		for (int p = 0; a.y && p < PARTS; p++)
			if (i + r < a.n)
				put_words(a.y + ((i + r) * PARTS + p) * a.c + j0 + j,
					  mine.word[r][p], left, a.whole);
	if (a.transposed)
		stage_columns(turn, mine, j, quad);
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
		store_sums<PARTS>(a, sums, tile, j0);
	if (a.transposed)
		store_columns(a, turn, i0, j0);
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
	       cuda_blocks(rows * ((a.c + CAST_COLUMNS - 1) / CAST_COLUMNS), 1), CAST_THREADS, 0, a,
	       source);
}

/* Casts as many rows of tiles at a time as have room for their sums, and adds those. */
template <class S>
static void queue_sums(struct backend *k, const char *op, cast_call a, const S &source, bool packs,
		       int64_t rows, const struct fp8_copies *to)
{
	const int64_t width = S::PARTS * a.c, fit = CUDA_SCRATCH / (width * (int64_t)sizeof(float)),
		      most = fit < 1           ? 1
			     : fit < SUM_TILES ? fit
					       : (int64_t)SUM_TILES;
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
	const int64_t rows = (n + CAST_ROWS - 1) / CAST_ROWS;
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
			      (uintptr_t)to->transposed % LONG == 0 };
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
