#include "base/random.h"

#include <math.h>

void random_init(struct random_stream *r, uint64_t seed, uint64_t stream)
{
	*r = (struct random_stream){ .key = philox_key(seed, PHILOX_SIMULATE, stream) };
}

static uint32_t next_word(struct random_stream *r)
{
	if (!r->left) {
		philox4(r->key, r->index++, r->words);
		r->left = 4;
	}
	return r->words[--r->left];
}

double random_unit(struct random_stream *r)
{
	return (double)next_word(r) * 0x1p-32;
}

double random_between(struct random_stream *r, double a, double b)
{
	return a + (b - a) * random_unit(r);
}

int random_below(struct random_stream *r, int n)
{
	return (int)(((uint64_t)next_word(r) * (uint64_t)n) >> 32);
}

bool random_chance(struct random_stream *r, double p)
{
	return random_unit(r) < p;
}

double random_wait(struct random_stream *r, double mean)
{
	return -mean * log1p(-random_unit(r));
}
