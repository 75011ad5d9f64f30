/*
 * philox — the random numbers of base/philox.h on the device, with the same bits.
 */
#ifndef MUSTER_KERNELS_CUDA_PHILOX_CUH
#define MUSTER_KERNELS_CUDA_PHILOX_CUH

#include "kernels/cuda/cuda.h"

/* The four words at counter `index`. */
__device__ inline void philox_words(uint32_t (&out)[4], struct philox_key key, uint64_t index)
{
	uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = 0, c3 = 0, k0 = key.k[0],
		 k1 = key.k[1];
	#pragma unroll
	for (int i = 0; i < 10; i++) {
		uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)b;
		c3 = (uint32_t)a;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

/* One word of four, by an index that is not a compile-time constant. */
__device__ inline uint32_t philox_pick(const uint32_t (&words)[4], unsigned i)
{
	return i == 0 ? words[0] : i == 1 ? words[1] : i == 2 ? words[2] : words[3];
}

/* The words of the V elements from `first` on: element i of a stream has word i % 4 of counter i
 * / 4. */
template <int V>
__device__ inline void philox_run(uint32_t (&out)[V], struct philox_key key, uint64_t first)
{
	const unsigned skip = (unsigned)(first % 4);
	uint32_t words[4];
	philox_words(words, key, first / 4);
	if constexpr (V == 1) {
		out[0] = philox_pick(words, skip);
	} else {
		static_assert(V % 4 == 0, "whole counters");
		#pragma unroll
		for (int i = 0; i < V; i += 4) {
			uint32_t next[4] = { 0, 0, 0, 0 };
			if (skip || i + 4 < V)
				philox_words(next, key, first / 4 + i / 4 + 1);
			const uint32_t both[8] = { words[0], words[1], words[2], words[3],
						   next[0],  next[1],  next[2],  next[3] };
			#pragma unroll
			for (int j = 0; j < 4; j++)
				out[i + j] = skip == 0   ? both[j]
					     : skip == 1 ? both[j + 1]
					     : skip == 2 ? both[j + 2]
							 : both[j + 3];
			#pragma unroll
			for (int j = 0; j < 4; j++)
				words[j] = next[j];
		}
	}
}

#endif
