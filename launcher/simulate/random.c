#include "launcher/simulate/random.h"

#include <math.h>

void simulate_random_init(struct simulate_random *r, uint64_t seed, enum simulate_stream stream)
{
	*r = (struct simulate_random){ .key = philox_key(seed, PHILOX_SIMULATE, stream) };
}

static uint32_t next_word(struct simulate_random *r)
{
	if (!r->left) {
		philox4(r->key, r->index++, r->words);
		r->left = 4;
	}
	return r->words[--r->left];
}

double simulate_random_unit(struct simulate_random *r)
{
	return (double)next_word(r) * 0x1p-32;
}

double simulate_random_between(struct simulate_random *r, double a, double b)
{
	return a + (b - a) * simulate_random_unit(r);
}

int simulate_random_below(struct simulate_random *r, int n)
{
	return (int)(((uint64_t)next_word(r) * (uint64_t)n) >> 32);
}

bool simulate_random_chance(struct simulate_random *r, double p)
{
	return simulate_random_unit(r) < p;
}

double simulate_random_wait(struct simulate_random *r, double mean)
{
	return -mean * log1p(-simulate_random_unit(r));
}
