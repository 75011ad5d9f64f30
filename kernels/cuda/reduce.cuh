/*
 * reduce — sums and maxima over a warp and over a block, always in the same order, with the same
 * bits in every thread.
 *
 * All threads of the warp, or of the block, must call these functions. Blocks are whole warps. The
 * functions over a block contain two barriers.
 */
#ifndef MUSTER_KERNELS_CUDA_REDUCE_CUH
#define MUSTER_KERNELS_CUDA_REDUCE_CUH

#include <cuda_runtime.h>
#include <math.h>

enum { WARP = 32 };
#define WARP_ALL 0xffffffffu

__device__ inline int lane_id(void)
{
	return threadIdx.x % WARP;
}

__device__ inline int warp_id(void)
{
	return threadIdx.x / WARP;
}

/* Both partners of an exchange add the same two numbers: a + b has the bits of b + a. */
template <class F> __device__ inline F warp_sum(F x)
{
	#pragma unroll
	for (int step = WARP / 2; step; step /= 2)
		x += __shfl_xor_sync(WARP_ALL, x, step);
	return x;
}

__device__ inline float warp_max(float x)
{
	#pragma unroll
	for (int step = WARP / 2; step; step /= 2)
		x = fmaxf(x, __shfl_xor_sync(WARP_ALL, x, step));
	return x;
}

/* Replaces each of the N numbers x by its sum over the block. */
template <int N, class F> __device__ inline void block_sums(F (&x)[N])
{
	__shared__ F parts[N][WARP];
	const int lane = lane_id(), warps = blockDim.x / WARP;
	#pragma unroll
	for (int i = 0; i < N; i++)
		x[i] = warp_sum(x[i]);
	__syncthreads(); /* all threads have read the previous sums */
			 #pragma unroll
	for (int i = 0; i < N; i++)
		if (lane == 0)
			parts[i][warp_id()] = x[i];
	__syncthreads();
	#pragma unroll
	for (int i = 0; i < N; i++)
		x[i] = warp_sum(lane < warps ? parts[i][lane] : (F)0);
}

template <class F> __device__ inline F block_sum(F x)
{
	F one[1] = { x };
	block_sums<1>(one);
	return one[0];
}

__device__ inline float block_max(float x)
{
	__shared__ float parts[WARP];
	const int lane = lane_id(), warps = blockDim.x / WARP;
	x = warp_max(x);
	__syncthreads();
	if (lane == 0)
		parts[warp_id()] = x;
	__syncthreads();
	return warp_max(lane < warps ? parts[lane] : -INFINITY);
}

#endif
