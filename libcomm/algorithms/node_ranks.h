/*
 * node_ranks — the ranks of one host that work together on an operation of a group over several
 * hosts.
 *
 * They share data through the slots of their node group, one step (step.h) per round, and each of
 * them sends and receives a part of the host's messages. A rank that is alone on its host passes no
 * steps and reads its own buffers.
 *
 * Ranks that wait know different amounts about who is late. In the first step, the late rank's own
 * host sees it. A rank that waits for a message sees only its sender. In later steps a rank sees
 * only that its neighbours wait. So each of these waits a little longer than the one before, and
 * the first error that all ranks get is the one that names the right rank.
 */
#ifndef MUSTER_LIBCOMM_ALGORITHMS_NODE_RANKS_H
#define MUSTER_LIBCOMM_ALGORITHMS_NODE_RANKS_H

#include "libcomm/group.h"
#include "libcomm/algorithms/hosts.h"

struct node_ranks {
	struct comm *c, *node_group; /* node_group NULL: this rank is alone */
	const struct op *op;
	const struct hosts *h;
	int size, me;   /* number of ranks; this rank's index */
	size_t element; /* bytes */
	int steps;
};

struct node_ranks comm_node_ranks_begin(struct comm *c, const struct op *op);
/* Passes the next step; the first one also checks that all ranks call the same operation. */
int comm_node_ranks_step(struct node_ranks *w, struct err *e);

/* Whether there are slots enough for the ranks of the largest host. */
bool comm_node_ranks_fit(const struct comm *c);

/* Bytes of a slot that one round uses, equal on all hosts. A round waits for every rank of every
 * host, which costs more than its bytes if ranks share cores: few large rounds are best. With many
 * ranks on a host it is less, because of their memory. */
size_t comm_node_ranks_slot_bytes(const struct comm *c);

#endif
