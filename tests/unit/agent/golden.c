#include "tests/unit/agent/golden.h"

#include "base/buf.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void golden_open(const char *path, struct golden *g)
{
	struct buf file = BUF_INIT;
	struct err e = ERR_INIT;
	uint64_t header;

	if (file_slurp(path, 1 << 24, &file, &e) || file.len < sizeof header) {
		fprintf(stderr, "%s: %s (tests run in the top folder of the sources)\n", path,
			e.text);
		abort();
	}
	g->bytes = buf_take(&file);
	memcpy(&header, g->bytes, sizeof header);
	g->header = json_loadb(g->bytes + sizeof header, header, 0, NULL);
	g->data = g->bytes + sizeof header + header;
	if (!g->header)
		abort();
}

void golden_close(struct golden *g)
{
	json_decref(g->header);
	free(g->bytes);
}

const void *golden_tensor(const struct golden *g, const char *prefix, const char *name,
			  size_t bytes)
{
	char full[128];
	json_int_t from, to;
	snprintf(full, sizeof full, "%s%s", prefix, name);
	if (json_unpack(json_object_get(g->header, full), "{s:[I,I]}", "data_offsets", &from,
			&to) ||
	    (size_t)(to - from) != bytes) {
		fprintf(stderr, "golden values: %s: missing, or not %zu bytes\n", full, bytes);
		abort();
	}
	return g->data + from;
}
