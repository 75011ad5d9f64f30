/*
 * permute — a keyed permutation of [0, n) in O(1) memory.
 *
 * It is an unbalanced Feistel network of 8 rounds over the smallest power of two >= n (the w bits
 * are split into w/2 low and w - w/2 high ones). The round function is Philox with the caller's key.
 * A result outside [0, n) is permuted again until it is inside: fewer than two rounds on average.
 * The data order of a seed depends on this: a change here changes the data of every run.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_PERMUTE_H
#define MUSTER_AGENT_ENGINE_DATA_PERMUTE_H

#include "base/philox.h"

#include <stdint.h>

/* The image of k, 0 <= k < n, n < 2^62. */
uint64_t data_permute(struct philox_key key, uint64_t n, uint64_t k);

#endif
