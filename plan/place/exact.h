/*
 * exact — the best map of few ranks, by branch and bound.
 *
 * Ranks are placed one after the other. Groups whose ranks all have their devices are weighed:
 * whatever follows can only add to what flows on their links, so their seconds bound the map's from
 * below, and so do, for the other groups, those over the best links that there are. Of devices that
 * are alike and both free only the first is tried. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_EXACT_H
#define MUSTER_PLAN_PLACE_EXACT_H

#include "plan/place/place.h"

/* slots: a map, replaced by the best one; of those that cost the same it stays. *cost: its cost,
 * and of the best one. */
int place_exact_best(const struct cluster *c, const struct layout *l, const struct traffic *t,
		     struct weigh *w, struct cluster_slot *slots, struct place_cost *cost,
		     struct err *e);

#endif
