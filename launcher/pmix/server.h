/*
 * server — the PMIx server that the launcher is for the agents of its own host.
 *
 * libpmix keeps its state in globals: there is one server a process. It is
 * started by the first server_register (about 10 ms) and lasts until
 * server_shut. It listens on the loopback address only and keeps its files in
 * <run>/pmix, which goes with it; the run's lock makes that folder its own. All calls come from one thread and
 * wait for libpmix's progress thread; no callback of ours runs on that one.
 *
 * A namespace is one generation: PMIx cannot put a new process in a dead
 * one's place, so a restart registers anew.
 */
#ifndef MUSTER_LAUNCHER_PMIX_SERVER_H
#define MUSTER_LAUNCHER_PMIX_SERVER_H

#include "base/err.h"

enum { SERVER_NSPACE_MAX = 64 };

/* Makes `world` ranks of `nspace` known; they may connect once this returns. */
int server_register(const char nspace[SERVER_NSPACE_MAX], int world, const char *run_dir, struct err *e);
/* What a rank needs in its environment to find the server: NULL-terminated, freed by server_env_free. */
int server_env(const char nspace[SERVER_NSPACE_MAX], int rank, char ***env, struct err *e);
void server_env_free(char **env);
/* The generation is over. */
void server_forget(const char nspace[SERVER_NSPACE_MAX]);
void server_shut(void);

#endif
