/*
 * messages — the order in which a rank of the pipeline starts its sends and receives.
 *
 * A device's library runs a message as a kernel that waits for its peer. If a device can hold only
 * so many of these kernels, or a communicator runs them one after the other, two ranks that start
 * the same messages in two orders wait for each other forever: in 1f1b, one rank sends
 * activations and then receives gradients, while the next one sends gradients and then receives
 * activations. Collectives between the ranks of one stage (tp, cp, dp) have the same kernels, and
 * add to the orders.
 *
 * So all ranks start the messages in one common order: that in which they happen in a run of the
 * table where a forward pass takes 1, each half of a backward pass 1, and a message no time. A
 * message happens as soon as its sender has computed it and its receiver has a buffer for it.
 * Each rank derives the order from the table alone.
 *
 * This excludes a deadlock, even if a device runs one kernel at a time in the order of the starts:
 *   1. The ranks of a stage run the same row, and start each message at the same place among the
 *      collectives of their stage. So they all have one sequence of messages and collectives.
 *      Replicas with unequal numbers of micro-batches (plan/spec/batch.h, ZeRO 0 and 1) have rows of
 *      their own, and meet only in the sums of each chunk's complete gradients. For these, random
 *      runs in tests/gpu/test_nccl_order.c stand for a proof.
 *   2. The sequences of all stages have the messages in the common order. A collective is in the
 *      sequence of one stage alone (the one that joins stages, for tied tables, is in REDUCE,
 *      after all messages of its ranks). So all sequences fit into one total order of all messages
 *      and collectives.
 *   3. Consider the first of that order that is not complete. All that its ranks started before it
 *      is complete, so nothing on their devices keeps its kernels out. It has been started, or
 *      will be: a rank starts a message after steps that need only messages that happened earlier,
 *      because the order is that of a run. So it completes.
 */
#ifndef MUSTER_PLAN_SPEC_SCHEDULE_MESSAGES_H
#define MUSTER_PLAN_SPEC_SCHEDULE_MESSAGES_H

#include "plan/spec/schedule/schedule.h"

struct sched_message {
	int step;   /* of the rank's row: a SEND or a RECV */
	int before; /* it is started just before this step: for a send `step` or a later one, for a
		     * receive `step` or an earlier one */
};

struct sched_messages {
	struct sched_message *list; /* `before` never decreases */
	int n;
};

/* The messages of a rank, in the common order. A receive comes one pass before the message, so
 * that the transfer overlaps computation. slots: the table whose slots the ranks have; an
 * evaluation uses those of training. Micro-batch m of a chunk is in slot m modulo their number. A
 * forward pass needs the send of the slot's earlier output to have happened, and what writes a
 * slot's gradient needs the send of the earlier one. The table must pass schedule_check(). */
int schedule_order_messages(const struct schedule *s, const struct schedule *slots, int rank,
			    struct sched_messages *out, struct err *e);
void schedule_messages_free(struct sched_messages *m);

#endif
