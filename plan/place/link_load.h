/*
 * link_load — how much data flows at the same time over the links that devices share.
 *
 * A path from one device to another has a link of its own (NVLink, a switch's port), or it uses
 * links that others use too. Each direction counts separately. The shared links are:
 *   - the adapters on both sides (nics of the parts; without parts every device has its own);
 *   - the links from each switch to its parent, up to the switch where the paths meet. With rails,
 *     adapters of different rails of one leaf meet above it;
 *   - inside a node, if the path goes through the CPU: the uplinks of the PCIe switches on both
 *     sides (devices with a PIX or PXB link share one) and the interconnect of the sockets. Each of
 *     them carries as much as one of the pairs that use it has alone.
 * Unknown figures count as UNKNOWN_BANDWIDTH and UNKNOWN_LATENCY; a link inside a node never counts as
 * slower than the node's network because its figures are unknown. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_LINK_LOAD_H
#define MUSTER_PLAN_PLACE_LINK_LOAD_H

#include "topo/cluster.h"

#include <stdbool.h>

struct link_load;

/* Borrows the cluster. ERR_NOMEM. */
int place_load_open(const struct cluster *c, struct link_load **out, struct err *e);
void place_load_close(struct link_load *l);
/* The bandwidth of a link inside a node of this kind; 0: unknown. */
double place_load_inside(const struct node_kind *k, double bandwidth);
/* Removes all flows. */
void place_load_clear(struct link_load *l);

/* The unit of a node: its NVLink fabric, or the node itself. Units are numbered from 0 to
 * place_load_units - 1. */
int place_load_unit(const struct link_load *l, int node);
int place_load_units(const struct link_load *l);

/* higher levels of switches do not limit anything */
enum { LOAD_LEVELS = 64, LOAD_PATH_MAX = 2 * (1 + LOAD_LEVELS) };
struct link_path {
	bool across; /* between units, over the network */
	/* a wire between these two alone; otherwise a device has one port for all others */
	bool direct;
	double bandwidth, latency; /* of the link alone, without other flows */
	int n, at[LOAD_PATH_MAX];  /* the shared links */
};
void place_load_path(const struct link_load *l, struct cluster_slot from, struct cluster_slot to,
		     struct link_path *out);
/* weight: in the unit that place_load_share counts in. */
void place_load_add(struct link_load *l, const struct link_path *way, double weight);
/* Bandwidth of one unit of weight on this path while all added flows run. */
double place_load_share(const struct link_load *l, const struct link_path *way);

/* These work as the functions above, but for a device's adapter or a switch's uplinks alone. They
 * are for patterns that have too many flows to add each of them. */
void place_load_add_adapter(struct link_load *l, struct cluster_slot at, double weight);
double place_load_share_adapter(const struct link_load *l, struct cluster_slot at);
void place_load_add_uplink(struct link_load *l, int sw, double weight);
/* INFINITY if the switch's uplinks do not limit anything. */
double place_load_share_uplink(const struct link_load *l, int sw);
const struct cluster *place_load_cluster(const struct link_load *l);

#endif
