/*
 * rope — the rotary positions of a Hugging Face config.json.
 *
 * A file can hold them in three places, from two generations of transformers:
 *
 *     rope_theta, original_max_position_embeddings, partial_rotary_factor    at the top level (4)
 *     rope_scaling     {rope_type or type, factor, …}                        (4)
 *     rope_parameters  {rope_type or type, rope_theta, factor, …}            (5)
 *
 * A value that is given once is read in the order of transformers 5:
 *     theta                      from the object, then the top level, then the family's default
 *     llama3's original context  from the object, then the top level, then max_position_embeddings
 *     the type                   from rope_type, then type, then "default"
 * As in transformers, an empty object and a null count as absent.
 *
 * A value that is given twice must be the same in both places. Otherwise transformers 4 and 5 use
 * different ones (theta, the original context, the type), or silently ignore one of two objects. Such
 * a file is refused, and the error names both values. The types dynamic, yarn, longrope and
 * proportional, parameters per type of layer, and partly rotated heads are refused by name.
 *
 * tests/golden/rope_cases.json holds a file of each kind, and the frequencies that transformers 4 and
 * 5 compute from it.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_ROPE_H
#define MUSTER_AGENT_ENGINE_HF_ROPE_H

#include "base/err.h"
#include "plan/spec/job/job.h"

#include <jansson.h>

/* The numbers of a rope object, and which types have them. All types have the first one, which is
 * exported at the top level. */
enum { HF_ROPE_THETA, HF_ROPE_FACTOR, HF_ROPE_LOW, HF_ROPE_HIGH, HF_ROPE_ORIGINAL, HF_ROPE_KEYS };
extern const struct hf_rope_key {
	int types; /* bits 1 << enum job_rope_scaling */
	const char *theirs, *ours;
} hf_rope_keys[HF_ROPE_KEYS];

/* A type's word in config.json. */
const char *hf_rope_word(enum job_rope_scaling type);

struct hf_rope {
	enum job_rope_scaling type;
	double value[HF_ROPE_KEYS]; /* 0 if the type has no such number */
};

/* root: the config.json of a model with rotary positions. name: the file's name, for errors. theta:
 * the family's default. ERR_CORRUPT: an impossible value. ERR_UNSUPPORTED: muster does not compute
 * these positions, or two places disagree. */
int hf_rope_read(const json_t *root, const char *name, double theta, struct hf_rope *out,
		 struct err *e);

#endif
