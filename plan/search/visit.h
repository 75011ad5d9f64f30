/*
 * visit — calls a visitor with every configuration of a space, one after the other, and its cost
 * (eval.h).
 *
 * The order is the order of the space, so the same job on the same cluster is always visited in the
 * same order. With `best_first`, grids (degrees) come in the order of the least time that any of
 * their configurations can take, and the visit ends at the first grid that is not worth it.
 */
#ifndef MUSTER_PLAN_SEARCH_VISIT_H
#define MUSTER_PLAN_SEARCH_VISIT_H

#include "plan/search/eval.h"

struct space_visitor {
	void *arg;
	/* Whether configurations that take at least `seconds` are worth evaluating; NULL: all
	 * are. */
	bool (*worth)(void *arg, double seconds);
	void (*leaf)(void *arg, const struct eval_leaf *leaf);
	bool best_first;
};

int search_visit_space(const struct space *s, struct eval *v, const struct space_visitor *visitor,
		       struct err *e);

#endif
