/* alone — a world of one rank, in the test's own process. */
#ifndef MUSTER_TESTS_UNIT_AGENT_ALONE_H
#define MUSTER_TESTS_UNIT_AGENT_ALONE_H

#include "libcomm/comm.h"

#include <stdlib.h>
#include <string.h>

static inline int alone_put(void *arg, const char *key, const char *value, struct err *e)
{
	(void)key;
	(void)e;
	free(*(char **)arg);
	*(char **)arg = strdup(value);
	return 0;
}

static inline int alone_fence(void *arg, struct err *e)
{
	(void)arg;
	(void)e;
	return 0;
}

static inline int alone_get(void *arg, int rank, const char *key, char **value, struct err *e)
{
	(void)rank;
	(void)key;
	(void)e;
	*value = strdup(*(char **)arg);
	return 0;
}

/* NULL when it cannot be opened. */
static inline struct comm *alone(void)
{
	char *published = NULL;
	struct comm_bootstrap boot = {
		.rank = 0, .size = 1, .put = alone_put, .fence = alone_fence, .get = alone_get, .arg = &published,
	};
	struct comm_options opt = { .host = "here", .interface = "", .timeout_s = 10, .backend = "auto" };
	struct comm *world;
	int rc = comm_open(&boot, &opt, &world, NULL);
	free(published);
	return rc ? NULL : world;
}

#endif
