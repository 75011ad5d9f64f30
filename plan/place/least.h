/*
 * least — the least seconds that a group can take, while not all of its ranks have a device.
 *
 * The group is alone on the links, and has the best of them, so its time on so many units
 * (link_load.h), with so many ranks side by side, is a lower bound. A flow of which both ends are
 * known gives another one. For plan/place/.
 */
#ifndef MUSTER_PLAN_PLACE_LEAST_H
#define MUSTER_PLAN_PLACE_LEAST_H

#include "plan/place/link_load.h"
#include "plan/place/place.h"

/* Devices are named by their index in the list. */
struct least {
	int units, unit[PLACE_EXACT]; /* of each device, counted from 0 */
	/* of a group that is on at least so many units; [1] holds for every map. INFINITY: it
	 * cannot be; 0: groups of this kind have one rank, or no traffic */
	double on[GROUP_KINDS][PLACE_EXACT + 2];
	/* of a group that has a flow from the first device to the second one; 0: nothing is known */
	double flow[GROUP_KINDS][PLACE_EXACT][PLACE_EXACT];
};

/* n: at most PLACE_EXACT devices. Removes all flows of `load`. */
void place_least_of(struct link_load *load, const struct cluster_slot *devices, int n,
		    const struct layout *l, const struct traffic *t, struct least *out);

#endif
