/*
 * random — streams of random numbers, for simulations. A stream is named by a seed and a number that says what
 * it is for, so that a change of what one of them draws leaves the others as they are.
 */
#ifndef MUSTER_BASE_RANDOM_H
#define MUSTER_BASE_RANDOM_H

#include "base/philox.h"

#include <stdbool.h>
#include <stdint.h>

struct random_stream {
	struct philox_key key;
	uint64_t index;
	uint32_t words[4];
	int left; /* of words */
};

void random_init(struct random_stream *r, uint64_t seed, uint64_t stream);
/* At least 0 and below 1. */
double random_unit(struct random_stream *r);
/* At least a and below b. */
double random_between(struct random_stream *r, double a, double b);
/* 0 to n - 1. */
int random_below(struct random_stream *r, int n);
bool random_chance(struct random_stream *r, double p);
/* The time until the next event of a Poisson process with this mean. */
double random_wait(struct random_stream *r, double mean);

#endif
