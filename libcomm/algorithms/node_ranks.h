/*
 * crew — the ranks of one host at work on an operation of a hybrid group.
 *
 * They share what the operation needs through the slots of their inner group, a step (step.h) a
 * round, and each of them carries a part of the host's messages. A crew of one passes no steps and
 * reads its own buffers.
 *
 * Who waits knows more or less about who is late: in the first step the late rank's own host sees
 * it; a rank that waits for a message sees only the one that was to send it; in later steps a rank
 * sees only that its neighbours wait. So each of these is a little more patient than the one
 * before, and the error that everybody hears first is the one that names the right rank.
 */
#ifndef MUSTER_LIBCOMM_ALGORITHMS_NODE_RANKS_H
#define MUSTER_LIBCOMM_ALGORITHMS_NODE_RANKS_H

#include "libcomm/group.h"
#include "libcomm/algorithms/hosts.h"

struct node_ranks {
	struct comm *c, *node_group; /* NULL: a crew of one */
	const struct op *op;
	const struct hosts *h;
	int size, me;   /* ranks in it; this one's number */
	size_t element; /* bytes */
	int steps;
};

struct node_ranks comm_node_ranks_begin(struct comm *c, const struct op *op);
/* The crew's next step; the first one also checks that all call the same operation. */
int comm_node_ranks_step(struct node_ranks *w, struct err *e);

/* The largest crew that there are slots for, on any host. */
bool comm_node_ranks_fit(const struct comm *c);

/* Bytes of a slot that a round uses, the same on all hosts. A round waits for every rank of every
 * host, which costs more than its bytes where ranks share cores: few large ones. With many ranks on
 * a host less, for their memory. */
size_t comm_node_ranks_slot_bytes(const struct comm *c);

#endif
