/*
 * span — the links that a kind of group runs over: what a collective's time is computed from.
 *
 * Of all groups of a kind the slowest counts, as a step waits for it: a span is that group's.
 * Bandwidths are a rank's share while every group of the kind sends at once, in one direction:
 * adapters, switches' uplinks, PCIe switches and sockets' interconnects are shared by those who use
 * them (weigh.h, load.h). Nodes that share an NVLink fabric count as one.
 *
 * A ring over several nodes crosses into the next node once a round for each of its `per_node`
 * ranks' adapters, which it uses side by side: its rate is the lesser of `inside` and per_node ×
 * `across`. An all-to-all's `inside` and `across` are what a rank has for all its peers there
 * together.
 */
#ifndef MUSTER_PLAN_PLACE_GROUP_LINKS_H
#define MUSTER_PLAN_PLACE_GROUP_LINKS_H

#include "plan/place/groups.h"
#include "topo/cluster.h"

struct link_speed {
	double bandwidth, latency; /* 0: unknown */
};

struct group_links {
	int ranks;                /* of a group */
	int nodes;                /* most nodes that a group lies on */
	int per_node;             /* fewest ranks of a group on one of its nodes */
	struct link_speed inside; /* the worst link between neighbours of a group on one node */
	struct link_speed
		across; /* a device's way to other nodes; {0, 0} where no group needs it */
	/* Of processors that were measured (plan/cost/measured.h), for groups on one node;
	 * borrowed, NULL: the links tell. Seconds are then as if the node's `crowd` agents had
	 * cores of their own: where they ask for `busy` times its cores, all takes so much longer.
	 */
	const struct measured *measured;
	int crowd;
	double busy;
};

/* slots: of each rank, [layout_world]. ERR_NOMEM. */
int place_group_links_of(const struct cluster *c, const struct layout *l,
			 const struct cluster_slot *slots,
			 struct group_links group_links[GROUP_KINDS], struct err *e);

/* --- In constant time, where nodes are alike: for a search over many layouts
 * ------------------------------ */

enum { SPAN_DEVICES = 16, SPAN_LEVELS = 6 };

/* What is to be known of a cluster, found once. Of nodes that differ each figure is the least
 * one's, and leaves count as full. */
struct regular_cluster {
	int devices;               /* of a node; of nodes that share an NVLink fabric together */
	int units;                 /* such nodes */
	struct link_speed port;    /* between devices of one, a pair's where there is no table */
	struct link_speed adapter; /* a device's share while all send */
	int sharers;               /* devices of one adapter */
	int levels; /* of switches whose uplinks are a bound or not, from the leaves up */
	struct {
		int units; /* below one switch */
		double up; /* INFINITY: no bound */
	} level[SPAN_LEVELS];
	bool table; /* links inside differ, and there are SPAN_DEVICES at most: */
	/* of each kind's groups of so many ranks there (a tie's: stages), so many devices apart,
	 * while all such groups send; [1]: chunks dealt round */
	struct link_speed inside[2][GROUP_KINDS][SPAN_DEVICES + 1][SPAN_DEVICES + 1];
};
int place_regular_cluster_of(const struct cluster *c, struct regular_cluster *out, struct err *e);

/* Ranks of each degree on one node, of which each divides its degree; their product is at most
 * the yard's devices. */
struct rank_box {
	int tp, cp, dp, pp;
};
/* In the order of the ranks: tp first, then cp, dp, pp. */
struct rank_box place_block_box(const struct regular_cluster *y, const struct layout *l);
/* What place_group_links_of says of a map that gives each node such a box of the ranks' grid, nodes in
 * the order of the boxes (tp fastest). No allocation: some hundred operations. Where links inside a
 * node differ, expert dp with cp and ep above 1 is taken as neighbours. */
void place_group_links_regular(const struct regular_cluster *y, const struct layout *l,
			       const struct rank_box *f,
			       struct group_links group_links[GROUP_KINDS]);
/* The same of any boxes below the switches of each level, [y->levels], of which each divides the
 * next and the node's the first. */
void place_group_links_nested(const struct regular_cluster *y, const struct layout *l,
			      const struct rank_box *f, const struct rank_box *below,
			      struct group_links group_links[GROUP_KINDS]);

/* --- Seconds
 * ------------------------------------------------------------------------------------------ */

/* A ring's all-gather or reduce-scatter of a tensor of so many bytes in all. */
double place_seconds_gather(const struct group_links *s, double bytes);
/* An all-reduce: both, or over many nodes, where latencies add up, a tree's. */
double place_seconds_all_reduce(const struct group_links *s, double bytes);
/* Each rank sends `bytes` in all, equal parts to each other rank. */
double place_seconds_all_to_all(const struct group_links *s, double bytes);
/* What is lost when the ranks wait for one another after so many seconds of equal work; 0 but
 * where it was measured. */
double place_seconds_meeting(const struct group_links *s, double work);
/* A message between neighbours, the slowest of them. */
double place_seconds_hop(const struct group_links *s, double bytes);

#endif
