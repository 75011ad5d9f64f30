/*
 * agents — the agents of one generation on one node: starts, watches, signals and kills them.
 *
 * launch_local has the agents of its only node; the helper of a node (launcher/helper) has those of
 * its own. All calls come from the loop's thread. The agents die with the thread that started them.
 */
#ifndef MUSTER_LAUNCHER_PMIX_AGENTS_H
#define MUSTER_LAUNCHER_PMIX_AGENTS_H

#include "base/err.h"
#include "launcher/pmix/server.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct local_agents;

/* Everything is borrowed for the call of local_agents_start(). */
struct local_agents_request {
	const char *agent;   /* path of muster-agent */
	const char *address; /* the values of the variables in base/agent_env.h */
	const char *secret;
	const char *auth;
	uint32_t generation;
	const struct local_server *server; /* NULL: there is no PMIx */
	/* They are told their ranks by AGENT_ENV_RANKS: without PMIx, or if it is for the program that
	 * they run. */
	bool named;
	int world; /* ranks of the generation */
	int log_fd;
	int n;
	/* The rank of the node's agent `i`, its threads, and its CPUs as in base/pin.h; "": it is not
	 * bound. */
	int (*choose)(void *arg, int i, int *rank, int *threads, char *cpus, int size,
		      struct err *e);
	/* An agent has ended; status: as waitpid() sets it. */
	void (*exited)(void *arg, int rank, int status);
	/* The last agent has ended, and exited() was called for it. */
	void (*all_gone)(void *arg);
	void *arg;
};

/* Starts n agents. On failure none is left. */
int local_agents_start(uv_loop_t *loop, const struct local_agents_request *r,
		       struct local_agents **out, struct err *e);
/* Sends SIGKILL to all agents that still run. */
void local_agents_kill(struct local_agents *a);
/* Sends SIGKILL to the agent of this rank if it still runs. */
void local_agents_kill_rank(struct local_agents *a, int rank);
/* Sends a signal to all agents that still run. */
void local_agents_signal(struct local_agents *a, int signal);
/* Frees it once the loop has closed its handles. Called after all_gone(). */
void local_agents_close(struct local_agents *a);

#endif
