/*
 * relay — the supervisor's end of the helpers of one generation (launcher/helper/helper.h).
 *
 * It listens on the host of the agents' address, with a port and a secret of its own. Each helper
 * connects, passes the checks of launcher/connections.h, names its node, and is told which agents to
 * start. The relay reports the ends of agents, and the loss of a helper with the ends of all agents
 * that die with it. A helper that does not connect is lost, too.
 *
 * At a fence it collects what each node's ranks have put, and sends the whole to every node once the
 * last node's has come. A node gets the next part when it has acknowledged the last one, so that at
 * most one part per node is queued here, however much the ranks put. This star moves nodes × data
 * bytes through the supervisor's host: for 1024 agents of 1 KiB on 128 nodes 128 MiB.
 */
#ifndef MUSTER_LAUNCHER_SLURM_RELAY_H
#define MUSTER_LAUNCHER_SLURM_RELAY_H

#include "launcher/launch.h"

#include <stdbool.h>

struct relay;

struct relay_options {
	uv_loop_t *loop;
	const struct launch_request *request; /* borrowed for slurm_relay_open() */
	const struct launch_events *events;   /* exited() and noted(); copied */
	double patience; /* seconds after the first helper has connected in which the others must */
};

int slurm_relay_open(const struct relay_options *o, struct relay **out, struct err *e);
/* The values of AGENT_ENV_ADDRESS and AGENT_ENV_SECRET for the helpers. */
const char *slurm_relay_address(const struct relay *r);
const char *slurm_relay_secret(const struct relay *r);
/* Makes every helper kill its agents, also those that connect later. */
void slurm_relay_kill(struct relay *r);
/* Whether every node's agents are known to have ended: their helpers have reported it. */
bool slurm_relay_is_over(const struct relay *r);
/* Frees it once the loop has closed its handles. Takes NULL. */
void slurm_relay_close(struct relay *r);

#endif
