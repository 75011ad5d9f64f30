/*
 * rope — the rotary positions of a Hugging Face config.json.
 *
 * A file may hold them in three places, of two ages of transformers:
 *
 *     rope_theta, original_max_position_embeddings, partial_rotary_factor    beside the sizes (4)
 *     rope_scaling     {rope_type or type, factor, …}                        (4)
 *     rope_parameters  {rope_type or type, rope_theta, factor, …}            (5)
 *
 * What is given once is taken from where transformers 5 takes it: theta from the object, else from
 * beside the sizes, else the family's default; llama3's original context likewise, else
 * max_position_embeddings; the type from rope_type, else from type, else "default". An empty object
 * or a null counts as absent, as it does there.
 *
 * What is given twice must be the same in both places. Where it is not, transformers 4 and 5 take
 * different ones (theta, the original context, the type), or one of two whole objects is ignored
 * without a word: such a file is refused, and the text names both values. The types dynamic, yarn,
 * longrope and proportional, parameters for each type of layer, and heads that are rotated in part
 * are refused by name.
 *
 * tests/golden/rope_cases.json holds a file of each kind, with the frequencies that transformers 4
 * and 5 make of it.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_ROPE_H
#define MUSTER_AGENT_ENGINE_HF_ROPE_H

#include "base/err.h"
#include "plan/spec/job/job.h"

#include <jansson.h>

/* Numbers of a rope object, by the types that have them. The first is of all types, and is
 * exported beside the sizes. */
enum { HF_ROPE_THETA, HF_ROPE_FACTOR, HF_ROPE_LOW, HF_ROPE_HIGH, HF_ROPE_ORIGINAL, HF_ROPE_KEYS };
extern const struct hf_rope_key {
	int types; /* bits 1 << enum job_rope_scaling */
	const char *theirs, *ours;
} hf_rope_keys[HF_ROPE_KEYS];

/* The word of a type in their files. */
const char *hf_rope_word(enum job_rope_scaling type);

struct hf_rope {
	enum job_rope_scaling type;
	double value[HF_ROPE_KEYS]; /* 0 where the type has none */
};

/* root: a config.json of a rotary model; name: of the file, for errors; theta: the family's
 * default. ERR_CORRUPT: a value that cannot be; ERR_UNSUPPORTED: positions that muster does not
 * compute, or two places that disagree. */
int hf_rope_read(const json_t *root, const char *name, double theta, struct hf_rope *out,
		 struct err *e);

#endif
