/*
 * placement — shows why the ranks are on these devices: the cost of the map compared with others,
 * and the links that each kind of group runs over. For plan/show only.
 */
#ifndef MUSTER_PLAN_SHOW_PLACEMENT_H
#define MUSTER_PLAN_SHOW_PLACEMENT_H

#include "plan/plan.h"

/* Prints nothing if there is no choice: on one node whose links are unknown. */
void show_placement_print(const struct cluster *c, const struct plan *p, struct buf *out);
/* A new reference: {order, seconds, block_seconds, worst_seconds, spares: [node…], groups: [{kind,
 * ranks, nodes, per_node, inside, hops, rails, …}…]}. order: "block" if it is Slurm's, otherwise
 * "placed". */
json_t *show_placement_json(const struct cluster *c, const struct plan *p);

#endif
