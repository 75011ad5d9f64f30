/*
 * register — starts libpmix's server in the calling process, up to the point where clients may
 * connect.
 *
 * Only the process that server.c forks calls it and does nothing else, because libpmix keeps its
 * state in globals and runs a thread. No callback of ours runs on that thread.
 */
#ifndef MUSTER_LAUNCHER_PMIX_REGISTER_H
#define MUSTER_LAUNCHER_PMIX_REGISTER_H

#include "base/buf.h"
#include "base/err.h"

/* Starts the server with its files in `dir`, registers `world` ranks, and appends the environment
 * of each: its variables, each ended by a NUL, and an empty string. */
int local_register_ranks(const char *nspace, int world, const char *dir, struct buf *env,
			 struct err *e);

#endif
