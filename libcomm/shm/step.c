#include "libcomm/shm/step.h"

#include "libcomm/shm/peer_memory.h"
#include "libcomm/shm/spin_wait.h"

enum { FEW_BYTES = 2 << 10 }; /* this many bytes or fewer are always copied */

static bool has_arrived(const struct comm *c, int r)
{
	return atomic_load(&segment_cell(&c->segment, c->step, r)->step) == c->step;
}

/* The first rank from r on that has not arrived; size: all have. */
static int next_absent(const struct comm *c, int r)
{
	while (r < c->size && has_arrived(c, r))
		r++;
	return r;
}

static void mark_absent(struct comm *c)
{
	for (int r = 0; r < c->size; r++)
		c->wait.absent[r] = !has_arrived(c, r);
}

static int sleep_until_all(struct comm *c, struct err *e)
{
	struct seg_head *h = c->segment.head;
	int rc = 0;
	bool slept_out = false;
	atomic_fetch_add(&h->sleepers, 1);
	for (;;) {
		/* A rank that arrives last after this read sees a sleeper and changes the word. */
		uint32_t wakes = atomic_load(&h->wakes);
		if (next_absent(c, 0) == c->size)
			break;
		mark_absent(c);
		rc = comm_group_check_wait(c, slept_out, e);
		if (rc < 0)
			break;
		if (c->wait.suspect)
			continue;
		futex_wait(&h->wakes, wakes, comm_group_sleep_ns(c));
		slept_out = atomic_load(&h->wakes) == wakes;
	}
	c->wait.suspect = false;
	atomic_fetch_sub(&h->sleepers, 1);
	return rc;
}

int comm_step_wait(struct comm *c, struct err *e)
{
	c->step++;
	atomic_store(&segment_cell(&c->segment, c->step, c->rank)->step, c->step);
	int r = next_absent(c, 0);
	if (r == c->size && atomic_load(&c->segment.head->sleepers))
		comm_segment_wake(&c->segment);
	for (struct spin_wait w = { 0 }; r < c->size; r = next_absent(c, r))
		if (!spin_wait_again(&w, c->world))
			return sleep_until_all(c, e);
	/* The other ranks last read this cell two steps ago. */
	__builtin_prefetch(step_own_cell(c), 1);
	return 0;
}

static bool same_signature(const struct op_signature *a, const struct op_signature *b)
{
	return a->seq == b->seq && a->kind == b->kind && a->type == b->type &&
	       a->redop == b->redop && a->root == b->root && a->bytes == b->bytes;
}

int comm_step_wait_first(struct comm *c, const struct op *op, struct err *e)
{
	bool large = c->sign.bytes > FEW_BYTES, open = true;
	uint32_t mine = large && comm_peer_memory_all_shared(c, op);
	step_own_cell(c)->sign = c->sign;
	step_own_cell(c)->open = mine;
	if (comm_step_wait(c, e))
		return -1;
	for (int r = 0; r < c->size; r++) {
		const struct op_signature *theirs = &step_cell(c, r)->sign;
		open &= step_cell(c, r)->open;
		char here[120], there[120], who[160];
		if (same_signature(&c->sign, theirs) && c->sign.lists == theirs->lists)
			continue;
		if (same_signature(&c->sign, theirs))
			return err_set(
				e, ERR_PROTO,
				"%s has other counts for the ranks than this one; the list must be "
				"the same on all",
				comm_group_rank_text(c, r, who));
		comm_op_signature_text(&c->sign, here);
		comm_op_signature_text(theirs, there);
		return err_set(e, ERR_PROTO,
			       "%s calls another operation: %s, here %s; all ranks of a group "
			       "must call the same ones in the same order",
			       comm_group_rank_text(c, r, who), there, here);
	}
	if (large)
		c->in_shared_buffers = open ? c->in_shared_buffers | 1u << op->kind
					    : c->in_shared_buffers & ~(1u << op->kind);
	return 0;
}
