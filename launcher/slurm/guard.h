/*
 * guard — a process on another node of the allocation, which ends the job if its supervisor is gone.
 *
 * muster's jobs run with --no-kill, so that the loss of a node does not end them. If the batch host
 * is lost, and the supervisor with it, Slurm therefore leaves the job running on the other nodes,
 * with nobody in it, until its time limit. The guard requeues the job then, or cancels it.
 *
 * The supervisor starts the guard as a job step of one task (guard_step.c) and replaces it if it is
 * lost (launcher/supervise/guard.h). The step takes no GPU and shares the ranks' CPUs. The guard is
 * the hidden command `muster guard` (launcher/cli/cmd_guard.c). It gets the supervisor's address,
 * the secret and what else to prove from its environment (base/agent_env.h).
 *
 * Over the control channel (base/auth.h) the guard sends guard_hello. The supervisor sends alive
 * every second, and the guard answers each with alive. At the end of the run the supervisor sends
 * release, and the guard exits with status 0. guard_state.h describes what it does when the signs
 * of life stop.
 *
 * The guard writes what it sees and does to logs/guard.log in the run folder.
 */
#ifndef MUSTER_LAUNCHER_SLURM_GUARD_H
#define MUSTER_LAUNCHER_SLURM_GUARD_H

#include "base/err.h"
#include "launcher/slurm/guard_state.h"

struct guard_process_options {
	const char *run_dir;
	const char *job;  /* id of the job */
	const char *node; /* this node's name */
	int number;       /* of the guard within the run */
	bool requeue;     /* [slurm] requeue */
	struct guard_limits limits;
};

/* Runs until the guard is released, has acted, gets SIGTERM, or is not needed. An error means that
 * it could not start. */
int slurm_guard_run(const struct guard_process_options *o, struct err *e);

#endif
