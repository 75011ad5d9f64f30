/* golden — reads the files that tests/golden/make_golden.py wrote. An invalid file
 * ends the test. */
#ifndef MUSTER_TESTS_UNIT_AGENT_GOLDEN_H
#define MUSTER_TESTS_UNIT_AGENT_GOLDEN_H

#include <jansson.h>
#include <stdint.h>

struct golden {
	char *bytes; /* the whole file */
	char *data;  /* after the header */
	json_t *header;
};

void golden_open(const char *path, struct golden *g);
void golden_close(struct golden *g);
/* Returns the values of the tensor prefix + name, whose size must be `bytes`. */
const void *golden_tensor(const struct golden *g, const char *prefix, const char *name,
			  size_t bytes);

#endif
