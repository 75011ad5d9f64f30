/*
 * group_costs — for a map of ranks, the links that each kind of group runs over and the seconds
 * that its traffic takes.
 *
 * All groups of a kind transfer at the same time, different kinds at different times. A group's
 * collectives visit its nodes one after the other, whatever the order of its ranks; chains (pp) and
 * rings of hops (cp) follow the order of the ranks. The flows of each kind are:
 *   ring (tp, dp, expert dp, tie)  between the neighbours on a node; from each node to the next, as
 *                                  many flows side by side as the node with the fewest ranks of the
 *                                  group has
 *   hops (cp, pp)                  from each rank to the next; from pp's last rank to its first
 *                                  only if chunks go round the ranks
 *   all-to-all (ep)                equal parts to all others. Adapters of other rails are reached
 *                                  inside the node first
 * For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_GROUP_COSTS_H
#define MUSTER_PLAN_PLACE_GROUP_COSTS_H

#include "plan/place/traffic.h"

struct group_costs;
struct group_cost_sum {
	double worst; /* seconds of the slowest group */
	double mean;  /* over all groups */
};

/* Borrows the cluster. ERR_NOMEM. */
int place_group_costs_open(const struct cluster *c, const struct layout *l,
			   struct group_costs **out, struct err *e);
void place_group_costs_close(struct group_costs *w);
/* Sets span and sum of one kind. slots: of each rank. Groups with a rank at node -1 (no device yet)
 * are skipped. The sums of such a partial map are lower bounds for every map that completes it. */
void place_group_costs_of_kind(struct group_costs *w, const struct cluster_slot *slots,
			       enum group_kind kind, const struct traffic *t,
			       struct group_links *span, struct group_cost_sum *sum);

/* Calls `visit` for every flow of the groups of a kind. For an all-to-all these are the flows
 * inside units, and between units the flows that a ring has. */
typedef void flow_visitor(void *with, struct cluster_slot from, struct cluster_slot to);
void place_group_flows(struct group_costs *w, const struct cluster_slot *slots,
		       enum group_kind kind, flow_visitor *visit, void *with);

#endif
