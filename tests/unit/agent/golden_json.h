/* golden_json — reads a file of tests/golden as JSON, for tests that compare muster with it. Tests
 * run in the top folder of the sources. */
#ifndef MUSTER_TESTS_UNIT_AGENT_GOLDEN_JSON_H
#define MUSTER_TESTS_UNIT_AGENT_GOLDEN_JSON_H

#include "base/file.h"

#include <jansson.h>
#include <stdio.h>

enum { GOLDEN_JSON_MAX = 16 << 20 };

/* Returns NULL after printing the reason. */
static inline json_t *golden_json(const char *path)
{
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	json_t *all = file_slurp(path, GOLDEN_JSON_MAX, &text, &e)
			      ? NULL
			      : json_loads(buf_str(&text), 0, NULL);
	if (!all)
		fprintf(stderr, "%s: %s\n", path, *e.text ? e.text : "is no JSON");
	buf_fini(&text);
	return all;
}

#endif
