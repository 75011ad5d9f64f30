/*
 * pairing — which rank keeps the copy of whose shard.
 *
 * A copy is on another node than its original, so that the loss of one node loses no shard, and
 * below another switch wherever the nodes allow it. The nodes are sorted by their switch, and the
 * shards of node i go to the node half the list further on: two nodes that keep each other's copies
 * if their number is even, so that only the loss of both nodes of a pair loses a shard. No other
 * choice has fewer pairs below one switch, as long as each node keeps one other's copies.
 *
 * If all ranks are on one node, each process counts as a node of its own: the copies survive the death of
 * a process, though not that of the node.
 *
 * The shard of a rank that has a replica on another node, which keeps the same bytes, needs no copy.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_PAIRING_H
#define MUSTER_AGENT_ENGINE_CKPT_PAIRING_H

#include "base/err.h"

/* Where a rank runs. Numbers are arbitrary; equal ones mean the same. */
struct pairing_place {
	int node;
	int leaf;    /* the switch that the node is attached to; equal for all if unknown */
	int replica; /* ranks with equal numbers keep the same bytes */
};

/* keeper[rank] */
enum {
	PAIRING_REPLICA = -1, /* a replica on another node keeps the same bytes */
	PAIRING_ALONE = -2,   /* there is only one rank: a copy would be lost with its original */
};

/* Sets keeper[rank] to the rank that keeps the copy of the rank's shard, or to one of the above. All
 * ranks get the same from the same places. */
int ckpt_pairing(const struct pairing_place *places, int ranks, int *keeper, struct err *e);

#endif
