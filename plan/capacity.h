/*
 * plan_capacity — how many devices and groups a cluster has room for.
 */
#ifndef MUSTER_PLAN_CAPACITY_H
#define MUSTER_PLAN_CAPACITY_H

#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "topo/cluster.h"

/* Returns the number of devices of all nodes. */
int plan_devices(const struct cluster *c);
/* Returns how many tensor-parallel groups of tp ranks fit inside nodes, or inside nodes that share
 * an NVLink fabric. */
int plan_groups(const struct cluster *c, int tp);
/* Returns the largest dp for the other degrees of l that the devices hold, that divides the global
 * batch and that ep divides; at least ep. */
int plan_fill_dp(const struct job *job, const struct cluster *c, const struct layout *l);
/* Whether agents on such a node compute on its cores and in its memory. */
bool plan_on_cpu(const struct node_kind *k);

#endif
