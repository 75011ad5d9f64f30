/*
 * devices — the machine that an agent has on a kind of node. If nothing was measured there, it is
 * computed from data sheet figures (topo/gpus.h) times the share of them that training reaches;
 * devices.c names the sources.
 */
#ifndef MUSTER_PLAN_COST_DEVICES_H
#define MUSTER_PLAN_COST_DEVICES_H

#include "plan/cost/machine.h"

struct job;
struct plan;

/* part: the share of a CPU node's device figures that an agent has; 1 on a GPU. low_precision:
 * products in 2-byte types; on GPUs fp32 products have a share of that rate (devices.c). Unknown
 * figures count as those of one slow core. */
void cost_machine_of(const struct node_kind *k, bool low_precision, double part,
		     struct cost_machine *out);
/* The machine of each of `agents` agents with `threads` threads on such a node: as measured there
 * (measured.h), otherwise by cost_machine_of. A GPU has one agent, whatever its threads. */
void cost_machine_of_agents(const struct node_kind *k, bool low_precision, int agents, int threads,
			    struct cost_machine *out);
/* Whether it is a GPU without products in the job's type: bf16 before Ampere. */
bool cost_device_lacks(const struct job *job, const struct node_kind *k);
/* The rate of large products of an agent on this machine, FLOP/s. */
double cost_machine_pace(const struct cost_machine *m);
/* The slowest machine of the plan's ranks; the fastest one if the job names the ranks' speeds,
 * which are relative to it. CPU agents share their node's cores by their threads. */
void cost_machine_of_plan(const struct job *job, const struct cluster *c, const struct plan *p,
			  struct cost_machine *out);

#endif
