/*
 * kind — what a folder is that looks like a model of Hugging Face and cannot be read as one, and
 * what to do about it.
 *
 * Two tables (kind.c): files that say so (an adapter, weights in PyTorch's pickles, GGUF, …), and
 * values in config.json (quantized weights, a classifier). Each row has the remedy, a command where
 * one does it. A folder that the tables do not know is left to config.h and weights.h, which refuse
 * what they do not understand by name.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_UNSUPPORTED_H
#define MUSTER_AGENT_ENGINE_HF_UNSUPPORTED_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* ERR_UNSUPPORTED: what it is and the remedy. 0 for a folder that is not there, too. */
int hf_unsupported_check_folder(const char *folder, struct err *e);

/* The text of a config.json; `name` stands for the file in errors. What is no JSON passes:
 * hf_config_read says so. */
int hf_unsupported_check_config(const char *text, size_t n, const char *name, struct err *e);

/* What a tensor with this name, which has no place in the model, is there for; NULL: not known. */
const char *hf_unsupported_tensor(const char *name);

/* Whether it is a folder of Hugging Face, readable or not, rather than a checkpoint or a run's. */
bool hf_is_folder(const char *path);

#endif
