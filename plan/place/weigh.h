/*
 * weigh — what a map of ranks costs: the links that each kind of group runs over, and the seconds
 * of its traffic.
 *
 * All groups of a kind move at once, and different kinds at different times. A group's collectives
 * visit its nodes one after the other, whatever the order of its ranks; chains (pp) and rings of
 * hops (cp) go in the order of the ranks. Flows that make up a kind:
 *   ring (tp, dp, expert dp, tie)  the neighbours on a node; from each node to the next as many
 *                                  side by side as the least node has ranks of the group
 *   hops (cp, pp)                  a rank to the next; pp's last to its first only where chunks are
 *                                  dealt round
 *   all-to-all (ep)                equal parts to all others. Between nodes adapters of other rails
 *                                  are reached inside the node first
 * For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_WEIGH_H
#define MUSTER_PLAN_PLACE_WEIGH_H

#include "plan/place/traffic.h"

struct weigh;
struct weigh_sum {
	double worst; /* seconds of the slowest group */
	double mean;  /* over all groups */
};

/* Borrows the cluster. ERR_NOMEM. */
int place_weigh_open(const struct cluster *c, const struct layout *l, struct weigh **out,
		     struct err *e);
void place_weigh_close(struct weigh *w);
/* span, sum: of the kind; slots: of each rank. Groups that have a rank at node -1, nowhere, are
 * passed over: partial maps, whose sums are bounds from below for every map that completes them. */
void place_weigh_kind(struct weigh *w, const struct cluster_slot *slots, enum group_kind kind,
		      const struct traffic *t, struct group_links *span, struct weigh_sum *sum);

/* Shows every flow of the groups of a kind; of an all-to-all those inside units, and between
 * units such as a ring would have. */
typedef void weigh_see(void *with, struct cluster_slot from, struct cluster_slot to);
void place_weigh_flows(struct weigh *w, const struct cluster_slot *slots, enum group_kind kind,
		       weigh_see *see, void *with);

#endif
