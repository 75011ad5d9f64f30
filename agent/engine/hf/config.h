/*
 * config — config.json of a Hugging Face folder, and the [model] section of a job that says the
 * same.
 *
 * One table of keys (config.c) drives both directions; what the table does not know does not
 * concern the model's numbers, or is among the keys that must have the value under which the model
 * is ours (activation, biases, scaling of attention, …) and is refused otherwise, by key and value.
 * rope.h says how rotary positions are read. What a file leaves out has transformers' default for
 * the family. Of the dropouts, GPT-2's of embedding and residual must be one. balance.h says how
 * Mixtral's balancing loss is scaled.
 *
 * The section is checked as a job file is, so whatever comes out can be trained.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_CONFIG_H
#define MUSTER_AGENT_ENGINE_HF_CONFIG_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { HF_CONFIG_BYTES_MOST = 1 << 24 };

/* `name` stands for the file in errors. seq: overrides its context where positions are rotary
 * (ERR_CORRUPT where they are learned and others); 0: the file's own. out is a job of defaults but
 * for [model]. ERR_UNSUPPORTED: a model that is not ours; ERR_CORRUPT: not what a config.json
 * holds. */
int hf_config_read(const char *text, size_t n, const char *name, int64_t seq, struct job *out,
		   struct err *e);

/* The job's model as config.json; torch: float32, bfloat16 or float16. A new reference. NULL:
 * ERR_UNSUPPORTED, transformers has no such model in this family. */
json_t *hf_config_write(const struct job *job, const char *torch, struct err *e);

/* Appends the [model] section with the keys that the family has. */
void hf_config_section(const struct job *job, struct buf *out);

#endif
