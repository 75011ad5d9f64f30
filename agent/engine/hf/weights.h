/*
 * weights — those in a Hugging Face folder: model.safetensors, or the files that
 * model.safetensors.index.json names.
 *
 * Opening reads every header and holds them against the index: each tensor once, where the index
 * says. Files that hold parts of tensors (DCP_SHARDING_INFO in their metadata) are refused. Numbers
 * are read one tensor at a time.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_WEIGHTS_H
#define MUSTER_AGENT_ENGINE_HF_WEIGHTS_H

#include "agent/engine/hf/names.h"
#include "base/err.h"

#include <stdint.h>

struct hf_weights;

int hf_weights_open(const char *path, struct hf_weights **out, struct err *e);
void hf_weights_close(struct hf_weights *f);

/* Proves that the folder holds exactly the model's tensors, each of its shape and of a type that we
 * read, and what may be skipped: a missing or unknown one is named. */
int hf_weights_fit(struct hf_weights *f, const struct hf_names *names, struct err *e);

/* Reads a tensor of a folder that fits, as [out, in] whatever the file has; out: its elements in
 * fp32. `room` of as many elements is used for a transposed one, and may be NULL for others. */
int hf_weights_read(struct hf_weights *f, const struct hf_names *names, const struct hf_tensor *t,
		    float *out, float *room, struct err *e);

int64_t hf_tensor_elements(const struct hf_tensor *t);
/* to [columns, rows] = from [rows, columns] transposed. */
void hf_weights_transpose(const float *from, int64_t rows, int64_t columns, float *to);

#endif
