/*
 * server — the PMIx server of one generation on this host.
 *
 * It is a process of its own, forked from the launcher: libpmix's server can
 * crash or hang when a client dies while it connects, and a launcher has to
 * outlive that. A generation gets a new process, and with it a new namespace
 * (PMIx cannot put a new process in a dead one's place), and the process is
 * simply killed at the end. It dies with the launcher, listens on the
 * loopback address only, and keeps its files in <run>/.pmix, which the run's
 * lock makes its own.
 */
#ifndef MUSTER_LAUNCHER_PMIX_SERVER_H
#define MUSTER_LAUNCHER_PMIX_SERVER_H

#include "base/err.h"

struct server;

/* Returns once `world` ranks of `nspace` may connect. What the library prints goes to log_fd.
 * ERR_PEER when the process was killed or crashed before that: another one may be tried. */
int local_server_open(const char *nspace, int world, const char *run_dir, int log_fd,
		      struct server **out, struct err *e);
void local_server_close(struct server *s);
/* What a rank needs in its environment to find the server: NULL-terminated, owned by the server. */
char *const *local_server_env(const struct server *s, int rank);

#endif
