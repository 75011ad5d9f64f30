/*
 * exact — finds the best map of few ranks by branch and bound.
 *
 * Ranks are placed one after the other. Groups whose ranks all have their devices are weighed.
 * Whatever follows can only add to the flows on their links, so their seconds are a lower bound of
 * the map's cost; for the other groups the lower bound assumes the best links of the cluster. Among
 * free devices that are equal only the first is tried. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_EXACT_H
#define MUSTER_PLAN_PLACE_EXACT_H

#include "plan/place/place.h"

/* Replaces the map in slots by the best one; if no map costs less, it stays. *cost: the cost of the
 * given map, then that of the best one. */
int place_exact_best(const struct cluster *c, const struct layout *l, const struct traffic *t,
		     struct group_costs *w, struct cluster_slot *slots, struct place_cost *cost,
		     struct err *e);

#endif
