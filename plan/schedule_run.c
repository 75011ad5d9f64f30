/*
 * Walking a table on paper: the proof that it can be executed, and the time it takes.
 */
#include "plan/schedule.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Messages in flight from one stage to a neighbour: micro-batches in the order
 * of their sends, and when each was sent. */
struct channel {
	int *micro;
	double *sent;
	int head, tail;
};

/* Each stage has one channel for activations down and one for gradients up. */
struct walk {
	const struct schedule *s;
	struct channel *act, *grad; /* [stages]: written by that stage */
	int *at;                    /* [stages]: the next step of each */
	double *clock, *busy;       /* [stages] */
};

static void walk_fini(struct walk *w)
{
	for (int i = 0; i < w->s->stages; i++) {
		if (w->act) {
			free(w->act[i].micro);
			free(w->act[i].sent);
		}
		if (w->grad) {
			free(w->grad[i].micro);
			free(w->grad[i].sent);
		}
	}
	free(w->act);
	free(w->grad);
	free(w->at);
	free(w->clock);
	free(w->busy);
}

/* A row may send at most as often as it has steps. */
static bool channel_init(struct channel *c, int steps)
{
	c->micro = calloc((size_t)steps + 1, sizeof *c->micro);
	c->sent = calloc((size_t)steps + 1, sizeof *c->sent);
	return c->micro && c->sent;
}

static bool walk_init(struct walk *w, const struct schedule *s)
{
	size_t n = (size_t)s->stages;
	*w = (struct walk){
		.s = s,
		.act = calloc(n, sizeof *w->act),
		.grad = calloc(n, sizeof *w->grad),
		.at = calloc(n, sizeof *w->at),
		.clock = calloc(n, sizeof *w->clock),
		.busy = calloc(n, sizeof *w->busy),
	};
	if (!w->act || !w->grad || !w->at || !w->clock || !w->busy)
		return false;
	for (int i = 0; i < s->stages; i++)
		if (!channel_init(&w->act[i], s->rows[i].n) || !channel_init(&w->grad[i], s->rows[i].n))
			return false;
	return true;
}

struct times {
	const double *fwd, *bwd;
	double hop;
};

static void send(struct channel *c, int micro, double now)
{
	c->micro[c->tail] = micro;
	c->sent[c->tail++] = now;
}

/* Runs the next step of a stage if it can run now. */
static bool walk_step(struct walk *w, int stage, const struct times *t)
{
	const struct sched_step *step = &w->s->rows[stage].steps[w->at[stage]];
	struct channel *from = NULL;
	double work = 0;
	switch (step->op) {
	case SCHED_RECV_ACT:
		from = &w->act[stage - 1];
		break;
	case SCHED_RECV_GRAD:
		from = &w->grad[stage + 1];
		break;
	case SCHED_SEND_ACT:
		send(&w->act[stage], step->micro, w->clock[stage]);
		break;
	case SCHED_SEND_GRAD:
		send(&w->grad[stage], step->micro, w->clock[stage]);
		break;
	case SCHED_FORWARD:
		work = t->fwd[stage];
		break;
	case SCHED_BACKWARD:
		work = t->bwd[stage];
		break;
	case SCHED_REDUCE:
		break;
	}
	if (from) {
		if (from->head == from->tail || from->micro[from->head] != step->micro)
			return false;
		double arrival = from->sent[from->head++] + t->hop;
		if (w->clock[stage] < arrival)
			w->clock[stage] = arrival;
	}
	w->clock[stage] += work;
	w->busy[stage] += work;
	w->at[stage]++;
	return true;
}

/* Until nothing moves. Returns the first stage that has not ended, -1 when all have. */
static int walk_all(struct walk *w, const struct times *t)
{
	for (bool moved = true; moved;) {
		moved = false;
		for (int i = 0; i < w->s->stages; i++)
			while (w->at[i] < w->s->rows[i].n && walk_step(w, i, t))
				moved = true;
	}
	for (int i = 0; i < w->s->stages; i++)
		if (w->at[i] < w->s->rows[i].n)
			return i;
	return -1;
}

double schedule_simulate(const struct schedule *s, const double *fwd, const double *bwd, double hop, double *bubble)
{
	struct walk w;
	struct times t = { fwd, bwd, hop };
	double end = -1;
	if (walk_init(&w, s) && walk_all(&w, &t) < 0) {
		double busy = 0;
		end = 0;
		for (int i = 0; i < s->stages; i++) {
			busy += w.busy[i];
			if (w.clock[i] > end)
				end = w.clock[i];
		}
		if (bubble)
			*bubble = end > 0 ? 1 - busy / (end * s->stages) : 0;
	}
	walk_fini(&w);
	return end;
}

/* --- The check ------------------------------------------------------------ */

/* What has been done for one micro-batch is a bit an op; every stage has these. */
enum { DONE_COMPUTE = 1 << SCHED_FORWARD | 1 << SCHED_BACKWARD };

static unsigned ops_of_stage(const struct schedule *s, int stage)
{
	unsigned ops = DONE_COMPUTE;
	if (stage > 0)
		ops |= 1 << SCHED_RECV_ACT | 1 << SCHED_SEND_GRAD;
	if (stage < s->stages - 1)
		ops |= 1 << SCHED_SEND_ACT | 1 << SCHED_RECV_GRAD;
	return ops;
}

/* What must have been done before an op, as far as the stage has it. */
static const unsigned needs[] = {
	[SCHED_RECV_ACT] = 0,
	[SCHED_FORWARD] = 1 << SCHED_RECV_ACT,
	[SCHED_SEND_ACT] = 1 << SCHED_FORWARD,
	[SCHED_RECV_GRAD] = 1 << SCHED_FORWARD,
	[SCHED_BACKWARD] = 1 << SCHED_FORWARD | 1 << SCHED_RECV_GRAD,
	[SCHED_SEND_GRAD] = 1 << SCHED_BACKWARD,
};

static int refuse(struct err *e, int stage, int at, const struct sched_step *step, const char *cause)
{
	return err_set(e, ERR_INTERNAL, "schedule: stage %d, step %d (%s of micro-batch %d): %s; the table's generator must be mended",
		       stage, at, sched_op_word(step->op), step->micro, cause);
}

static int check_step(const struct schedule *s, int stage, int at, unsigned *done, struct err *e)
{
	const struct sched_step *step = &s->rows[stage].steps[at];
	unsigned has = ops_of_stage(s, stage);
	if (step->op == SCHED_REDUCE)
		return at == s->rows[stage].n - 1 ? 0 : refuse(e, stage, at, step, "comes before the last step of its row");
	if ((unsigned)step->op >= sizeof needs / sizeof *needs || !(has & 1u << step->op))
		return refuse(e, stage, at, step, "this stage has no such step");
	if (step->micro < 0 || step->micro >= s->micros)
		return refuse(e, stage, at, step, "there is no such micro-batch");
	unsigned *mine = &done[step->micro];
	if (*mine & 1u << step->op)
		return refuse(e, stage, at, step, "is there twice");
	if (needs[step->op] & has & ~*mine)
		return refuse(e, stage, at, step, "comes before what it needs");
	*mine |= 1u << step->op;
	return 0;
}

static int check_row(const struct schedule *s, int stage, unsigned *done, struct err *e)
{
	const struct sched_row *row = &s->rows[stage];
	int live = 0, most = 0;
	memset(done, 0, (size_t)s->micros * sizeof *done);
	for (int i = 0; i < row->n; i++) {
		if (check_step(s, stage, i, done, e))
			return -1;
		live += (row->steps[i].op == SCHED_FORWARD) - (row->steps[i].op == SCHED_BACKWARD);
		if (live > most)
			most = live;
	}
	for (int m = 0; m < s->micros; m++)
		if (done[m] != ops_of_stage(s, stage))
			return err_set(e, ERR_INTERNAL, "schedule: stage %d lacks a step of micro-batch %d; the table's generator must be mended", stage, m);
	if (row->n < 1 || row->steps[row->n - 1].op != SCHED_REDUCE)
		return err_set(e, ERR_INTERNAL, "schedule: stage %d does not end with the reduction; the table's generator must be mended", stage);
	if (most != row->live)
		return err_set(e, ERR_INTERNAL, "schedule: stage %d keeps %d micro-batches alive and says %d; the table's generator must be mended", stage, most, row->live);
	return 0;
}

static int check_order(const struct schedule *s, struct err *e)
{
	struct walk w;
	int rc = -1;
	double *none = calloc((size_t)s->stages, sizeof *none);
	if (!walk_init(&w, s) || !none) {
		err_set(e, ERR_NOMEM, "no memory to check a schedule of %d stages; close other programs", s->stages);
		goto out;
	}
	int stuck = walk_all(&w, &(struct times){ none, none, 0 });
	if (stuck >= 0)
		refuse(e, stuck, w.at[stuck], &s->rows[stuck].steps[w.at[stuck]], "waits for a message that does not come next (deadlock)");
	else
		rc = 0;
out:
	free(none);
	walk_fini(&w);
	return rc;
}

int schedule_check(const struct schedule *s, struct err *e)
{
	unsigned *done = calloc((size_t)s->micros, sizeof *done);
	if (!done)
		return err_set(e, ERR_NOMEM, "no memory to check a schedule of %d micro-batches; close other programs", s->micros);
	int rc = 0;
	for (int i = 0; !rc && i < s->stages; i++)
		rc = check_row(s, i, done, e);
	free(done);
	/* Every send has its receive by the rows' completeness; in which order they meet is left. */
	return rc ? rc : check_order(s, e);
}
