/*
 * numbers — the storage types as kernels see them: float, __nv_bfloat16, __half.
 *
 * Kernels compute in float. They read and write packs of V elements: as many as fit 16 bytes if
 * pointers and sizes allow (all fast paths), otherwise 1. A kernel for any size is built for both,
 * and its op chooses on the host (pack_fits).
 */
#ifndef MUSTER_KERNELS_CUDA_NUMBERS_CUH
#define MUSTER_KERNELS_CUDA_NUMBERS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/ptx.cuh"

/* Elements of a pack of 16 bytes. */
template <class T> constexpr int pack_of = 16 / (int)sizeof(T);

/* --- one number --- */

__device__ inline float to_fp32(float x)
{
	return x;
}

__device__ inline float to_fp32(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}

__device__ inline float to_fp32(__half x)
{
	return __half2float(x);
}

/* Rounds to the nearest even. */
template <class T> __device__ inline T from_fp32(float x);

template <> __device__ inline float from_fp32<float>(float x)
{
	return x;
}

template <> __device__ inline __nv_bfloat16 from_fp32<__nv_bfloat16>(float x)
{
	return __float2bfloat16_rn(x);
}

template <> __device__ inline __half from_fp32<__half>(float x)
{
	return __float2half_rn(x);
}

/* The value of x after it was stored and read again. */
template <class T> __device__ inline float stored(float x)
{
	return to_fp32(from_fp32<T>(x));
}

/* --- words of 4 bytes: one float, or two of the others, the first in the low half --- */

__device__ inline void word_open(float *x, uint32_t word, const float *)
{
	x[0] = __uint_as_float(word);
}

__device__ inline void word_open(float *x, uint32_t word, const __nv_bfloat16 *)
{
	x[0] = __uint_as_float(word << 16);
	x[1] = __uint_as_float(word & 0xffff0000u);
}

__device__ inline void word_open(float *x, uint32_t word, const __half *)
{
	x[0] = __half2float(__ushort_as_half((unsigned short)word));
	x[1] = __half2float(__ushort_as_half((unsigned short)(word >> 16)));
}

__device__ inline uint32_t word_close(const float *x, const float *)
{
	return __float_as_uint(x[0]);
}

__device__ inline uint32_t word_close(const float *x, const __nv_bfloat16 *)
{
	return pack2<__nv_bfloat16>(x[0], x[1]);
}

__device__ inline uint32_t word_close(const float *x, const __half *)
{
	return pack2<__half>(x[0], x[1]);
}

/* --- V consecutive numbers --- */

/* p is aligned to V elements, at most to 16 bytes. */
template <int V, class T> __device__ inline void load(float (&x)[V], const T *p)
{
	constexpr int bytes = V * (int)sizeof(T), word = 4 / (int)sizeof(T);
	if constexpr (V == 1) {
		x[0] = to_fp32(*p);
	} else if constexpr (bytes == 8) {
		uint2 w = *(const uint2 *)p;
		word_open(x, w.x, p);
		word_open(x + word, w.y, p);
	} else {
		static_assert(bytes % 16 == 0, "whole packs");
		uint4 w[bytes / 16];
		#pragma unroll
		for (int i = 0; i < bytes / 16; i++)
			w[i] = ((const uint4 *)p)[i];
		#pragma unroll
		for (int i = 0; i < bytes / 16; i++) {
			word_open(x + (4 * i + 0) * word, w[i].x, p);
			word_open(x + (4 * i + 1) * word, w[i].y, p);
			word_open(x + (4 * i + 2) * word, w[i].z, p);
			word_open(x + (4 * i + 3) * word, w[i].w, p);
		}
	}
}

template <int V, class T> __device__ inline void store(T *p, const float (&x)[V])
{
	constexpr int bytes = V * (int)sizeof(T), word = 4 / (int)sizeof(T);
	if constexpr (V == 1) {
		*p = from_fp32<T>(x[0]);
	} else if constexpr (bytes == 8) {
		*(uint2 *)p = make_uint2(word_close(x, p), word_close(x + word, p));
	} else {
		static_assert(bytes % 16 == 0, "whole packs");
		#pragma unroll
		for (int i = 0; i < bytes / 16; i++) {
			const float *at = x + 4 * i * word;
			((uint4 *)p)[i] = make_uint4(word_close(at, p), word_close(at + word, p),
						     word_close(at + 2 * word, p),
						     word_close(at + 3 * word, p));
		}
	}
}

/* As load and store, at the end of an array, with `left` elements left. Elements beyond the end
 * read as 0 and are not written. */
template <int V, class T> __device__ inline void load_some(float (&x)[V], const T *p, int64_t left)
{
	if (left >= V) {
		load<V>(x, p);
		return;
	}
	#pragma unroll
	for (int i = 0; i < V; i++)
		x[i] = i < left ? to_fp32(p[i]) : 0;
}

template <int V, class T> __device__ inline void store_some(T *p, const float (&x)[V], int64_t left)
{
	if (left >= V) {
		store<V>(p, x);
		return;
	}
	#pragma unroll
	for (int i = 0; i < V; i++)
		if (i < left)
			p[i] = from_fp32<T>(x[i]);
}

/* Whether packs of 16 bytes fit rows of `row` elements that begin at p; NULL fits. */
template <class T> static inline bool pack_fits(const T *p, int64_t row)
{
	return (uintptr_t)p % 16 == 0 && row % pack_of<T> == 0;
}

/* --- arrays without rows: a block of FLAT threads, each with FLAT_TURNS packs --- */

enum { FLAT = 256, FLAT_TURNS = 2 };

/* The first element of this thread's turn. */
template <int V> __device__ inline int64_t flat_at(int turn)
{
	return (((int64_t)blockIdx.x * FLAT_TURNS + turn) * FLAT + threadIdx.x) * V;
}

static inline unsigned flat_blocks(int64_t count, int v)
{
	return cuda_blocks(count, (int64_t)FLAT * FLAT_TURNS * v);
}

/* Defines cuda_fill_<family>, which calls the file's fill<T>(struct ops *) for the backend's storage
 * type. */
#define CUDA_FILL(family) \
	extern "C" void cuda_fill_##family(struct backend *k) \
	{ \
		switch (cuda_of(k)->storage) { \
		case STORE_FP32: \
			fill<float>(&k->ops); \
			break; \
		case STORE_BF16: \
			fill<__nv_bfloat16>(&k->ops); \
			break; \
		case STORE_FP16: \
			fill<__half>(&k->ops); \
			break; \
		} \
	}

#endif
