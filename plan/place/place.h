/*
 * place — which device each rank gets.
 *
 * The cost of a map is the seconds that its groups spend on a step's traffic (traffic.h) over the
 * links that they really use, with whatever shares them (weigh.h): over all kinds of group the sum
 * of the slowest one's, less what hides behind computation. Of equal maps the one with the lesser
 * mean over the groups is taken, then the one that breaks fewer leaves up, then the simpler one.
 *
 * Where there are at most PLACE_EXACT devices the map is the best of all (exact.h). Elsewhere it is
 * the best of:
 *   - Slurm's block order: rank r is the r-th device; the same without a tensor-parallel group that
 *     crosses nodes;
 *   - each way to give boxes of the ranks' grid to the levels of the machine: so many of each
 *     degree inside a node, below a leaf switch, and so on (fold.h), the most promising of them
 *     weighed, nodes in their order and with the odd ones last (homes.h); inside a node whose links
 *     differ the ranks of a box are dealt to the devices as fits the links best;
 *   - and what exchanging single ranks makes of the best one, where machines are irregular and
 *     small (refine.h).
 * So no map is worse than Slurm's, but one that is asked for (`fixed`) may be. Nodes that stay
 * unused are the odd ones of their leaf, or a leaf's rest. The same input gives the same map.
 */
#ifndef MUSTER_PLAN_PLACE_PLACE_H
#define MUSTER_PLAN_PLACE_PLACE_H

#include "base/err.h"
#include "plan/place/cost.h"

#include <stdbool.h>

enum { PLACE_EXACT = 8 };

/* What a kind of group runs over. */
struct place_links {
	struct group_links span; /* of the slowest group */
	/* the worst between neighbours on a node; LINK_SELF: there are none */
	enum link_kind inside;
	/* most levels of switches between neighbours (topo_cluster_hops); 0: none leaves its
	 * node or NVLink fabric */
	int hops;
	bool fabric; /* some are on different nodes of one NVLink fabric */
	/* neighbours across nodes are at adapters of the same place; where the cluster has rails */
	bool rails;
	double bytes, seconds; /* of a rank in a step */
	double waited;         /* what shows of the seconds: the cost's share */
};

struct placement {
	struct place_links links[GROUP_KINDS];
	/* of this map; of Slurm's block order; of the worst map that was weighed, cyclic order
	 * among them */
	struct place_cost cost, block, worst;
	bool is_block;         /* it is Slurm's order */
	bool fixed;            /* it was asked for, whatever it costs */
	bool proven;           /* no map costs less */
	int *spares, n_spares; /* nodes without a rank */
	int idle;              /* devices without one on nodes that have some */
	int weighed;           /* maps; without those of a proof */
};

/* slots: of each rank, [layout_world]. fixed: block order, with tensor-parallel groups inside nodes
 * where there is room; for ranks whose devices are named one by one. The cluster has devices
 * enough. ERR_NOMEM. */
int place_ranks(const struct cluster *c, const struct layout *l, const struct traffic *t,
		bool fixed, struct cluster_slot *slots, struct placement *out, struct err *e);
void place_placement_free(struct placement *p);

#endif
