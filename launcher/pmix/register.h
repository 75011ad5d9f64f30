/*
 * register — libpmix's server in the calling process, up to the point where clients may connect.
 *
 * For the process that server.c forks, which has nothing else to do: libpmix
 * keeps its state in globals and a thread. No callback of ours runs on it.
 */
#ifndef MUSTER_LAUNCHER_PMIX_REGISTER_H
#define MUSTER_LAUNCHER_PMIX_REGISTER_H

#include "base/buf.h"
#include "base/err.h"

/* Starts the server with its files in `dir`, makes `world` ranks known, and appends the environment
 * of each: its words, each ended by a NUL, and an empty word. */
int local_register_ranks(const char *nspace, int world, const char *dir, struct buf *env,
			 struct err *e);

#endif
