/*
 * devices — the machine that a kind of node makes its agents, where nothing was measured: data
 * sheet figures (topo/gpus.h) times the shares of them that training reaches (devices.c says
 * whence).
 */
#ifndef MUSTER_PLAN_COST_DEVICES_H
#define MUSTER_PLAN_COST_DEVICES_H

#include "plan/cost/machine.h"

struct job;
struct plan;

/* part: of a CPU node, the share of its device figures that an agent has; 1 of a GPU. narrow:
 * products in 2-byte types; GPUs have fp32 ones at a share of that rate (devices.c). Figures that
 * are not known are taken as one slow core's. */
void cost_machine_of(const struct node_kind *k, bool narrow, double part, struct cost_machine *out);
/* What each of `agents` on such a node with so many threads is: as measured there (measured.h),
 * else by cost_machine_of; a GPU has one agent, whatever its threads. */
void cost_machine_of_agents(const struct node_kind *k, bool narrow, int agents, int threads,
			    struct cost_machine *out);
/* The slowest one that the plan's ranks are: it sets the pace. CPU agents share their node's
 * cores by their threads. */
void cost_machine_of_plan(const struct job *job, const struct cluster *c, const struct plan *p,
			  struct cost_machine *out);

#endif
