#include "plan/spec/schedule/order.h"

#include <stdlib.h>
#include <string.h>

/* Micro-batches × stages of the whole table. A larger one is a mistake in the job. */
enum { CELLS_MAX = 1 << 22 };

static const char *const op_words[SCHED_OPS] = {
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
	return (unsigned)op < SCHED_OPS ? op_words[op] : "unknown";
}

enum sched_op schedule_op_of(const char *word)
{
	int op = 0;
	while (op < SCHED_OPS && strcmp(word, op_words[op]))
		op++;
	return (enum sched_op)op;
}

static void list_row(const struct schedule *s, struct order *o)
{
	if (s->forwards_only)
		schedule_list_forwards(o);
	else
		schedule_list_passes(s->kind, o);
}

static int fill_row(struct schedule *s, int rank, struct err *e)
{
	struct sched_row *row = &s->rows[rank];
	struct order count = { .of = { &s->layout, s->micros, rank } };
	struct order keep = count;
	list_row(s, &count);
	keep.steps = calloc((size_t)count.n, sizeof *keep.steps);
	if (!keep.steps)
		return err_set(e, ERR_NOMEM,
			       "no memory for a schedule of %d stages × %d micro-batches; close "
			       "other programs",
			       layout_n_stages(&s->layout), s->micros);
	list_row(s, &keep);
	*row = (struct sched_row){ keep.steps, keep.n, keep.slots };
	return 0;
}

static bool is_possible(const struct schedule *s)
{
	const struct layout *l = &s->layout;
	if (l->pp < 1 || l->chunks < 1 || l->chunks > LAYOUT_CHUNKS_MAX || s->micros < 1 ||
	    (unsigned)s->kind >= SCHEDULES || (l->vee && l->chunks != 2))
		return false;
	const struct schedule_kind *k = schedule_kinds[s->kind];
	return s->forwards_only ||
	       (l->chunks >= k->chunks_least && l->chunks <= k->chunks_most && l->vee == k->vee);
}

static int build_table(struct schedule s, struct schedule *out, struct err *e)
{
	int64_t stages = (int64_t)s.layout.pp * s.layout.chunks;
	if (!is_possible(&s))
		return err_set(
			e, ERR_INTERNAL,
			"schedule %d has no table for %d ranks × %d chunks and %d micro-batches",
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
	return build_table((struct schedule){ .kind = kind, .layout = *l, .micros = micros }, out,
			   e);
}

int schedule_build_forwards(const struct layout *l, int micros, struct schedule *out, struct err *e)
{
	return build_table(
		(struct schedule){ .layout = *l, .micros = micros, .forwards_only = true }, out, e);
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
	/* A table that is too large is not counted: schedule_build refuses it. */
	int most = CELLS_MAX / layout_n_stages(l);
	struct order o = { .of = { l, micros < most ? micros : most, pp } };
	schedule_list_passes(kind, &o);
	*out = o.slots;
}
