/*
 * dp — the sum of the gradients over data-parallel ranks, in buckets, while the
 * backward pass still runs.
 *
 * The flat gradient buffer is cut into buckets from its end, because the
 * backward pass completes it from its end: head, last layer, …, first layer,
 * embedding. A bucket's all-reduce starts as soon as everything in it is
 * complete. The sum's order is libcomm's, element by element, so the buckets' size
 * does not change the result.
 *
 *     dp_open … dp_ready(from) dp_ready(lower from) … dp_finish … dp_ready …
 */
#ifndef MUSTER_AGENT_PARALLEL_DP_H
#define MUSTER_AGENT_PARALLEL_DP_H

#include "base/err.h"

#include <stdint.h>

/* 4 MiB of fp32: one bucket takes some hundred microseconds on a fast link, far above an operation's fixed
 * cost, and a stage of any size worth cutting has many of them, so that the first leaves early. */
enum { DP_BUCKET = 1 << 20 };

struct comm;
struct dp;

/* Borrows group (NULL: one rank alone, everything is done at once) and grads [elements]. bucket: elements. */
int dp_open(struct comm *group, float *grads, int64_t elements, int64_t bucket, struct dp **out, struct err *e);
/* Waits for what is under way. Takes NULL. */
void dp_close(struct dp *d);

/* The gradients [from, elements) are complete; from falls from call to call. */
int dp_ready(struct dp *d, int64_t from, struct err *e);
/* All are complete: returns when every bucket is reduced, and begins anew. */
int dp_finish(struct dp *d, struct err *e);

#endif
