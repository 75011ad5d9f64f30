/*
 * wiring — which ranks are next to each other when the ranks of a generation find each other
 * (libcomm/wire/neighbours.h): those of a node, and the first ranks of the nodes in a binary tree over
 * all nodes. Each rank's welcome has what concerns that rank.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_WIRING_H
#define MUSTER_LAUNCHER_SUPERVISE_WIRING_H

#include "base/err.h"
#include "base/msg.h"
#include "plan/plan.h"

struct wiring {
	int *ranks; /* of all nodes, node by node, each node's ascending */
	int *begin; /* by node of the cluster: where its ranks begin */
	int *number; /* by node: its number among those that have ranks, in the order of their first ranks */
	int *first;  /* by that number: the node's first rank */
	int *leader; /* by rank: the first rank of its node */
	int world;
	int n; /* nodes that have ranks */
};

/* For the ranks of the plan, on a cluster of so many nodes. Replaces what *w held. */
int supervise_wiring_set(struct wiring *w, const struct plan *plan, int nodes, struct err *e);
void supervise_wiring_fini(struct wiring *w);
/* The first rank of the rank's node. A rank that is none of the plan leads itself. */
int supervise_wiring_leader(const struct wiring *w, int rank);
/* Sets leader, here and near of a rank's welcome. The lists are new references. */
int supervise_wiring_tell(const struct wiring *w, const struct plan *plan, int rank,
			  struct msg_welcome *m, struct err *e);

#endif
