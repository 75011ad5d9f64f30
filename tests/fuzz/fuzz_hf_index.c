/* Any bytes as a model.safetensors.index.json: they are refused in one line, or they give plain
 * file names, each once. */
#include "agent/engine/hf/index.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct hf_index x;
	if (hf_index_parse((const char *)data, size, "fuzz.json", &x, &e)) {
		if (e.code != ERR_CORRUPT || strncmp(e.text, "fuzz.json: ", 11))
			abort();
		return 0;
	}
	for (int i = 0; i < x.n_files; i++) {
		if (!x.files[i][0] || strchr(x.files[i], '/') || !strcmp(x.files[i], ".."))
			abort();
		for (int j = 0; j < i && x.n_files < 100; j++)
			if (!strcmp(x.files[i], x.files[j]))
				abort();
	}
	hf_index_fini(&x);
	return 0;
}
