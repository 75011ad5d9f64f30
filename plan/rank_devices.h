/*
 * rank_devices — gives each rank its device and its threads, and counts who shares its node.
 *
 * For plan.c. plan/place/ finds the map for the job's own traffic. Block order is kept if devices
 * are named one by one (launch.speeds, launch.threads), if ZeRO shards inside nodes, and on one
 * host whose CPU devices are all equal.
 */
#ifndef MUSTER_PLAN_RANK_DEVICES_H
#define MUSTER_PLAN_RANK_DEVICES_H

#include "plan/plan.h"

/* Sets p->ranks, p->place and p->threads. shape, layout, stages, shares and micros of p must be
 * set. */
int plan_assign_devices(const struct job *job, const struct cluster *c, struct plan *p,
			struct err *e);

/* Lists the ranks node by node, in rising order on each node: the ranks of node n begin at
 * order[first[n]] and end before order[first[n + 1]]. first: [n_nodes + 1]. order: [world]. */
void plan_ranks_by_node(const struct cluster *c, const struct plan *p, int *first, int *order);

#endif
