/*
 * refine — improves a map by exchanging single ranks. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_REFINE_H
#define MUSTER_PLAN_PLACE_REFINE_H

#include "plan/place/cost.h"

/* Exchanges ranks with each other and with free devices as long as that lowers the cost. It weighs
 * at most `budget` maps and returns how many it has weighed; -1: ERR_NOMEM. */
int place_refine_map(const struct cluster *c, const struct layout *l, const struct traffic *t,
		     struct group_costs *w, int budget, struct cluster_slot *slots,
		     struct place_cost *cost, struct err *e);

#endif
