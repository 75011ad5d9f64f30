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

/* What a rank does: 0, or -1 with the err set, which is printed; or an exit status of its own. */
typedef int world_fn(struct comm *world, void *arg, struct err *e);

/* Seconds after which a rank that is not done is ended, and that it waits for another:
 * PATIENCE_S, unless a program says otherwise. */
extern int world_patience;

/* Runs fn as each rank of a world of n processes. 0 when all returned 0; the first rank that
 * fails ends the others. */
int world_run(int n, world_fn *fn, void *arg);
/* The same, but each goes on to its own end: outcomes[rank] is its exit status, -1 when a signal
 * ended it. */
void world_outcomes(int n, world_fn *fn, void *arg, int *outcomes);

/* A world of one rank in this process. */
struct comm *world_alone(void);

#endif
