/* tiny — models and batches small enough for tests that check every number. */
#ifndef MUSTER_TESTS_UNIT_AGENT_TINY_H
#define MUSTER_TESTS_UNIT_AGENT_TINY_H

#include "plan/spec/job/job.h"

#include <stdint.h>

struct tiny {
	const char *name;
	enum job_family family;
	int layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
	enum job_tie tie;
	int micro, global;
	double init_std;
};

/* Fills the job of such a model: AdamW with warm-up, cosine, decay and clipping. */
void tiny_job(const struct tiny *t, struct job *job);

/* Produces sequences [first, first + count) of the endless stream of samples: tokens of a skewed
 * distribution, and the targets shifted by 1. inputs, targets: [count, seq]. */
void tiny_batch(const struct tiny *t, int64_t first, int64_t count, int32_t *inputs,
		int32_t *targets);

/* If a parameter starts as zeros or ones, adds noise to elements [first, first + count) of its
 * box, so that none of their gradients is trivial. The values depend only on the parameter's name
 * and the global index. */
struct param;
void tiny_shake(const struct param *p, int64_t first, int64_t count, float *values);

#endif
