/*
 * relay_nodes — the nodes of a relay (relay.h): their ranks, and what these have put before a fence.
 *
 * It does no I/O. The nodes with ranks are numbered from 0, in the order of the cluster.
 */
#ifndef MUSTER_LAUNCHER_SLURM_RELAY_NODES_H
#define MUSTER_LAUNCHER_SLURM_RELAY_NODES_H

#include "base/parts.h"
#include "launcher/launch.h"

#include <stdbool.h>

struct connection;

struct relay_node {
	char name[TOPO_NAME];
	struct connection *connection; /* NULL: none, or no more */
	bool met;                      /* its helper has connected */
	int left;                      /* ranks that have not ended */
	struct parts put;              /* what its ranks put before the next fence */
	bool complete;                 /* all parts of that have come */
	int sent;                      /* parts of the present fence that were sent to it */
};

struct relay_nodes {
	struct relay_node *list;
	int n, world;
	int *node_of; /* world */
	int *threads; /* world */
	bool *ended;  /* world */
	int complete; /* nodes that are complete */
};

int slurm_relay_nodes_open(struct relay_nodes *all, const struct launch_request *r, struct err *e);
void slurm_relay_nodes_close(struct relay_nodes *all);
/* -1: it is not one of them. */
int slurm_relay_nodes_find(const struct relay_nodes *all, const char *name);
/* The number of each rank's node, a new list; NULL: no memory. */
json_t *slurm_relay_nodes_map(const struct relay_nodes *all);
/* The message helper_start for a node, a new object that shares its members with `start`; NULL: no
 * memory. */
json_t *slurm_relay_nodes_start(const struct relay_nodes *all, int node, json_t *start);
/* Takes a part of what the node's ranks have put. 1: all nodes are complete now. */
int slurm_relay_nodes_put(struct relay_nodes *all, struct relay_node *n,
			  const struct msg_helper_part *m, struct err *e);
/* Moves what all nodes have put to `out`, and expects the next fence. ERR_UNSUPPORTED: it is too
 * long. */
int slurm_relay_nodes_collect(struct relay_nodes *all, struct buf *out, struct err *e);

#endif
