/*
 * fold — ways to lay the ranks' grid over the levels of a machine.
 *
 * A box of ranks, so many of each degree, goes to a node; boxes of such boxes go below each leaf
 * switch, and so on. Degrees' divisors are enumerated level by level, boxes as large as fit, and
 * weighed in constant time (place_group_links_nested). For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_FOLD_H
#define MUSTER_PLAN_PLACE_FOLD_H

#include "plan/place/traffic.h"

#include <stdbool.h>

struct fold {
	struct rank_box node, below[SPAN_LEVELS]; /* each divides the next */
	int levels;
	double seconds;
};

/* The `most` best for nodes of so many devices, the best first, added to out[n]; how many there are
 * then. Equal ones: as found, block order's first. fits: [devices + 1] whether there is room for
 * all ranks in boxes of so many. */
int place_fold_best(const struct regular_cluster *y, const struct layout *l,
		    const struct traffic *t, int devices, const bool *fits, int most,
		    struct fold *out, int n);
int place_fold_box(const struct rank_box *f);
/* Where a rank comes when boxes are walked one after the other, a node's ranks first. */
int place_fold_place(const struct layout *l, const struct fold *f, int rank);

#endif
