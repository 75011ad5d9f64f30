/*
 * launch — starts the agents of one generation. Each way to start them is a backend:
 *
 *     local  an embedded PMIx server and fork, one agent per slot (launcher/pmix/)
 *     slurm  one srun step with --mpi=pmix (launcher/slurm/)
 *
 * To add a backend:
 *   1. a room below launcher/ with a `const struct launch_ops`, and its row in `rooms`;
 *   2. its word for the key [launch] launcher (plan/spec/job/);
 *   3. its row in the table of launcher/cli/launch_choose.c.
 */
#ifndef MUSTER_LAUNCHER_LAUNCH_H
#define MUSTER_LAUNCHER_LAUNCH_H

#include "base/agent_env.h" /* the environment that a backend gives every agent */
#include "base/err.h"
#include "base/munge.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct launch_request {
	const struct job *job;
	const struct cluster *cluster;
	const struct plan *plan;
	uint32_t generation;
	const char *address; /* of the supervisor */
	const char *secret;  /* hex */
	const char *run_dir;
	const char *agent; /* path of muster-agent */
	const char *auth;  /* value of AGENT_ENV_AUTH */
};

struct launch; /* one generation that runs */

/* Called on the loop's thread. */
struct launch_events {
	/* The process of a rank has ended; rank -1: the launcher itself, such as srun, if the
	 * backend cannot distinguish ranks. status: as of waitpid. */
	void (*exited)(void *arg, int rank, int status);
	/* No process of the generation is left; the launch may be closed. */
	void (*all_gone)(void *arg);
	void *arg;
};

struct launch_ops {
	const char *name;
	/* Chooses the value of AGENT_ENV_AUTH for all generations of the run. *warning is set to
	 * what the user should know about the choice. NULL: the secret is enough. */
	void (*auth)(char word[MUNGE_WORD], struct err *warning);
	/* Returns when all processes are started; on failure none is left. ERR_PEER: a helper
	 * process died, and another attempt may succeed. */
	int (*start)(uv_loop_t *loop, const struct launch_request *r,
		     const struct launch_events *ev, struct launch **out, struct err *e);
	/* Sends SIGKILL to what still runs; all_gone follows. */
	void (*kill)(struct launch *l);
	/* Called after all_gone. */
	void (*close)(struct launch *l);
};

#endif
