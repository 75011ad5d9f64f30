/*
 * convert — random rounding to storage of 2 bytes, with the same bits as
 * kernels/low_precision/convert.c.
 *
 * The results are floats that the storage type represents exactly, so that store() keeps them.
 */
#ifndef MUSTER_KERNELS_CUDA_CONVERT_CUH
#define MUSTER_KERNELS_CUDA_CONVERT_CUH

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/philox.cuh"

/* A number added below the cut carries into the upper half. Infinity and NaN stay as they are. */
__device__ inline float cut_randomly(float x, uint32_t word, const __nv_bfloat16 *)
{
	const uint32_t b = __float_as_uint(x);
	return (b & 0x7fffffffu) >= 0x7f800000u ? x
						: __uint_as_float((b + (word >> 16)) & 0xffff0000u);
}

/* Below 2^-14 the quantum is 2^-24; otherwise 13 bits are cut off. The carry may give 2^16, which is
 * stored as infinity. */
__device__ inline float cut_randomly(float x, uint32_t word, const __half *)
{
	const uint32_t b = __float_as_uint(x), a = b & 0x7fffffffu;
	uint32_t cut = (a + (word >> 19)) & 0xffffe000u;
	if (a >= 0x47800000u)
		return x;
	if (a < 0x38800000u) {
		const float quanta = __uint_as_float(a) * 0x1p24f, whole = floorf(quanta),
			    bound = (quanta - whole) * 0x1p32f;
		const uint32_t below = (uint32_t)bound;
		const bool up = word < below || (word == below && bound > (float)below);
		cut = __float_as_uint((whole + (up ? 1.0f : 0.0f)) * 0x1p-24f);
	}
	return __uint_as_float((b & 0x80000000u) | cut);
}

__device__ inline float cut_randomly(float x, uint32_t, const float *)
{
	return x;
}

/* Rounds x by elements first … first + V - 1 of the key's stream. */
template <class T, int V>
__device__ inline void round_randomly(float (&x)[V], struct philox_key key, uint64_t first)
{
	if constexpr (sizeof(T) < sizeof(float)) {
		uint32_t words[V];
		philox_run<V>(words, key, first);
		#pragma unroll
		for (int i = 0; i < V; i++)
			x[i] = cut_randomly(x[i], words[i], (const T *)0);
	}
}

#endif
