/*
 * philox — counter-based random numbers.
 *
 * Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
 * easy as 1, 2, 3" (SC 2011). A number is keyed by (seed, stream) and counted
 * by a global index, never by a rank: any layout of the job draws the same numbers.
 */
#ifndef MUSTER_BASE_PHILOX_H
#define MUSTER_BASE_PHILOX_H

#include <stddef.h>
#include <stdint.h>

/* What a stream of numbers is for: the high half of the key. */
enum philox_use {
	PHILOX_INIT = 1,
	PHILOX_SHUFFLE = 2,
	PHILOX_DROPOUT = 3,
	PHILOX_TEST = 4,
	PHILOX_ROUND = 5,
	PHILOX_SAMPLE = 6,
	PHILOX_SIMULATE = 7
};

struct philox_key {
	uint32_t k[2];
};

/* The key of (seed, use, item). item identifies a parameter, a layer or an epoch. */
struct philox_key philox_key(uint64_t seed, enum philox_use use, uint64_t item);

/* The item of a name, such as a parameter's: FNV-1a, 64 bits. */
uint64_t philox_item(const char *name);

/* The four words at counter `index`. */
void philox4(struct philox_key key, uint64_t index, uint32_t out[4]);

/* Standard normal numbers for the elements [first, first + n) of one stream,
 * by Box-Muller; out[i] depends only on (key, first + i). */
void philox_normal(struct philox_key key, uint64_t first, size_t n, float *out);

#endif
