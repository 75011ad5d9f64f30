/*
 * world — a job of several ranks inside one test. The ranks are forked processes that find each
 * other through shared memory, so no launcher and no network is needed.
 */
#ifndef MUSTER_TESTS_UNIT_AGENT_WORLD_H
#define MUSTER_TESTS_UNIT_AGENT_WORLD_H

#include "libcomm/comm.h"

#include <stddef.h>

enum { WORLD_MAX = 16 };

/* Returns zeroed memory to which ranks that are forked later write their results. */
void *world_shared(size_t bytes);
void world_unshared(void *p, size_t bytes);

/* The body of a rank. It returns 0, or -1 with the err set, which is printed, or its own exit
 * status. */
typedef int world_fn(struct comm *world, void *arg, struct err *e);

/* Seconds after which an unfinished rank is ended, and seconds for which a rank waits for another
 * one. The default is PATIENCE_S; a program may change it. */
extern int world_patience;

/* Runs fn as each rank of a world of n processes. Returns 0 if all returned 0. The first rank that
 * fails ends the others. */
int world_run(int n, world_fn *fn, void *arg);
/* Runs fn as world_run does, but lets each rank run to its own end. outcomes[rank] is the rank's
 * exit status, or -1 if a signal ended it. */
void world_outcomes(int n, world_fn *fn, void *arg, int *outcomes);

/* Returns a world of one rank in this process. */
struct comm *world_alone(void);

#endif
