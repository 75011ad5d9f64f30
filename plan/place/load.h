/*
 * load — how much flows at once over the links that devices share.
 *
 * A way from one device to another has a link of its own (NVLink, a switch's port), or it takes
 * links that others take too, each direction by itself:
 *   - the adapters on both sides (nics of the parts; without parts every device has its own);
 *   - each switch's links to its parent, up to where the ways meet. With rails, adapters of
 *     different places of one leaf meet above it;
 *   - inside a node, where it goes through the CPU: the uplinks of both sides' PCIe switches
 *     (devices that see each other as PIX or PXB hang on one), and the sockets' interconnect. Each
 *     of them carries what one of the pairs that use it has for itself.
 * What is not known is taken as UNKNOWN_BANDWIDTH and UNKNOWN_LATENCY. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_LOAD_H
#define MUSTER_PLAN_PLACE_LOAD_H

#include "topo/cluster.h"

#include <stdbool.h>

struct load;

/* Borrows the cluster. ERR_NOMEM. */
int place_load_open(const struct cluster *c, struct load **out, struct err *e);
void place_load_close(struct load *l);
/* Nothing flows any more. */
void place_load_clear(struct load *l);

/* What counts as one node: an NVLink fabric, else the node itself. Units are numbered below
 * place_load_units. */
int place_load_unit(const struct load *l, int node);
int place_load_units(const struct load *l);

/* levels of switches above these are no bound */
enum { LOAD_LEVELS = 64, LOAD_WAY_MOST = 2 * (1 + LOAD_LEVELS) };
struct load_way {
	bool across; /* between units, over the network */
	/* a wire between these two alone; else one port is all that a device has for all others */
	bool direct;
	double bandwidth, latency; /* of the link alone, with nobody else on it */
	int n, at[LOAD_WAY_MOST];  /* the shared links */
};
void place_load_way(const struct load *l, struct cluster_slot from, struct cluster_slot to,
		    struct load_way *out);
/* weight: of the unit that shares are counted in. */
void place_load_add(struct load *l, const struct load_way *way, double weight);
/* Bandwidth of one unit of weight on this way, while all that was added flows. */
double place_load_share(const struct load *l, const struct load_way *way);

/* The shared links of a device's own way out, `bytes`' worth a unit: its adapter; and of what
 * leaves a switch upwards. For patterns whose flows are too many to name. */
void place_load_add_adapter(struct load *l, struct cluster_slot at, double weight);
double place_load_share_adapter(const struct load *l, struct cluster_slot at);
void place_load_add_uplink(struct load *l, int sw, double weight);
/* INFINITY where the switch's uplinks are no bound. */
double place_load_share_uplink(const struct load *l, int sw);
const struct cluster *place_load_cluster(const struct load *l);

#endif
