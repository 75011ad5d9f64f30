/*
 * weights — the weights of a Hugging Face folder: model.safetensors, or the files that
 * model.safetensors.index.json names.
 *
 * hf_weights_open reads all headers and compares them with the index: each tensor must occur once,
 * in the file that the index names. Files with parts of tensors (DCP_SHARDING_INFO in their metadata)
 * are refused. The numbers are read one tensor at a time.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_WEIGHTS_H
#define MUSTER_AGENT_ENGINE_HF_WEIGHTS_H

#include "agent/engine/hf/names.h"
#include "base/err.h"

#include <stdint.h>

struct hf_weights;

/* Whether the folder has one of the two. */
bool hf_weights_exist(const char *path);
int hf_weights_open(const char *path, struct hf_weights **out, struct err *e);
void hf_weights_close(struct hf_weights *f);

/* Checks that the folder holds exactly the model's tensors and those that may be skipped, each with
 * the right shape and a supported type. The error names a missing or unknown tensor. */
int hf_weights_fit(struct hf_weights *f, const struct hf_names *names, struct err *e);

/* Reads a tensor as fp32 [out, in], whatever the file stores; hf_weights_fit must have succeeded.
 * room: scratch of as many elements if the tensor is transposed, otherwise it may be NULL. */
int hf_weights_read(struct hf_weights *f, const struct hf_names *names, const struct hf_tensor *t,
		    float *out, float *room, struct err *e);

int64_t hf_tensor_elements(const struct hf_tensor *t);
/* Sets to [columns, rows] to the transpose of from [rows, columns]. */
void hf_weights_transpose(const float *from, int64_t rows, int64_t columns, float *to);

#endif
