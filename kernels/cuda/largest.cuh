/* largest — what kernels share that find the largest |x| of a tensor. The bits of floats without
 * their sign have the same order as the floats, with NaN above infinity, and a maximum does not
 * depend on the order of its operands. */
#ifndef MUSTER_KERNELS_CUDA_LARGEST_CUH
#define MUSTER_KERNELS_CUDA_LARGEST_CUH

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

__device__ inline uint32_t magnitude(float x)
{
	return __float_as_uint(x) & 0x7fffffffu;
}

/* All threads that call it write the same word, so only those that change it do. */
__device__ inline void raise_largest(struct fp8_scale *s, uint32_t most)
{
	if (most > __float_as_uint(*(volatile float *)&s->largest))
		atomicMax((unsigned *)&s->largest, most);
}

__device__ inline uint32_t warp_most(uint32_t most)
{
	#pragma unroll
	for (int step = WARP / 2; step; step /= 2)
		most = max(most, __shfl_xor_sync(WARP_ALL, most, step));
	return most;
}

/* All threads of the warp call it. */
__device__ inline void raise_largest_of_warp(struct fp8_scale *s, uint32_t most)
{
	most = warp_most(most);
	if (lane_id() == 0)
		raise_largest(s, most);
}

/* The largest of V numbers as they are stored, and `most`. */
template <class T, int V> __device__ inline uint32_t most_of(const float (&x)[V], uint32_t most)
{
	#pragma unroll
	for (int i = 0; i < V; i++)
		most = max(most, magnitude(stored<T>(x[i])));
	return most;
}

/* The same for the first `left` numbers. */
template <class T, int V>
__device__ inline uint32_t most_of_some(const float (&x)[V], int64_t left, uint32_t most)
{
	#pragma unroll
	for (int i = 0; i < V; i++)
		most = max(most, i < left ? magnitude(stored<T>(x[i])) : 0);
	return most;
}

#endif
