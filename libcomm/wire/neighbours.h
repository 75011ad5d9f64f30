/*
 * neighbours — whose cards a rank fetches when the world is wired up.
 *
 * All ranks of a host but its first one need the card of that one alone. The first one needs those of
 * all ranks of the host, and those of the hosts next to it in a binary tree over all hosts: host i has
 * the parent (i - 1) / 2, where hosts are counted in the order of their first ranks. So a rank of a
 * host of k ranks fetches at most k + COMM_NEAR cards, whatever the size of the world.
 */
#ifndef MUSTER_LIBCOMM_WIRE_NEIGHBOURS_H
#define MUSTER_LIBCOMM_WIRE_NEIGHBOURS_H

#include "libcomm/world.h"

struct neighbours {
	int leader; /* the first rank of this host */
	/* of the leader only */
	int *here, n_here; /* all ranks of the host, ascending */
	int near[COMM_NEAR], n_near;
	bool has_parent; /* it is near[0] */
};

/* From the bootstrap's place; without one, from the cards of all ranks. */
int comm_neighbours_find(const struct comm_bootstrap *boot, const struct world *w,
			 struct neighbours *out, struct err *e);
void comm_neighbours_fini(struct neighbours *n);

#endif
