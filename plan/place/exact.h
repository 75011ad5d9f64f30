/*
 * exact — finds the best map of few ranks by branch and bound.
 *
 * Ranks are placed one after the other. A branch ends where no map that begins with the ranks
 * placed so far can cost less than the best one found: groups whose ranks all have their devices
 * are weighed, and whatever follows can only add to the flows on their links; for the other groups
 * least.h gives the bound. Of the maps that a symmetry of devices or ranks (symmetry.h) makes equal
 * only the first is tried. So the result is the map that a search through all maps in the same
 * order finds. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_EXACT_H
#define MUSTER_PLAN_PLACE_EXACT_H

#include "plan/place/place.h"

/* Replaces the map in slots by the best one; if no map costs less, it stays. *cost: the cost of the
 * given map, then that of the best one. *bounds: how many lower bounds it took. */
int place_exact_best(const struct cluster *c, const struct layout *l, const struct traffic *t,
		     struct group_costs *w, struct cluster_slot *slots, struct place_cost *cost,
		     int64_t *bounds, struct err *e);

#endif
