/*
 * family — transformers' names for each family (plan/spec/model/family.h): its class, the names of
 * its tensors, and the keys of its config.json.
 *
 * Three tables (family.c) drive reading and writing. To add a family: a row in hf_families, and its
 * bit in the rows of hf_keys and hf_fixed_keys that apply to it, or rows of its own where its
 * defaults differ. Its model_type is the word of [model] family. A family whose tensors have other
 * names needs a column in names.c.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_FAMILY_H
#define MUSTER_AGENT_ENGINE_HF_FAMILY_H

#include "plan/spec/model/family.h"

/* Which column of names.c a family's tensors are in. */
enum hf_naming { NAMING_GPT2, NAMING_LLAMA, NAMINGS };

struct hf_family {
	const char *class; /* in `architectures` */
	enum hf_naming naming;
};
extern const struct hf_family hf_families[FAMILIES];

/* A key of config.json that is a key of [model]. */
struct hf_key {
	int families; /* a set: 1 << FAMILY_… */
	const char *theirs, *ours;
	/* the value if the file has none, or null: transformers' default. NULL: the key is required */
	const char *absent;
};
/* Ends with a row without families. */
extern const struct hf_key hf_keys[];

/* A key of config.json that must have one of these values, because muster computes nothing else.
 * The first is written on export. The key may be absent or null. */
struct hf_fixed_key {
	int families;
	const char *theirs, *words[4];
};
extern const struct hf_fixed_key hf_fixed_keys[];

/* The family's first row for a key of [model]; NULL: it has none. */
const struct hf_key *hf_family_key(enum job_family family, const char *ours);

#endif
