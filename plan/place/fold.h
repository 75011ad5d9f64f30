/*
 * fold — ways to lay the ranks' grid over the levels of a machine.
 *
 * A box of ranks (a number of each degree) goes to a node, a box of such boxes goes below each leaf
 * switch, and so on. The divisors of the degrees are enumerated level by level, with boxes as large
 * as fit, and weighed in constant time (place_group_links_nested). For plan/place/.
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

/* Adds to out[n] the best folds for nodes with `devices` devices, the best first, until there are
 * at most `most`; returns how many there are then. Equal folds stay in the order in which they are
 * found, block order first. fits: [devices + 1] whether all ranks have room in boxes of that
 * size. */
int place_fold_best(const struct regular_cluster *y, const struct layout *l,
		    const struct traffic *t, int devices, const bool *fits, int most,
		    struct fold *out, int n);
/* The number of ranks in a box. */
int place_box_ranks(const struct rank_box *f);
/* The position of a rank if boxes are listed one after the other, a node's ranks first. */
int place_fold_position(const struct layout *l, const struct fold *f, int rank);

#endif
