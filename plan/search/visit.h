/*
 * walk — every configuration of a space, one after the other, with what it takes (eval.h).
 *
 * The order is the space's own, so that the same job on the same cluster is walked alike each time.
 * With `best_first`, grids (degrees) come by the least time that any configuration of them can
 * take, and the walk ends at the first that is not worth it.
 */
#ifndef MUSTER_PLAN_SEARCH_VISIT_H
#define MUSTER_PLAN_SEARCH_VISIT_H

#include "plan/search/eval.h"

struct space_visitor {
	void *arg;
	/* Whether configurations that take `seconds` at the least are worth a look; NULL: all
	 * are. */
	bool (*worth)(void *arg, double seconds);
	void (*leaf)(void *arg, const struct eval_leaf *leaf);
	bool best_first;
};

int search_visit_space(const struct space *s, struct eval *v, const struct space_visitor *visitor,
		       struct err *e);

#endif
