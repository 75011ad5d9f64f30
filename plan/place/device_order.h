/*
 * device_order — puts the machine's devices in an order in which a box of ranks is next to the box
 * that it exchanges most data with.
 *
 * Devices come node by node (the nodes of an NVLink fabric together), nodes leaf by leaf. A box of
 * ranks takes devices of one node. As many boxes as fit go to a node; its remaining devices stay
 * free. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_DEVICE_ORDER_H
#define MUSTER_PLAN_PLACE_DEVICE_ORDER_H

#include "base/err.h"
#include "topo/cluster.h"

#include <stdbool.h>

struct device_order;

/* Borrows the cluster. ERR_NOMEM. */
int place_device_order_open(const struct cluster *c, struct device_order **out, struct err *e);
void place_device_order_close(struct device_order *h);

/* The numbers of devices of the nodes (of a fabric's nodes together), each number once, in rising
 * order. Returns how many there are, at most `most`. */
int place_device_order_node_sizes(const struct device_order *h, int *sizes, int most);

/* Whether there is room for `ranks` ranks in boxes of `box`. */
bool place_device_order_fits(const struct device_order *h, int box, int ranks);

enum node_order {
	NODE_ORDER_GIVEN, /* nodes in the order of the cluster's list */
	/* leaves with the most room first, and the smallest that suffices last; in each leaf the
	 * large and well linked nodes first */
	NODE_ORDER_OUTLIERS_LAST,
	NODE_ORDERS
};
/* Stores in *out `boxes` boxes of `box` devices each. order: [kinds] the devices of each kind that
 * come first, ended by -1; NULL: in their own order. A leaf takes multiples of `together` boxes if
 * that leaves enough room. Returns false if there is not enough room at all. */
bool place_device_order_fill(struct device_order *h, enum node_order how, int box, int boxes,
			     int together, int *const *order, struct cluster_slot *out);

#endif
