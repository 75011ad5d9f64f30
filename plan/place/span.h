/*
 * span — the links that a kind of group runs over: what a collective's time is computed from.
 *
 * Of all groups of a kind the slowest counts, as a step waits for it. Bandwidths are a rank's share while every group of the kind
 * sends at once, in one direction. Nodes that share an NVLink fabric count as one.
 *
 * A ring over several nodes crosses into the next node once a round for each of its `per_node` ranks' adapters, which it
 * uses side by side: its rate is the lesser of `inside` and per_node × `across`.
 */
#ifndef MUSTER_PLAN_PLACE_SPAN_H
#define MUSTER_PLAN_PLACE_SPAN_H

#include "plan/place/groups.h"
#include "topo/cluster.h"

struct span_link {
	double bandwidth, latency; /* 0: unknown */
};

struct span {
	int ranks;    /* of a group */
	int nodes;    /* most nodes that a group lies on */
	int per_node; /* fewest ranks of a group on one of its nodes */
	struct span_link inside; /* the worst link between neighbours of a group on one node */
	struct span_link across; /* a device's way to other nodes; {0, 0} where no group needs it */
};

/* slots: of each rank, [layout_world]. ERR_NOMEM. */
int spans_of(const struct cluster *c, const struct layout *l, const struct cluster_slot *slots, struct span spans[GROUP_KINDS], struct err *e);

/* Seconds. A ring's all-reduce of a tensor of so many bytes; its two halves, reduce-scatter and all-gather, take half of it each. */
double span_all_reduce(const struct span *s, double bytes);
/* Each rank sends `bytes` in all, equal parts to each other rank. */
double span_all_to_all(const struct span *s, double bytes);
/* A message between neighbours. */
double span_hop(const struct span *s, double bytes);

#endif
