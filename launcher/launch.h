/*
 * launch — starts the agents of one generation; one backend a way of starting.
 *
 * local: a PMIx server of our own and fork, one agent a slot (launcher/pmix/).
 * slurm: one srun step with --mpi=pmix (launcher/slurm/).
 *
 * To add a way: a `const struct launch_ops` in a room of its own, and a row in
 * launcher/cli/launch_choose.c's table.
 */
#ifndef MUSTER_LAUNCHER_LAUNCH_H
#define MUSTER_LAUNCHER_LAUNCH_H

#include "base/agent_env.h" /* what every agent finds in its environment */
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
	const char *auth;  /* AGENT_ENV_AUTH's word */
};

struct launch; /* one generation under way */

/* Both run on the loop's thread. */
struct launch_events {
	/* A rank's process ended, as far as the backend can tell ranks apart (rank -1: the whole
	 * step). status as of waitpid. */
	void (*exited)(void *arg, int rank, int status);
	/* Every process of the generation is gone; the launch may be closed. */
	void (*all_gone)(void *arg);
	void *arg;
};

struct launch_ops {
	const char *name;
	/* How the control channel's ends prove themselves: AGENT_ENV_AUTH's word for all of the
	 * run's generations. What the person should know of it is in *warning. NULL: the secret is
	 * enough. */
	void (*auth)(char word[MUNGE_WORD], struct err *warning);
	/* Returns once everything is started or nothing is left of it. ERR_PEER: a helper process
	 * died, and another attempt may well succeed. */
	int (*start)(uv_loop_t *loop, const struct launch_request *r,
		     const struct launch_events *ev, struct launch **out, struct err *e);
	/* SIGKILLs whatever still runs; all_gone follows. */
	void (*kill)(struct launch *l);
	/* After all_gone. */
	void (*close)(struct launch *l);
};

#endif
