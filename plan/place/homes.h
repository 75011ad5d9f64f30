/*
 * homes — the machine's devices in an order, so that a box of ranks is next to the one that it
 * shares most with.
 *
 * Devices come node by node (nodes of an NVLink fabric together), nodes leaf by leaf. A box of
 * ranks takes devices of one node, as many boxes as fit; what is left of a node stays free. For
 * plan/place/.
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

/* Devices of nodes (of fabrics together), each size once, in rising order; how many of `most`. */
int place_homes_sizes(const struct homes *h, int *sizes, int most);

/* Whether so many ranks have room in boxes of `box`. */
bool place_homes_fit(const struct homes *h, int box, int ranks);

enum homes_order {
	HOMES_GIVEN, /* nodes as the cluster lists them */
	/* leaves with most room first, the last one as small as will do; in them large and well
	 * linked nodes first */
	HOMES_ODD_LAST,
	HOMES_ORDERS
};
/* order: [kinds] of each kind's devices, -1 after as many as are listed: those come first; NULL: as
 * they are. In *out `boxes` boxes of `box` devices each. A leaf takes multiples of `together` boxes
 * if there is room enough so. False: there is no room at all. */
bool place_homes_fill(struct homes *h, enum homes_order how, int box, int boxes, int together,
		      int *const *order, struct cluster_slot *out);

#endif
