/*
 * register — starts libpmix's server in the calling process, up to the point where clients may
 * connect.
 *
 * Only the process that server.c forks calls it and does nothing else, because libpmix keeps its
 * state in globals and runs a thread. The only callback of ours on that thread is exchange.h's.
 */
#ifndef MUSTER_LAUNCHER_PMIX_REGISTER_H
#define MUSTER_LAUNCHER_PMIX_REGISTER_H

#include "base/buf.h"
#include "base/err.h"

/* The ranks of a namespace, and those of this node among them. */
struct local_group {
	const char *nspace;
	int world;
	/* The node of each rank; nodes are numbered from 0, and each has a rank. NULL: all ranks are
	 * on this node, which is the only one. */
	const int *node_of;
	int node; /* this one */
};

/* Starts the server with its files in `dir`, registers the ranks of this node, and appends the
 * environment of each: its variables, each ended by a NUL, and an empty string. */
int local_register_ranks(const struct local_group *g, const char *dir, struct buf *env,
			 struct err *e);

/* Drops the ranks of this node and the namespace, and returns when libpmix has removed the files that
 * they have named to it, such as Open MPI's shared memory in /dev/shm. They would remain if a rank was
 * killed just before the server's process ends. */
void local_unregister_ranks(const struct local_group *g);

#endif
