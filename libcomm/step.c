#include "libcomm/step.h"

#include "libcomm/futex.h"

static bool passed(const struct comm *c)
{
	return atomic_load_explicit(&c->segment.head->passed, memory_order_acquire) == c->step;
}

/* The last one to come opens the step for all. */
static void open_step(struct comm *c)
{
	struct seg_head *h = c->segment.head;
	atomic_store(&h->passed, c->step);
	if (atomic_load(&h->sleepers))
		futex_wake_all(&h->passed);
}

/* How many have not come, as far as one can see. */
static int mark_absent(struct comm *c)
{
	int absent = 0;
	for (int r = 0; r < c->size; r++) {
		c->absent[r] = atomic_load_explicit(&c->segment.line[r].step, memory_order_acquire) != c->step;
		absent += c->absent[r];
	}
	return absent;
}

static int sleep_until_passed(struct comm *c, struct err *e)
{
	struct seg_head *h = c->segment.head;
	int rc = 0;
	bool slept_out = false;
	uint32_t before = c->step - 1;
	atomic_fetch_add(&h->sleepers, 1);
	while (!passed(c)) {
		/* The last one may have died between coming and opening. Opening twice does no
		 * harm: nobody passes the next step without whoever is late with this one. */
		if (mark_absent(c) == 0) {
			open_step(c);
			break;
		}
		rc = group_patience(c, slept_out, e);
		if (rc < 0)
			break;
		if (c->suspect)
			continue;
		futex_wait(&h->passed, before, group_nap(c));
		slept_out = !passed(c);
	}
	c->suspect = false;
	atomic_fetch_sub(&h->sleepers, 1);
	return rc;
}

int step_pass(struct comm *c, struct err *e)
{
	struct seg_head *h = c->segment.head;
	struct seg_line *me = &c->segment.line[c->rank];
	c->step++;
	atomic_store_explicit(&me->step, c->step, memory_order_release);
	if (atomic_fetch_add(&h->arrived, 1) + 1 == c->step * (uint32_t)c->size) {
		open_step(c);
		return 0;
	}
	for (int i = 0; i < c->world->spins; i++) {
		if (passed(c))
			return 0;
		cpu_relax();
	}
	return sleep_until_passed(c, e);
}

static bool same_signature(const struct op_signature *a, const struct op_signature *b)
{
	return a->seq == b->seq && a->kind == b->kind && a->type == b->type && a->redop == b->redop &&
	       a->root == b->root && a->bytes == b->bytes;
}

int step_first(struct comm *c, const struct op *op, struct err *e)
{
	unsigned parity = (c->step + 1) & 1;
	struct op_signature mine = op_sign(op, c->seq, c->size);
	c->segment.line[c->rank].sign[parity] = mine;
	if (step_pass(c, e) < 0)
		return -1;
	for (int r = 0; r < c->size; r++) {
		const struct op_signature *theirs = &c->segment.line[r].sign[parity];
		if (same_signature(&mine, theirs))
			continue;
		char here[120], there[120], who[160];
		op_signature_text(&mine, here);
		op_signature_text(theirs, there);
		return err_set(e, ERR_PROTO, "%s calls another operation: %s, here %s; all ranks of a group "
			       "must call the same ones in the same order", group_rank_text(c, r, who), there, here);
	}
	return 0;
}
