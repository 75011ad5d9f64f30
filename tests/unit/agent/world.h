/*
 * world — a job of several ranks inside one test: forked processes that find each other
 * through memory they share, so no launcher and no network is needed.
 */
#ifndef MUSTER_TESTS_UNIT_AGENT_WORLD_H
#define MUSTER_TESTS_UNIT_AGENT_WORLD_H

#include "libcomm/comm.h"

#include <stddef.h>

enum { WORLD_MOST = 16 };

/* Memory that the ranks forked later write their results to; zeroed. */
void *world_shared(size_t bytes);
void world_unshared(void *p, size_t bytes);

/* Runs fn as each rank of a world of n processes. fn returns 0, or -1 with the err set, which is printed.
 * Returns 0 when all did; the first rank that fails ends the others. */
int world_run(int n, int (*fn)(struct comm *world, void *arg, struct err *e), void *arg);

#endif
