/* golden — reads the files that tests/golden/make_golden.py wrote. Whatever is not as it must be
 * ends the test. */
#ifndef MUSTER_TESTS_UNIT_AGENT_GOLDEN_H
#define MUSTER_TESTS_UNIT_AGENT_GOLDEN_H

#include <jansson.h>
#include <stdint.h>

struct golden {
	char *bytes; /* the whole file */
	char *data;  /* behind the header */
	json_t *header;
};

void golden_open(const char *path, struct golden *g);
void golden_close(struct golden *g);
/* The values of a tensor whose bytes must be `bytes`, named prefix + name. */
const void *golden_tensor(const struct golden *g, const char *prefix, const char *name,
			  size_t bytes);

#endif
