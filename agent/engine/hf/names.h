/*
 * names — maps muster's tensors to those of a Hugging Face folder.
 *
 * One table of patterns (names.c) drives import and export. A row has one of muster's tensors
 * (plan/spec/model/model.h) and the tensor that holds it, in GPT-2's naming and in LLaMA's, which
 * Mixtral and Qwen extend. One tensor of a file can hold several of muster's, one after the other
 * along the output dimension: GPT-2's c_attn is q, k, v. GPT-2's c_attn, c_proj and c_fc are stored
 * [in, out]; all other tensors are [out, in], like muster's.
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

/* One tensor of a Hugging Face folder. */
struct hf_tensor {
	char name[HF_NAME];
	bool transposed; /* the file stores [in, out] */
	int dims;
	/* [out, in] of all parts together, in whatever order the file stores them; vectors: [n, 1] */
	int64_t shape[2];
	int n;
	struct hf_part {
		char name[OUR_NAME];
		int64_t rows; /* how many of shape[0] */
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

/* ERR_INTERNAL: no row maps one of the model's tensors. Free `out` with hf_names_free. */
int hf_names_build(const struct model_shape *m, struct hf_names *out, struct err *e);
void hf_names_free(struct hf_names *n);

/* Returns the name as files of a bare model have it; NULL if the name does not begin with that word.
 */
const char *hf_names_bare(const struct hf_names *n, const char *name);

/* Whether a file may contain this tensor although the model has none of that name: a mask or table
 * that old versions of transformers stored. */
bool hf_names_may_skip(const struct hf_names *n, const char *name);

#endif
