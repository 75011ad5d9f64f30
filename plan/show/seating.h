/*
 * seating — why the ranks sit where they do: what the map costs beside others, and the links that
 * each kind of group runs over. For plan/show only.
 */
#ifndef MUSTER_PLAN_SHOW_SEATING_H
#define MUSTER_PLAN_SHOW_SEATING_H

#include "plan/plan.h"

/* Nothing where there is nothing to choose: on one node of which no link is known. */
void show_seating_print(const struct cluster *c, const struct plan *p, struct buf *out);
/* A new reference: {order, seconds, block_seconds, worst_seconds, spares: [node…], groups: [{kind,
 * ranks, nodes, per_node, inside, hops, rails, …}…]}. order: "block" where it is Slurm's, else
 * "placed". */
json_t *show_seating_json(const struct cluster *c, const struct plan *p);

#endif
