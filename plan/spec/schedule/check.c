/* Checks that a table can be executed: first each row alone, then how the rows meet. */
#include "plan/spec/schedule/simulate.h"

#include <stdlib.h>
#include <string.h>

#define BIT(op) (1u << (op))
enum {
	ANY_BACKWARD = BIT(SCHED_BACKWARD) | BIT(SCHED_BACKWARD_INPUT),
	BOTH_HALVES = BIT(SCHED_BACKWARD_INPUT) | BIT(SCHED_BACKWARD_WEIGHT),
};

/* Rules of an op: which ops must be done before it on this chunk (if the chunk has such steps),
 * which ops it excludes, and to which successions it belongs. Forward passes, backward passes and
 * the sums of weights' gradients each take the micro-batches in order. */
enum succession { FORWARDS, BACKWARDS, SUMS, SUCCESSIONS };
/* clang-format off */
static const struct rule {
	unsigned all, one_of, none, successions;
} rules[SCHED_OPS] = {
	[SCHED_RECV_ACT] = { 0, 0, 0, 0 },
	[SCHED_FORWARD] = { BIT(SCHED_RECV_ACT), 0, 0, BIT(FORWARDS) },
	[SCHED_SEND_ACT] = { BIT(SCHED_FORWARD), 0, 0, 0 },
	[SCHED_RECV_GRAD] = { BIT(SCHED_FORWARD), 0, 0, 0 },
	[SCHED_BACKWARD] = { BIT(SCHED_FORWARD) | BIT(SCHED_RECV_GRAD), 0, BOTH_HALVES, BIT(BACKWARDS) | BIT(SUMS) },
	[SCHED_BACKWARD_INPUT] = { BIT(SCHED_FORWARD) | BIT(SCHED_RECV_GRAD), 0, BIT(SCHED_BACKWARD), BIT(BACKWARDS) },
	[SCHED_BACKWARD_WEIGHT] = { BIT(SCHED_BACKWARD_INPUT), 0, BIT(SCHED_BACKWARD), BIT(SUMS) },
	[SCHED_SEND_GRAD] = { 0, ANY_BACKWARD, 0, 0 },
};
/* clang-format on */

/* The row that is being checked. */
struct exam {
	const struct schedule *s;
	int rank, at;
	unsigned *done; /* [chunks][micros] one bit for each op */
	int next[LAYOUT_CHUNKS_MAX][SUCCESSIONS];
	int live[LAYOUT_CHUNKS_MAX], all;
	struct sched_slots slots;
};

static int refuse(const struct exam *x, struct err *e, const char *cause)
{
	const struct sched_step *step = &x->s->rows[x->rank].steps[x->at];
	return err_set(e, ERR_INTERNAL,
		       "schedule: rank %d, step %d (%s of chunk %d, micro-batch %d): %s; the "
		       "table's generator must be mended",
		       x->rank, x->at, schedule_op_word(step->op), step->chunk, step->micro, cause);
}

static unsigned *done_of(const struct exam *x, int chunk, int micro)
{
	return &x->done[chunk * x->s->micros + micro];
}

/* The chunk of this rank that holds the stage next to that of `chunk` in a direction. -1: another
 * rank holds it. -2: there is no such stage. */
static int neighbour(const struct exam *x, int chunk, int direction)
{
	int stage = layout_stage(&x->s->layout, x->rank, chunk) + direction, rank, there;
	if (stage < 0 || stage >= layout_n_stages(&x->s->layout))
		return -2;
	layout_holder(&x->s->layout, stage, &rank, &there);
	return rank == x->rank ? there : -1;
}

/* The steps that each micro-batch of a chunk has, besides those of the backward pass itself. */
static unsigned steps_of(const struct exam *x, int chunk)
{
	unsigned ops = BIT(SCHED_FORWARD);
	bool back = !x->s->forwards_only;
	if (neighbour(x, chunk, -1) == -1)
		ops |= BIT(SCHED_RECV_ACT) | (back ? BIT(SCHED_SEND_GRAD) : 0);
	if (neighbour(x, chunk, 1) == -1)
		ops |= BIT(SCHED_SEND_ACT) | (back ? BIT(SCHED_RECV_GRAD) : 0);
	return ops;
}

static int check_place(const struct exam *x, const struct sched_step *step, struct err *e)
{
	if ((unsigned)step->op >= SCHED_REDUCE)
		return refuse(x, e, "there is no such step");
	if (step->chunk < 0 || step->chunk >= x->s->layout.chunks)
		return refuse(x, e, "there is no such chunk");
	if (step->micro < 0 || step->micro >= x->s->micros)
		return refuse(x, e, "there is no such micro-batch");
	unsigned backwards = x->s->forwards_only ? 0 : ANY_BACKWARD | BIT(SCHED_BACKWARD_WEIGHT);
	if (!((steps_of(x, step->chunk) | backwards) & BIT(step->op)))
		return refuse(x, e, "this stage has no such step");
	return 0;
}

/* Checks that a neighbouring chunk on the same rank was executed before, because no message
 * enforces that. */
static int check_handed_over(const struct exam *x, const struct sched_step *step, struct err *e)
{
	int before = neighbour(x, step->chunk, -1), after = neighbour(x, step->chunk, 1);
	if (step->op == SCHED_FORWARD && before >= 0 &&
	    !(*done_of(x, before, step->micro) & BIT(SCHED_FORWARD)))
		return refuse(x, e,
			      "comes before the forward pass of the chunk whose output it reads");
	if ((BIT(step->op) & ANY_BACKWARD) && after >= 0 &&
	    !(*done_of(x, after, step->micro) & ANY_BACKWARD))
		return refuse(
			x, e,
			"comes before the backward pass of the chunk whose gradient it reads");
	return 0;
}

static int check_succession(struct exam *x, const struct sched_step *step, struct err *e)
{
	for (int i = 0; i < SUCCESSIONS; i++)
		if ((rules[step->op].successions & BIT(i)) &&
		    step->micro != x->next[step->chunk][i]++)
			return refuse(x, e, "comes out of the order of the micro-batches");
	return 0;
}

static int check_needs(struct exam *x, const struct sched_step *step, struct err *e)
{
	const struct rule *rule = &rules[step->op];
	unsigned *mine = done_of(x, step->chunk, step->micro), has = steps_of(x, step->chunk);
	unsigned passes = ANY_BACKWARD | BIT(SCHED_BACKWARD_WEIGHT);
	if (*mine & BIT(step->op))
		return refuse(x, e, "is there twice");
	if (*mine & rule->none)
		return refuse(x, e, "is there twice, whole and in halves");
	if ((rule->all & (has | passes) & ~*mine) || (rule->one_of && !(rule->one_of & *mine)))
		return refuse(x, e, "comes before what it needs");
	*mine |= BIT(step->op);
	return check_succession(x, step, e) ? -1 : check_handed_over(x, step, e);
}

static void take_slot(struct exam *x, int chunk)
{
	if (++x->live[chunk] > x->slots.live[chunk])
		x->slots.live[chunk] = x->live[chunk];
	if (++x->all > x->slots.most)
		x->slots.most = x->all;
}

static void free_slot(struct exam *x, int chunk)
{
	x->live[chunk]--;
	x->all--;
}

static void count_slots(struct exam *x, const struct sched_step *step)
{
	int before = neighbour(x, step->chunk, -1), after = neighbour(x, step->chunk, 1);
	bool forward = step->op == SCHED_FORWARD, alone = x->s->forwards_only;
	if (forward)
		take_slot(x, step->chunk);
	if (forward && alone && before >= 0)
		free_slot(x, before);
	if ((forward && alone && after < 0) || step->op == SCHED_BACKWARD ||
	    step->op == SCHED_BACKWARD_WEIGHT)
		free_slot(x, step->chunk);
}

static int check_complete(const struct exam *x, struct err *e)
{
	const struct sched_row *row = &x->s->rows[x->rank];
	for (int c = 0; c < x->s->layout.chunks; c++)
		for (int m = 0; m < x->s->micros; m++) {
			unsigned has = *done_of(x, c, m), needs = steps_of(x, c);
			bool back = (has & BIT(SCHED_BACKWARD)) ||
				    (has & BOTH_HALVES) == BOTH_HALVES;
			if ((has & needs) != needs || back == x->s->forwards_only)
				return err_set(
					e, ERR_INTERNAL,
					"schedule: rank %d lacks a step of chunk %d, micro-batch "
					"%d; the table's generator must be mended",
					x->rank, c, m);
		}
	if (!x->s->forwards_only && (row->n < 1 || row->steps[row->n - 1].op != SCHED_REDUCE))
		return err_set(e, ERR_INTERNAL,
			       "schedule: rank %d does not end with the reduction; the table's "
			       "generator must be mended",
			       x->rank);
	for (int c = 0; c < x->s->layout.chunks; c++)
		if (x->slots.live[c] != row->slots.live[c])
			return err_set(e, ERR_INTERNAL,
				       "schedule: rank %d keeps %d micro-batches of chunk %d alive "
				       "and says %d; the table's generator must be mended",
				       x->rank, x->slots.live[c], c, row->slots.live[c]);
	if (x->slots.most != row->slots.most)
		return err_set(e, ERR_INTERNAL,
			       "schedule: rank %d keeps %d micro-batches alive and says %d; the "
			       "table's generator must be mended",
			       x->rank, x->slots.most, row->slots.most);
	return 0;
}

static int check_row(const struct schedule *s, int rank, unsigned *done, struct err *e)
{
	const struct sched_row *row = &s->rows[rank];
	struct exam x = { .s = s, .rank = rank, .done = done };
	memset(done, 0, (size_t)s->layout.chunks * (size_t)s->micros * sizeof *done);
	for (; x.at < row->n; x.at++) {
		const struct sched_step *step = &row->steps[x.at];
		if (step->op == SCHED_REDUCE) {
			if (x.at < row->n - 1 || s->forwards_only)
				return refuse(&x, e, "comes before the last step of its row");
			continue;
		}
		if (check_place(&x, step, e) || check_needs(&x, step, e))
			return -1;
		count_slots(&x, step);
	}
	return check_complete(&x, e);
}

int schedule_check(const struct schedule *s, struct err *e)
{
	unsigned *done = calloc((size_t)s->layout.chunks * (size_t)s->micros, sizeof *done);
	if (!done)
		return err_set(
			e, ERR_NOMEM,
			"no memory to check a schedule of %d micro-batches; close other programs",
			s->micros);
	int rc = 0, at;
	for (int i = 0; !rc && i < s->layout.pp; i++)
		rc = check_row(s, i, done, e);
	free(done);
	if (rc)
		return rc;
	/* The rows are complete, so every send has its receive. What remains is the order in which
	 * they meet. */
	int stuck = schedule_find_stuck(s, &at);
	if (stuck == -2)
		return err_set(e, ERR_NOMEM,
			       "no memory to check a schedule of %d ranks; close other programs",
			       s->layout.pp);
	if (stuck >= 0)
		return refuse(&(struct exam){ .s = s, .rank = stuck, .at = at }, e,
			      "waits for a message that does not come next (deadlock)");
	return 0;
}
