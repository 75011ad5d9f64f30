#include "plan/spec/schedule/order.h"

#include <stdlib.h>
#include <string.h>

/* Micro-batches × stages of the whole table; beyond it is a mistake in the job, not a pipeline. */
enum { CELLS_MAX = 1 << 22 };

static const char *const words[SCHED_OPS] = {
	[SCHED_RECV_ACT] = "recv-act",
	[SCHED_FORWARD] = "forward",
	[SCHED_SEND_ACT] = "send-act",
	[SCHED_RECV_GRAD] = "recv-grad",
	[SCHED_BACKWARD] = "backward",
	[SCHED_BACKWARD_INPUT] = "backward-input",
	[SCHED_BACKWARD_WEIGHT] = "backward-weight",
	[SCHED_SEND_GRAD] = "send-grad",
	[SCHED_REDUCE] = "reduce",
};

const char *schedule_op_word(enum sched_op op)
{
	return (unsigned)op < SCHED_OPS ? words[op] : "unknown";
}

enum sched_op schedule_op_of(const char *word)
{
	int op = 0;
	while (op < SCHED_OPS && strcmp(word, words[op]))
		op++;
	return (enum sched_op)op;
}

static void list(const struct schedule *s, struct order *o)
{
	if (s->forwards_only)
		schedule_order_list_forwards(o);
	else
		schedule_order_list(s->kind, o);
}

static int fill_row(struct schedule *s, int rank, struct err *e)
{
	struct sched_row *row = &s->rows[rank];
	struct order count = { .of = { &s->layout, s->micros, rank } };
	struct order keep = count;
	list(s, &count);
	keep.steps = calloc((size_t)count.n, sizeof *keep.steps);
	if (!keep.steps)
		return err_set(e, ERR_NOMEM,
			       "no memory for a schedule of %d stages × %d micro-batches; close "
			       "other programs",
			       layout_n_stages(&s->layout), s->micros);
	list(s, &keep);
	*row = (struct sched_row){ keep.steps, keep.n, keep.slots };
	return 0;
}

static bool possible(const struct schedule *s)
{
	const struct layout *l = &s->layout;
	int least, most;
	if (l->pp < 1 || l->chunks < 1 || l->chunks > LAYOUT_CHUNKS_MOST || s->micros < 1 ||
	    !schedule_known(s->kind) || (l->vee && l->chunks != 2))
		return false;
	schedule_chunks(s->kind, &least, &most);
	return s->forwards_only ||
	       (l->chunks >= least && l->chunks <= most && l->vee == (s->kind == SCHEDULE_ZB_V));
}

static int build(struct schedule s, struct schedule *out, struct err *e)
{
	int64_t stages = (int64_t)s.layout.pp * s.layout.chunks;
	if (!possible(&s))
		return err_set(
			e, ERR_INTERNAL,
			"schedule %d of %d ranks × %d chunks and %d micro-batches: no such table",
			(int)s.kind, s.layout.pp, s.layout.chunks, s.micros);
	if (stages * s.micros > CELLS_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "schedule: %lld stages × %d micro-batches are more than %d cells; "
			       "raise batch.micro or lower batch.global",
			       (long long)stages, s.micros, CELLS_MAX);
	s.rows = calloc((size_t)s.layout.pp, sizeof *s.rows);
	if (!s.rows)
		return err_set(e, ERR_NOMEM,
			       "no memory for a schedule of %d ranks; close other programs",
			       s.layout.pp);
	for (int i = 0; i < s.layout.pp; i++)
		if (fill_row(&s, i, e)) {
			schedule_free(&s);
			return -1;
		}
	*out = s;
	return 0;
}

int schedule_build(enum job_schedule kind, const struct layout *l, int micros, struct schedule *out,
		   struct err *e)
{
	return build((struct schedule){ .kind = kind, .layout = *l, .micros = micros }, out, e);
}

int schedule_build_forwards(const struct layout *l, int micros, struct schedule *out, struct err *e)
{
	return build((struct schedule){ .layout = *l, .micros = micros, .forwards_only = true },
		     out, e);
}

void schedule_free(struct schedule *s)
{
	for (int i = 0; s->rows && i < s->layout.pp; i++)
		free(s->rows[i].steps);
	free(s->rows);
	*s = (struct schedule){ 0 };
}

void schedule_slots(enum job_schedule kind, const struct layout *l, int micros, int pp,
		    struct sched_slots *out)
{
	/* More than what can be built is not counted: it will be refused. */
	int most = CELLS_MAX / layout_n_stages(l);
	struct order o = { .of = { l, micros < most ? micros : most, pp } };
	schedule_order_list(kind, &o);
	*out = o.slots;
}
