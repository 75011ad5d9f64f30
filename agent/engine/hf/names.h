/*
 * names — which tensors of a Hugging Face folder are which of ours.
 *
 * One table of patterns (names.c) drives import and export. A row is one of our tensors
 * (plan/spec/model/model.h) and the tensor that holds it in GPT-2's files, and in LLaMA's and
 * Mixtral's, which share their names. Several of ours may be parts of one of theirs, one behind the
 * other along the output dimension (GPT-2's c_attn is q, k, v). GPT-2's c_attn, c_proj and c_fc are
 * stored [in, out], all others [out, in], as ours are.
 *
 * Files of a bare model lack the first word of the names ("transformer.", "model."): hf_names_bare.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_NAMES_H
#define MUSTER_AGENT_ENGINE_HF_NAMES_H

#include "base/err.h"
#include "plan/spec/model/model.h"

#include <stdbool.h>
#include <stdint.h>

enum { HF_NAME = 128, OUR_NAME = 64, HF_PARTS = 3 };

/* One tensor of theirs. */
struct hf_tensor {
	char name[HF_NAME];
	bool transposed; /* the file has [in, out] */
	int dims;
	int64_t shape[2]; /* as ours would be: [out, in], all parts together; vectors [n, 1] */
	int n;
	struct hf_part {
		char name[OUR_NAME];
		int64_t rows; /* of shape[0] */
	} parts[HF_PARTS];
};

/* All tensors of a model, in the order of plan/spec/model/model.h. */
struct hf_names {
	struct hf_tensor *tensors;
	int64_t n;
	int64_t n_parts;
	enum job_family family;
	bool tied;
};

/* Fails with ERR_INTERNAL when the model has a tensor that no row maps. */
int hf_names_build(const struct model_shape *m, struct hf_names *out, struct err *e);
void hf_names_free(struct hf_names *n);

/* The name without the word that files of a bare model lack; NULL when it has none. */
const char *hf_names_bare(const struct hf_names *n, const char *name);

/* Whether a name that the model has no place for may be there all the same: masks and tables
 * that old versions stored. */
bool hf_names_may_skip(const struct hf_names *n, const char *name);

#endif
