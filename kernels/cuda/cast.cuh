/*
 * cast — the kernel that writes a tensor in 8 bits (fp8_cast), for tensors that are read and for
 * those that are computed in the same pass.
 *
 * A block takes a tile of EDGE × EDGE, writes it, and transposes it through shared memory. Its numbers
 * come from a source:
 *
 *     PARTS                          the tiles of a block. Part p has the columns p * c … of rows of
 *                                    PARTS * c elements
 *     values<PACKS>(x, i, j, left)   sets x[p] to the elements j … j + CHUNK of row i of each part,
 *                                    of which `left` exist, rounded to the storage type
 *
 * A thread of each block raises the largest |x|, unless `current` is set.
 */
#ifndef MUSTER_KERNELS_CUDA_CAST_CUH
#define MUSTER_KERNELS_CUDA_CAST_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/largest.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

enum {
	EDGE = 64,
	CAST_THREADS = 256,
	CHUNK = 8,
	CHUNKS = EDGE * EDGE / CHUNK,
	TURN_ROW = EDGE + 4
};

struct cast_call {
	uint8_t *y, *transposed;
	struct fp8_scale *s;
	__nv_fp8_interpretation_t kind;
	int64_t n, c;   /* rows, and columns of a part */
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

template <class S, bool PACKS>
static __global__ void __launch_bounds__(CAST_THREADS)
	cast_kernel(const cast_call a, const S source)
{
	__shared__ uint8_t turn[S::PARTS][EDGE][TURN_ROW]; /* [part][column][row] */
	__shared__ uint32_t largest[CAST_THREADS / WARP];
	const int64_t across = (a.c + EDGE - 1) / EDGE, i0 = blockIdx.x / across * EDGE,
		      j0 = blockIdx.x % across * EDGE;
	const float scale = cast_scale(a);
	uint32_t most = 0;
	for (int q = threadIdx.x; q < CHUNKS; q += CAST_THREADS) {
		const int i = q / (EDGE / CHUNK), j = q % (EDGE / CHUNK) * CHUNK;
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
		for (int w = 1; w < CAST_THREADS / WARP; w++)
			most = max(most, largest[w]);
		raise_largest(a.s, most);
	}
	if (!a.transposed)
		return;
	for (int q = threadIdx.x; q < S::PARTS * CHUNKS; q += CAST_THREADS) {
		const int p = q / CHUNKS, j = q % CHUNKS / (EDGE / CHUNK),
			  i = q % (EDGE / CHUNK) * CHUNK;
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

/* packs: the source's chunks fit packs. current: as in struct cast_call. */
template <class S>
static void queue_cast(struct backend *k, const char *op, const struct fp8_copies *to,
		       float current, const S &source, bool packs, int64_t n, int64_t c)
{
	const cast_call a = { to->at,
			      to->transposed,
			      to->scale,
			      kind_of(to->format),
			      n,
			      c,
			      (n + FP8_ROW - 1) / FP8_ROW * FP8_ROW,
			      current,
			      (uintptr_t)to->at % CHUNK == 0 && c % CHUNK == 0,
			      (uintptr_t)to->transposed % CHUNK == 0 };
	const unsigned blocks = cuda_blocks((n + EDGE - 1) / EDGE * ((c + EDGE - 1) / EDGE), 1);
	launch(k, op, packs ? cast_kernel<S, true> : cast_kernel<S, false>, blocks, CAST_THREADS, 0,
	       a, source);
}

/* Whether the op that calls this only finds the largest number. */
static inline bool no_copies(const struct fp8_copies *to)
{
	return !to->at && !to->transposed;
}

#endif
