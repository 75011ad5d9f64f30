#include "libcomm/algo/inner.h"

#include "libcomm/algo/algorithms.h"
#include "libcomm/shm/step.h"

static const double MOST_GRACE_S = 2;

enum { ROOMS_TOGETHER = 16 << 20 };

struct crew comm_crew_begin(struct comm *c, const struct op *op)
{
	double grace = c->world->timeout_s / 16 < MOST_GRACE_S ? c->world->timeout_s / 16
							       : MOST_GRACE_S;
	const struct hosts *h = c->hosts;
	c->grace = (int64_t)(grace * 1e9);
	if (c->inner)
		c->inner->seq = c->seq;
	return (struct crew){ .c = c,
			      .inner = c->inner,
			      .op = op,
			      .h = h,
			      .size = hosts_size(h, h->here),
			      .me = h->number[c->rank],
			      .element = comm_type_size(op->type) };
}

/* The operation as the inner group may see it: its lists are by the ranks of the outer one. */
static struct op without_lists(const struct crew *w)
{
	struct op op = *w->op;
	for (int r = 0; op.counts && r < w->c->size; r++)
		op.count += op.counts[r];
	op.counts = op.out_counts = NULL;
	return op;
}

int comm_crew_step(struct crew *w, struct err *e)
{
	struct comm *inner = w->inner;
	if (!inner)
		return 0;
	bool first = w->steps++ == 0;
	struct op op = without_lists(w);
	inner->deadline = w->c->deadline;
	inner->accused = -1;
	atomic_store_explicit(&w->c->waits_for, -1, memory_order_relaxed);
	inner->grace = first ? 0 : 2 * w->c->grace;
	if (first)
		inner->sign = comm_op_sign(&op, inner->seq, inner->size);
	inner->sign.lists = w->c->sign.lists;
	int rc = first ? comm_step_first(inner, &op, e) : comm_step_pass(inner, e);
	w->c->deadline = inner->deadline;
	w->c->accused = inner->accused;
	if (rc == 0)
		atomic_store_explicit(&inner->waits_for, -1, memory_order_relaxed);
	return rc;
}

bool comm_crew_fits(const struct comm *c)
{
	return c->hosts->most <= SLOTS_RANKS;
}

size_t comm_crew_room(const struct comm *c)
{
	size_t each = ROOMS_TOGETHER / (size_t)c->hosts->most & ~(size_t)4095;
	return each < SEG_SLOT ? SEG_SLOT : each > SEG_ROOM ? SEG_ROOM : each;
}
