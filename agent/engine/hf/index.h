/*
 * index — model.safetensors.index.json: which file holds which tensor.
 *
 * {"metadata": {"total_size": …}, "weight_map": {tensor: file}}. Each file is a plain name in the
 * folder of the index. Names with path separators, a leading dot or control characters are refused.
 */
#ifndef MUSTER_AGENT_ENGINE_HF_INDEX_H
#define MUSTER_AGENT_ENGINE_HF_INDEX_H

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

#define HF_INDEX_NAME "model.safetensors.index.json"

enum { HF_INDEX_BYTES_MAX = 1 << 28, HF_INDEX_FILES_MAX = 1 << 16 };

struct hf_index {
	json_t *root;
	json_t *map;        /* tensor -> file; borrowed from root */
	const char **files; /* each file once, in the order of the map; root owns the names */
	int n_files;
};

/* name: the file's name, for errors. ERR_CORRUPT: the text is not a valid index. */
int hf_index_parse(const char *text, size_t n, const char *name, struct hf_index *out,
		   struct err *e);
void hf_index_fini(struct hf_index *x);

#endif
