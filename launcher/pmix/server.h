/*
 * server — the PMIx server of one generation on this host.
 *
 * It is a process of its own, forked from the launcher, because libpmix's server can crash or hang
 * if a client dies while it connects, and the launcher has to survive that. Each generation gets a
 * new process and with it a new namespace, because PMIx cannot replace a dead process of a
 * namespace. The process is killed at the end, and dies with the launcher. It listens on the
 * loopback address only and keeps its files in <run>/.pmix, which the run's lock protects.
 */
#ifndef MUSTER_LAUNCHER_PMIX_SERVER_H
#define MUSTER_LAUNCHER_PMIX_SERVER_H

#include "base/err.h"

struct local_server;

/* Returns when `world` ranks of `nspace` may connect. The library prints to log_fd. ERR_PEER: the
 * process was killed or crashed before that; the caller may try again. */
int local_server_open(const char *nspace, int world, const char *run_dir, int log_fd,
		      struct local_server **out, struct err *e);
void local_server_close(struct local_server *s);
/* The environment variables with which a rank finds the server; ends with NULL, owned by the
 * server. */
char *const *local_server_env(const struct local_server *s, int rank);

#endif
