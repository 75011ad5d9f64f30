#include "libcomm/algorithms/node_ranks.h"

#include "libcomm/algorithms/algorithms.h"
#include "libcomm/shm/step.h"

static const double MOST_GRACE_S = 2;

enum { ROOMS_TOGETHER = 16 << 20 };

struct node_ranks comm_node_ranks_begin(struct comm *c, const struct op *op)
{
	double grace = c->world->timeout_s / 16 < MOST_GRACE_S ? c->world->timeout_s / 16
							       : MOST_GRACE_S;
	const struct hosts *h = c->hosts;
	c->wait.grace = (int64_t)(grace * 1e9);
	if (c->node_group)
		c->node_group->seq = c->seq;
	return (struct node_ranks){ .c = c,
				    .node_group = c->node_group,
				    .op = op,
				    .h = h,
				    .size = hosts_size(h, h->here),
				    .me = h->number[c->rank],
				    .element = comm_type_size(op->type) };
}

/* The operation as the node group sees it. Its lists of counts belong to the ranks of the parent
 * group. */
static struct op without_lists(const struct node_ranks *w)
{
	struct op op = *w->op;
	for (int r = 0; op.counts && r < w->c->size; r++)
		op.count += op.counts[r];
	op.counts = op.out_counts = NULL;
	return op;
}

int comm_node_ranks_step(struct node_ranks *w, struct err *e)
{
	struct comm *node_group = w->node_group;
	if (!node_group)
		return 0;
	bool first = w->steps++ == 0;
	struct op op = without_lists(w);
	node_group->wait.deadline = w->c->wait.deadline;
	node_group->wait.accused = -1;
	atomic_store_explicit(&w->c->wait.waits_for, -1, memory_order_relaxed);
	node_group->wait.grace = first ? 0 : 2 * w->c->wait.grace;
	if (first)
		node_group->sign = comm_op_sign(&op, node_group->seq, node_group->size);
	node_group->sign.lists = w->c->sign.lists;
	int rc = first ? comm_step_wait_first(node_group, &op, e) : comm_step_wait(node_group, e);
	w->c->wait.deadline = node_group->wait.deadline;
	w->c->wait.accused = node_group->wait.accused;
	if (rc == 0)
		atomic_store_explicit(&node_group->wait.waits_for, -1, memory_order_relaxed);
	return rc;
}

bool comm_node_ranks_fit(const struct comm *c)
{
	return c->hosts->most <= SLOTS_RANKS;
}

size_t comm_node_ranks_slot_bytes(const struct comm *c)
{
	size_t each = ROOMS_TOGETHER / (size_t)c->hosts->most & ~(size_t)4095;
	return each < SEG_SLOT ? SEG_SLOT : each > SEG_SLOT_MAX ? SEG_SLOT_MAX : each;
}
