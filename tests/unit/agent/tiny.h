/* tiny — models and batches small enough for tests that look at every number. */
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

/* The job of such a model: AdamW with warm-up, cosine, decay and clipping. */
void tiny_job(const struct tiny *t, struct job *job);

/* Sequences [first, first + count) of the endless stream of samples: tokens of a skewed
 * distribution, and the targets shifted by one. inputs, targets: [count, seq]. */
void tiny_batch(const struct tiny *t, int64_t first, int64_t count, int32_t *inputs,
		int32_t *targets);

/* Adds noise to elements [first, first + count) of a parameter's box when it starts as zeros or
 * ones, so that none of their gradients is trivial: values depend on the parameter's name and the
 * global index alone. */
struct param;
void tiny_shake(const struct param *p, int64_t first, int64_t count, float *values);

#endif
