/*
 * random — the random numbers of a simulation. A generator is named by the seed and by what it is for, so
 * that a change of what one of them draws leaves the others as they are.
 */
#ifndef MUSTER_LAUNCHER_SIMULATE_RANDOM_H
#define MUSTER_LAUNCHER_SIMULATE_RANDOM_H

#include "base/philox.h"

#include <stdbool.h>
#include <stdint.h>

enum simulate_stream { STREAM_SHAPE, STREAM_DELAYS, STREAM_FAULTS };

struct simulate_random {
	struct philox_key key;
	uint64_t index;
	uint32_t words[4];
	int left; /* of words */
};

void simulate_random_init(struct simulate_random *r, uint64_t seed, enum simulate_stream stream);
/* At least 0 and below 1. */
double simulate_random_unit(struct simulate_random *r);
/* At least a and below b. */
double simulate_random_between(struct simulate_random *r, double a, double b);
/* 0 to n - 1. */
int simulate_random_below(struct simulate_random *r, int n);
bool simulate_random_chance(struct simulate_random *r, double p);
/* The time until the next event of a Poisson process with this mean. */
double simulate_random_wait(struct simulate_random *r, double mean);

#endif
