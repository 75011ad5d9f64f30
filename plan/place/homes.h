/*
 * homes — puts the machine's devices in an order in which a box of ranks is next to the box that it
 * exchanges most data with.
 *
 * Devices come node by node (the nodes of an NVLink fabric together), nodes leaf by leaf. A box of
 * ranks takes devices of one node. As many boxes as fit go to a node; its remaining devices stay
 * free. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_HOMES_H
#define MUSTER_PLAN_PLACE_HOMES_H

#include "base/err.h"
#include "topo/cluster.h"

#include <stdbool.h>

struct homes;

/* Borrows the cluster. ERR_NOMEM. */
int place_homes_open(const struct cluster *c, struct homes **out, struct err *e);
void place_homes_close(struct homes *h);

/* The numbers of devices of the nodes (of a fabric's nodes together), each number once, in rising
 * order. Returns how many there are, at most `most`. */
int place_homes_sizes(const struct homes *h, int *sizes, int most);

/* Whether there is room for `ranks` ranks in boxes of `box`. */
bool place_homes_fit(const struct homes *h, int box, int ranks);

enum homes_order {
	HOMES_GIVEN, /* nodes in the order of the cluster's list */
	/* leaves with the most room first, and the smallest that suffices last; in each leaf the
	 * large and well linked nodes first */
	HOMES_OUTLIERS_LAST,
	HOMES_ORDERS
};
/* Stores in *out `boxes` boxes of `box` devices each. order: [kinds] the devices of each kind that
 * come first, ended by -1; NULL: in their own order. A leaf takes multiples of `together` boxes if
 * that leaves enough room. Returns false if there is not enough room at all. */
bool place_homes_fill(struct homes *h, enum homes_order how, int box, int boxes, int together,
		      int *const *order, struct cluster_slot *out);

#endif
