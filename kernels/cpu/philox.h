/* philox — the words of base/philox.h for many counters at once, and dropout's choice from them. */
#ifndef MUSTER_KERNELS_CPU_PHILOX_H
#define MUSTER_KERNELS_CPU_PHILOX_H

#include "base/numbers.h"
#include "kernels/cpu/cpu.h"

#include <math.h>

/* Counters of one batch, and their words. */
enum { PHILOX_BLOCKS = 32, PHILOX_WORDS = 4 * PHILOX_BLOCKS };

/* Words 4 block … 4 block + PHILOX_WORDS - 1 of a stream. */
static inline void philox_words(struct philox_key key, uint64_t block,
				uint32_t out[restrict PHILOX_WORDS])
{
	uint32_t c[4][PHILOX_BLOCKS];
	for (int i = 0; i < PHILOX_BLOCKS; i++) {
		c[0][i] = (uint32_t)(block + (uint64_t)i);
		c[1][i] = (uint32_t)((block + (uint64_t)i) >> 32);
		c[2][i] = c[3][i] = 0;
	}
	uint32_t k0 = key.k[0], k1 = key.k[1];
	for (int round = 0; round < 10; round++) {
		#pragma omp simd
		for (int i = 0; i < PHILOX_BLOCKS; i++) {
			uint64_t a = (uint64_t)0xD2511F53u * c[0][i],
				 b = (uint64_t)0xCD9E8D57u * c[2][i];
			c[0][i] = (uint32_t)(b >> 32) ^ c[1][i] ^ k0;
			c[2][i] = (uint32_t)(a >> 32) ^ c[3][i] ^ k1;
			c[1][i] = (uint32_t)b;
			c[3][i] = (uint32_t)a;
		}
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	for (int i = 0; i < PHILOX_BLOCKS; i++)
		for (int w = 0; w < 4; w++)
			out[4 * i + w] = c[w][i];
}

/* An element is dropped if its word is below this: word / 2^32 < p. */
static inline uint32_t dropout_threshold(const struct dropout *d)
{
	return (uint32_t)ceil((double)d->p * 0x1p32);
}

/* Sets keep[i] to the factor of element first + i, 0 or 1 / (1 - p), for i < n. */
static inline void dropout_keep(float *keep, const struct dropout *d, uint64_t first, int64_t n)
{
	const uint32_t threshold = dropout_threshold(d);
	const float by = (float)(1 / (1 - (double)d->p));
	int64_t skip = (int64_t)(first % 4);
	uint32_t words[PHILOX_WORDS];
	for (int64_t at = -skip; at < n; at += PHILOX_WORDS) {
		philox_words(d->key, (first + (uint64_t)at) / 4, words);
		int64_t i0 = at < 0 ? 0 : at, i1 = min_int64(n, at + PHILOX_WORDS);
		for (int64_t i = i0; i < i1; i++)
			keep[i] = words[i - at] < threshold ? 0 : by;
	}
}

#endif
