#include "base/philox.h"

#include "base/hash.h"

#include <math.h>

static inline void round_once(uint32_t c[4], const uint32_t k[2])
{
	uint64_t a = (uint64_t)0xD2511F53u * c[0];
	uint64_t b = (uint64_t)0xCD9E8D57u * c[2];
	uint32_t c0 = (uint32_t)(b >> 32) ^ c[1] ^ k[0];
	uint32_t c2 = (uint32_t)(a >> 32) ^ c[3] ^ k[1];
	c[1] = (uint32_t)b;
	c[3] = (uint32_t)a;
	c[0] = c0;
	c[2] = c2;
}

static void philox_block(struct philox_key key, uint64_t lo, uint64_t hi, uint32_t out[4])
{
	uint32_t c[4] = { (uint32_t)lo, (uint32_t)(lo >> 32), (uint32_t)hi, (uint32_t)(hi >> 32) };
	uint32_t k[2] = { key.k[0], key.k[1] };
	for (int i = 0; i < 10; i++) {
		round_once(c, k);
		k[0] += 0x9E3779B9u;
		k[1] += 0xBB67AE85u;
	}
	for (int i = 0; i < 4; i++)
		out[i] = c[i];
}

struct philox_key philox_key(uint64_t seed, enum philox_use use, uint64_t item)
{
	/* The generator itself mixes the parts of the key. */
	struct philox_key start = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
	uint32_t out[4];
	philox_block(start, item, (uint64_t)use, out);
	return (struct philox_key){ { out[0], out[1] } };
}

uint64_t philox_item(const char *name)
{
	return hash_text(name);
}

void philox4(struct philox_key key, uint64_t index, uint32_t out[4])
{
	philox_block(key, index, 0, out);
}

/* Two normals from two words; u is in (0, 1], so that the log is finite. */
static void box_muller(uint32_t a, uint32_t b, float out[2])
{
	float u = ((float)(a >> 8) + 1.0f) * 0x1p-24f;
	float angle = (float)(b >> 8) * (0x1p-24f * 6.28318530717958647692f);
	float radius = sqrtf(-2.0f * logf(u));
	out[0] = radius * cosf(angle);
	out[1] = radius * sinf(angle);
}

void philox_normal(struct philox_key key, uint64_t first, size_t n, float *out)
{
	uint64_t end = first + n;
	for (uint64_t block = first / 4; block * 4 < end; block++) {
		uint32_t words[4];
		float four[4];
		philox4(key, block, words);
		box_muller(words[0], words[1], four);
		box_muller(words[2], words[3], four + 2);
		for (uint64_t i = 0; i < 4; i++)
			if (block * 4 + i >= first && block * 4 + i < end)
				out[block * 4 + i - first] = four[i];
	}
}
