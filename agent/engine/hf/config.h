/*
 * config — converts between config.json of a Hugging Face folder and the [model] section of a job.
 *
 * The tables of family.h drive both directions. A key that they do not list does not affect what
 * the model computes. Some keys must have the value that muster computes (activation, biases, the
 * scale of attention, …); any other value is refused by key and value. rope.h explains how rotary
 * positions are read, balance.h how Mixtral's balancing loss is scaled. A missing key has
 * transformers' default for the family. GPT-2's dropouts of the embedding and of the residual must
 * be equal.
 *
 * The resulting section passes the checks of a job file, so every imported model can be trained.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_CONFIG_H
#define MUSTER_AGENT_ENGINE_HF_CONFIG_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { HF_CONFIG_BYTES_MAX = 1 << 24 };

/* Reads a config.json into a job that has defaults outside [model]. name: the file's name, for
 * errors. seq: a context that replaces the file's; 0: the file's own. Learned positions allow no
 * other context (ERR_CORRUPT). ERR_UNSUPPORTED: muster cannot compute this model. ERR_CORRUPT: the
 * text is not a valid config.json. */
int hf_config_read(const char *text, size_t n, const char *name, int64_t seq, struct job *out,
		   struct err *e);

/* Returns the job's model as config.json, a new reference. torch: float32, bfloat16 or float16.
 * NULL with ERR_UNSUPPORTED: transformers' class of this family cannot compute the model. */
json_t *hf_config_write(const struct job *job, const char *torch, struct err *e);

/* Appends the [model] section, with the keys that matter for the family. */
void hf_config_section(const struct job *job, struct buf *out);

#endif
