/*
 * cost — what a map of ranks costs: the seconds that its groups spend on a step's traffic
 * (traffic.h) over the links that they use (group_costs.h), less what computation hides.
 */
#ifndef MUSTER_PLAN_PLACE_COST_H
#define MUSTER_PLAN_PLACE_COST_H

#include "plan/place/group_costs.h"

#include <stdbool.h>

struct place_cost {
	/* seconds of a step's traffic that are not hidden: the slowest group of each kind, added
	 * up */
	double total;
	double mean;                 /* like total, but with the mean over the groups */
	double seconds[GROUP_KINDS]; /* of the slowest group, hidden or not */
};

/* Computes the cost of a map. slots: the device of each rank, [layout_world]. */
void place_map_cost(struct group_costs *w, const struct cluster_slot *slots,
		    const struct traffic *t, struct place_cost *out);
/* Computes the cost of a single map without an open struct group_costs. ERR_NOMEM. */
int place_cost_of(const struct cluster *c, const struct layout *l, const struct cluster_slot *slots,
		  const struct traffic *t, struct place_cost *out, struct err *e);
/* Whether a costs less than b: by the total, and if those are equal by the mean. */
bool place_better(const struct place_cost *a, const struct place_cost *b);

#endif
