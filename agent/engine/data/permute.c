#include "agent/engine/data/permute.h"

enum { ROUNDS = 8 };

static uint32_t mix(struct philox_key key, unsigned round, uint64_t half)
{
	uint32_t out[4];
	philox4(key, (uint64_t)round << 32 | half, out);
	return out[0];
}

/* Permutes [0, 2^bits) once: each round changes one half by a function of the other. */
static uint64_t feistel(struct philox_key key, unsigned bits, uint64_t k)
{
	unsigned low_bits = bits / 2;
	uint64_t low_mask = (1ull << low_bits) - 1;
	uint64_t high_mask = (1ull << (bits - low_bits)) - 1;
	uint64_t low = k & low_mask, high = k >> low_bits;
	for (unsigned r = 0; r < ROUNDS; r += 2) {
		high ^= mix(key, r, low) & high_mask;
		low ^= mix(key, r + 1, high) & low_mask;
	}
	return high << low_bits | low;
}

uint64_t data_permute(struct philox_key key, uint64_t n, uint64_t k)
{
	unsigned bits = 0;
	while (bits < 62 && (1ull << bits) < n)
		bits++;
	do
		k = feistel(key, bits, k);
	while (k >= n);
	return k;
}
