/*
 * helper — starts the agents of one node of a Slurm allocation where Slurm itself has no PMIx server.
 *
 * launch_slurm starts one helper on each node that has ranks (launcher/slurm/relay.h), with
 * `srun --mpi=none`. The helper connects to the supervisor, learns from it which agents to start, and
 * runs the node's PMIx server (launcher/pmix/server.h). It forwards what the node's ranks put before
 * each fence to the supervisor, and gets from it what the ranks of all nodes have put.
 *
 *     supervisor  ← helper   helper_hello
 *                 → helper   helper_start
 *                 ← helper   helper_part …                   the node's ranks have entered a fence
 *                 → helper   helper_part, ← helper_next, …   all ranks have entered it
 *                 ← helper   helper_exited, one per agent
 *                 ← helper   failed                          the agents cannot be started
 *                 → helper   abort                           kill the agents and report their ends
 *
 * The channel is that of the agents (base/auth.h), with a secret of its own: it proves both sides,
 * and seals every frame. The agents' secret travels in helper_start only.
 *
 * Who ends when:
 *   - An agent that ends is reported at once. The helper leaves when its last agent has ended.
 *   - If the supervisor is lost, the helper kills its agents and leaves.
 *   - The agents die with the helper (PR_SET_PDEATHSIG), and so does the PMIx server.
 *   - If the PMIx server dies, the agents continue: they need it only until they are wired up. Those
 *     that are not yet report the failure themselves.
 *   - Slurm sends signals to its own tasks only, so the helper forwards them to the agents.
 *
 * The PMIx server's files are in <run>/.pmix/node<number>. The supervisor removes them if the helper
 * cannot.
 */
#ifndef MUSTER_LAUNCHER_HELPER_HELPER_H
#define MUSTER_LAUNCHER_HELPER_HELPER_H

#include "base/err.h"

/* The whole life of a helper. 0: all its agents have ended. */
int helper_run(struct err *e);

#endif
