/*
 * weigh — what a map of ranks costs: the links that each kind of group runs over, and the seconds
 * of its traffic.
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
/* Sets span and sum of one kind. slots: of each rank. Groups with a rank at node -1 (no device yet)
 * are skipped. The sums of such a partial map are lower bounds for every map that completes it. */
void place_weigh_kind(struct weigh *w, const struct cluster_slot *slots, enum group_kind kind,
		      const struct traffic *t, struct group_links *span, struct weigh_sum *sum);

/* Calls `see` for every flow of the groups of a kind. For an all-to-all these are the flows inside
 * units, and between units the flows that a ring has. */
typedef void weigh_see(void *with, struct cluster_slot from, struct cluster_slot to);
void place_weigh_flows(struct weigh *w, const struct cluster_slot *slots, enum group_kind kind,
		       weigh_see *see, void *with);

#endif
