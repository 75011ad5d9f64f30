/* Any bytes as the .metadata of a DCP folder: they are refused in one line, or they give tensors
 * with different names, whose chunks tile them and are in plain files. */
#include "agent/engine/dcp/metadata.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensor(const struct dcp_tensor *t)
{
	int64_t whole = 1, covered = 0;
	for (int d = 0; d < t->dims; d++)
		whole *= t->shape[d];
	for (int64_t i = 0; i < t->n; i++) {
		const struct dcp_chunk *c = &t->chunks[i];
		int64_t elements = 1;
		for (int d = 0; d < t->dims; d++) {
			if (c->lo[d] < 0 || c->hi[d] <= c->lo[d] || c->hi[d] > t->shape[d])
				abort();
			elements *= c->hi[d] - c->lo[d];
		}
		covered += elements;
		if (!c->file_length || memchr(c->file, '/', c->file_length) || c->file[0] == '.' ||
		    c->at < 0 || c->length < 0)
			abort();
	}
	if (covered != whole)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct dcp_metadata m;
	if (dcp_metadata_parse(data, size, "fuzz", &m, &e)) {
		if ((e.code != ERR_CORRUPT && e.code != ERR_UNSUPPORTED) ||
		    strncmp(e.text, "fuzz: ", 6))
			abort();
		return 0;
	}
	for (int64_t i = 0; i < m.n; i++) {
		if (i > 0 && strcmp(m.tensors[i - 1].name, m.tensors[i].name) >= 0)
			abort();
		if (!dcp_metadata_chunks(&m, &m.tensors[i], &e))
			check_tensor(&m.tensors[i]);
	}
	dcp_metadata_free(&m);
	return 0;
}
