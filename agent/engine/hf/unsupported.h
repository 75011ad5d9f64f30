/*
 * unsupported — recognizes folders that look like a Hugging Face model but cannot be imported, and
 * gives the remedy for each.
 *
 * Two tables (unsupported.c) hold the signs: files (an adapter, PyTorch's pickles, GGUF, …), and
 * values in config.json (quantized weights, a classifier). Each row has the remedy, with a command
 * if one exists. Folders that the tables do not cover are left to config.h and weights.h, which
 * name each thing that they do not support.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_UNSUPPORTED_H
#define MUSTER_AGENT_ENGINE_HF_UNSUPPORTED_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* ERR_UNSUPPORTED: the text describes the folder and the remedy. Returns 0 if the folder does not
 * exist. */
int hf_unsupported_check_folder(const char *folder, struct err *e);

/* Checks the text of a config.json. name: the file's name, for errors. Returns 0 for a text that is
 * not JSON, which hf_config_read refuses. */
int hf_unsupported_check_config(const char *text, size_t n, const char *name, struct err *e);

/* For a tensor that the model does not have: a sentence on its purpose and the remedy; NULL:
 * unknown. */
const char *hf_unsupported_tensor(const char *name);

/* Whether the path is a Hugging Face folder, importable or not, rather than a checkpoint or a run
 * folder. */
bool hf_is_folder(const char *path);

#endif
