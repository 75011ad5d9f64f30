/*
 * place — maps ranks to devices.
 *
 * The cost of a map is the seconds that its groups spend on a step's traffic (traffic.h) over the
 * links that they use, including what shares those links (group_costs.h). For each kind of group
 * the slowest group counts; the kinds are added up, less what hides behind computation. Among maps
 * of equal cost muster takes the one with the smaller mean over the groups, then the one that
 * splits fewer leaves, then the simpler one.
 *
 * With at most PLACE_EXACT devices the map is the best of all maps (exact.h). Otherwise it is the
 * best of:
 *   - Slurm's block order: rank r is the r-th device; also block order in which no tensor-parallel
 *     group crosses nodes;
 *   - each way to give boxes of the ranks' grid to the levels of the machine (fold.h): a number of
 *     each degree inside a node, below a leaf switch, and so on. The most promising ways are
 *     weighed, with the nodes in their order and with the outliers last (device_order.h). If the
 *     links inside a node differ, the ranks of a box go to the devices that suit their links best;
 *   - the best of these after exchanges of single ranks, if the machine is irregular and small
 *     (refine.h).
 * So no map is worse than Slurm's; only a map that the caller asks for (`fixed`) may be. Nodes that
 * stay unused are the outliers of their leaf, or the rest of a leaf. The same input always gives
 * the same map.
 */
#ifndef MUSTER_PLAN_PLACE_PLACE_H
#define MUSTER_PLAN_PLACE_PLACE_H

#include "base/err.h"
#include "plan/place/cost.h"

#include <stdbool.h>
#include <stdint.h>

enum { PLACE_EXACT = 8 };

/* The links that a kind of group runs over. */
struct place_links {
	struct group_links span; /* links of the slowest group */
	/* the worst link between neighbours on a node; LINK_SELF: no neighbours are on one node */
	enum link_kind inside;
	/* the most levels of switches between neighbours (topo_cluster_hops); 0: no group leaves
	 * its node or NVLink fabric */
	int hops;
	bool fabric; /* some neighbours are on different nodes of one NVLink fabric */
	/* neighbours on different nodes use adapters of the same rail */
	bool rails;
	double bytes, seconds; /* of one rank in one step */
	double waited;         /* the part of the seconds that is not hidden */
};

struct placement {
	struct place_links links[GROUP_KINDS];
	/* of this map, of Slurm's block order, and of the worst map that was weighed (cyclic order
	 * is always weighed) */
	struct place_cost cost, block, worst;
	bool is_block;         /* the map is Slurm's block order */
	bool fixed;            /* the caller asked for this map */
	bool proven;           /* no map costs less */
	int *spares, n_spares; /* nodes without a rank */
	int idle;              /* devices without a rank on nodes that have ranks */
	int tried;             /* number of maps, without those of a proof */
	int64_t bounds;        /* lower bounds of parts of maps, in a proof */
};

/* Finds the map. slots receives the device of each rank, [layout_world]. fixed: use block order,
 * with tensor-parallel groups inside nodes where there is room; for jobs that name the device of
 * each rank. The cluster must have enough devices. ERR_NOMEM. */
int place_ranks(const struct cluster *c, const struct layout *l, const struct traffic *t,
		bool fixed, struct cluster_slot *slots, struct placement *out, struct err *e);
/* That block order. */
void place_in_order(const struct cluster *c, const struct layout *l, struct cluster_slot *slots);
void place_placement_free(struct placement *p);

#endif
