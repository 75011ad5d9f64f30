/*
 * cost — what a map of ranks costs: the seconds that its groups spend on a step's traffic
 * (traffic.h) over the links that they really use (weigh.h), less what hides behind computation.
 */
#ifndef MUSTER_PLAN_PLACE_COST_H
#define MUSTER_PLAN_PLACE_COST_H

#include "plan/place/weigh.h"

#include <stdbool.h>

struct place_cost {
	/* seconds of a step's traffic that show: over all kinds, the slowest group's */
	double total;
	double mean;                 /* the mean group's */
	double seconds[GROUP_KINDS]; /* all of them, the slowest group's */
};

/* slots: of each rank, [layout_world]. */
void place_weigh(struct weigh *w, const struct cluster_slot *slots, const struct traffic *t,
		 struct place_cost *out);
/* The same of one map alone. ERR_NOMEM. */
int place_cost_of(const struct cluster *c, const struct layout *l, const struct cluster_slot *slots,
		  const struct traffic *t, struct place_cost *out, struct err *e);
/* Whether a is less than b: the total, of equal ones the mean. */
bool place_better(const struct place_cost *a, const struct place_cost *b);

#endif
