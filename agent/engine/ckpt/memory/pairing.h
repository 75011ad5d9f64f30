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
 * Replicas need no rule of their own: they divide what they have in common, so that each element is in
 * one rank's shard only (ckpt.h).
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_MEMORY_PAIRING_H
#define MUSTER_AGENT_ENGINE_CKPT_MEMORY_PAIRING_H

#include "base/err.h"

/* Where a rank runs. Numbers are arbitrary; equal ones mean the same. */
struct pairing_place {
	int node;
	int leaf; /* the switch that the node is attached to; equal for all if unknown */
};

/* keeper[rank]: nobody keeps a copy. There is only one rank, and a copy would be lost with its original. */
enum { PAIRING_ALONE = -1 };

/* Sets keeper[rank] to the rank that keeps the copy of the rank's shard, or to PAIRING_ALONE. All ranks
 * get the same from the same places. */
int ckpt_pairing(const struct pairing_place *places, int ranks, int *keeper, struct err *e);

#endif
