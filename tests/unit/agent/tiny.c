#include "tests/unit/agent/tiny.h"

#include "base/philox.h"
#include "plan/spec/model/model.h"

#include <stdlib.h>
#include <string.h>

void tiny_job(const struct tiny *t, struct job *job)
{
	*job = (struct job){
		.job = { .name = "tiny", .steps = 20, .seed = 7 },
		.model = { .family = t->family,
			   .layers = t->layers,
			   .hidden = t->hidden,
			   .heads = t->heads,
			   .kv_heads = t->kv_heads,
			   .head_dim = t->head_dim,
			   .ffn = t->ffn,
			   .vocab = t->vocab,
			   .seq = t->seq,
			   .tie_head = t->tie,
			   .norm_eps = 1e-5,
			   .rope_theta = 10000,
			   .init_std = t->init_std },
		.parallel = { .tp = 1,
			      .cp = 1,
			      .pp = 1,
			      .dp = 1,
			      .ep = 1,
			      .schedule = SCHEDULE_1F1B },
		.recompute = { .every = 1 },
		.batch = { .micro = t->micro, .global = t->global },
		.optimizer = { .lr = 1e-2,
			       .min_lr = 1e-3,
			       .warmup = 3,
			       .schedule = LR_COSINE,
			       .decay_steps = 20,
			       .beta1 = 0.9,
			       .beta2 = 0.95,
			       .eps = 1e-8,
			       .weight_decay = 0.1,
			       .clip = 1.0 },
	};
}

/* Low tokens are more frequent than high ones, so that there is something to learn. */
static int32_t token(const struct tiny *t, int64_t sample, int place)
{
	uint32_t r[4];
	philox4(philox_key(1, PHILOX_TEST, (uint64_t)sample), (uint64_t)place, r);
	uint64_t a = r[0] % (uint32_t)t->vocab, b = r[1] % (uint32_t)t->vocab;
	return (int32_t)(a * b / (uint64_t)t->vocab);
}

void tiny_batch(const struct tiny *t, int64_t first, int64_t count, int32_t *inputs,
		int32_t *targets)
{
	for (int64_t s = 0; s < count; s++)
		for (int i = 0; i < t->seq; i++) {
			inputs[s * t->seq + i] = token(t, first + s, i);
			targets[s * t->seq + i] = token(t, first + s, i + 1);
		}
}

static uint64_t item_of(const char *name)
{
	uint64_t h = 5381;
	while (*name)
		h = h * 33 + (unsigned char)*name++;
	return h;
}

void tiny_shake(const struct param *p, int64_t first, int64_t count, float *values)
{
	if (p->dims != 1 || count < 1)
		return;
	float noise[count];
	philox_normal(philox_key(3, PHILOX_TEST, item_of(p->name)), (uint64_t)(p->lo[0] + first),
		      (size_t)count, noise);
	for (int64_t i = 0; i < count; i++)
		values[i] += 0.2f * noise[i];
}
