/*
 * permute — a keyed permutation of [0, n) in O(1) memory.
 *
 * An unbalanced Feistel network of 8 rounds over the smallest power of two
 * >= n (bits cut into a low half of w/2 and a high half of w - w/2), whose round
 * function is Philox under the caller's key; values outside [0, n) are walked
 * on until they fall inside, fewer than two steps on average. The order is part of what a
 * seed means: changing anything here changes every run's data.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_PERMUTE_H
#define MUSTER_AGENT_ENGINE_DATA_PERMUTE_H

#include "base/philox.h"

#include <stdint.h>

/* Where k goes, 0 <= k < n, n < 2^62. */
uint64_t data_permute(struct philox_key key, uint64_t n, uint64_t k);

#endif
