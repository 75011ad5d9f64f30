/*
 * group_links — the links that a kind of group runs over, from which the time of a collective is
 * computed.
 *
 * A step waits for the slowest group of a kind, so struct group_links describes that group.
 * Bandwidths are one rank's share, in one direction, while every group of the kind sends at the
 * same time: adapters, uplinks of switches, PCIe switches and the sockets' interconnects are shared
 * by those who use them (group_costs.h, link_load.h). Nodes that share an NVLink fabric count as
 * one.
 *
 * In each round a ring over several nodes crosses to the next node once for each of its `per_node`
 * ranks' adapters, which it uses side by side. Its rate is the smaller of `inside` and per_node ×
 * `across`. For an all-to-all, `inside` and `across` are what a rank has for all its peers there
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
	int nodes;                /* the most nodes that a group is on */
	int per_node;             /* the fewest ranks of a group on one of its nodes */
	struct link_speed inside; /* the worst link between neighbours of a group on one node */
	struct link_speed across; /* from a device to other nodes; {0, 0} if no group needs it */
	/* For groups on one node of processors that were measured (topo/measured.h); borrowed,
	 * NULL: the links count. The measured seconds are as if each of the node's `crowd` agents
	 * had cores of its own. If they ask for `busy` times its cores, everything takes longer by
	 * that factor. */
	const struct measured *measured;
	int crowd;
	double busy;
};

/* slots: the device of each rank, [layout_world]. ERR_NOMEM. */
int place_group_links_of(const struct cluster *c, const struct layout *l,
			 const struct cluster_slot *slots,
			 struct group_links group_links[GROUP_KINDS], struct err *e);

/* --- In constant time, if nodes are equal: for a search over many layouts ------- */

enum { SPAN_DEVICES = 16, SPAN_LEVELS = 6 };

/* The figures of a cluster that the functions below need, found once. If nodes differ, each figure
 * is the smallest of any node, and leaves count as full. */
struct regular_cluster {
	int devices;               /* of a node; of nodes that share an NVLink fabric together */
	int units;                 /* such nodes */
	struct link_speed port;    /* between two devices of a unit, if there is no table */
	struct link_speed adapter; /* a device's share while all devices send */
	int sharers;               /* devices of one adapter */
	int levels;                /* levels of switches, from the leaves up */
	struct {
		int units; /* units below one switch */
		double up; /* bandwidth of the uplinks; INFINITY: no limit */
	} level[SPAN_LEVELS];
	/* links inside a unit differ, and it has at most SPAN_DEVICES devices: `inside` counts */
	bool table;
	/* [chunks go round][kind][ranks of a group in the unit][distance of its ranks in devices],
	 * while all such groups send; GROUP_TIE: [stages] in place of ranks */
	struct link_speed inside[2][GROUP_KINDS][SPAN_DEVICES + 1][SPAN_DEVICES + 1];
};
int place_regular_cluster_of(const struct cluster *c, struct regular_cluster *out, struct err *e);

/* Ranks of each degree on one node. Each number divides its degree; their product is at most the
 * devices of a unit. */
struct rank_box {
	int tp, cp, dp, pp;
};
/* The box of block order, which fills a node with tp first, then cp, dp, pp. */
struct rank_box place_block_box(const struct regular_cluster *y, const struct layout *l);
/* The result of place_group_links_of for a map that gives each node such a box of the ranks' grid,
 * the nodes in the order of the boxes (tp fastest). It takes some hundred operations and allocates
 * nothing. If links inside a node differ, expert dp with cp and ep above 1 counts as neighbours. */
void place_group_links_regular(const struct regular_cluster *y, const struct layout *l,
			       const struct rank_box *f,
			       struct group_links group_links[GROUP_KINDS]);
/* Works as place_group_links_regular, but with any boxes below the switches of each level,
 * below[levels]. Each box divides the next one, and the node's box divides the first. */
void place_group_links_nested(const struct regular_cluster *y, const struct layout *l,
			      const struct rank_box *f, const struct rank_box *below,
			      struct group_links group_links[GROUP_KINDS]);

/* --- Seconds of one operation ------------------------------------------------- */

/* An all-gather and a reduce-scatter, of a tensor of `bytes` bytes in all: as measured, or on a
 * ring. */
double place_seconds_gather(const struct group_links *s, double bytes);
double place_seconds_scatter(const struct group_links *s, double bytes);
/* An all-reduce: both of them on a ring; or a tree, if that is faster because latencies add up over
 * many nodes. */
double place_seconds_all_reduce(const struct group_links *s, double bytes);
/* Each rank sends `bytes` bytes in all, in equal parts to the other ranks. */
double place_seconds_all_to_all(const struct group_links *s, double bytes);
/* The time that the ranks lose if they wait for one another after `work` seconds of equal work; 0
 * if it was not measured. */
double place_seconds_meeting(const struct group_links *s, double work);
/* A message between the slowest neighbours. */
double place_seconds_hop(const struct group_links *s, double bytes);

#endif
