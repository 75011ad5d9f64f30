#include "plan/schedule.h"

#include <stdbool.h>
#include <stdlib.h>

/* Steps of the whole table; beyond it is a mistake in the job, not a pipeline. */
enum { CELLS_MAX = 1 << 22, STEPS_PER_CELL = 6 };

const char *sched_op_word(enum sched_op op)
{
	static const char *const words[] = {
		[SCHED_RECV_ACT] = "recv-act", [SCHED_FORWARD] = "forward", [SCHED_SEND_ACT] = "send-act",
		[SCHED_RECV_GRAD] = "recv-grad", [SCHED_BACKWARD] = "backward", [SCHED_SEND_GRAD] = "send-grad",
		[SCHED_REDUCE] = "reduce",
	};
	return (unsigned)op < sizeof words / sizeof *words ? words[op] : "unknown";
}

static void put(struct sched_row *row, enum sched_op op, int micro)
{
	row->steps[row->n++] = (struct sched_step){ op, micro };
}

static void forward(struct schedule *s, int stage, int micro)
{
	struct sched_row *row = &s->rows[stage];
	if (stage > 0)
		put(row, SCHED_RECV_ACT, micro);
	put(row, SCHED_FORWARD, micro);
	if (stage < s->stages - 1)
		put(row, SCHED_SEND_ACT, micro);
}

static void backward(struct schedule *s, int stage, int micro)
{
	struct sched_row *row = &s->rows[stage];
	if (stage < s->stages - 1)
		put(row, SCHED_RECV_GRAD, micro);
	put(row, SCHED_BACKWARD, micro);
	if (stage > 0)
		put(row, SCHED_SEND_GRAD, micro);
}

/* `ahead` forwards, then one forward and one backward in turn, then the
 * backwards that are left. Backwards go in the order of the micro-batches, so
 * that every schedule sums gradients in the same order. */
static void fill_row(struct schedule *s, int stage, int ahead)
{
	for (int i = 0; i < ahead; i++)
		forward(s, stage, i);
	for (int i = ahead; i < s->micros; i++) {
		forward(s, stage, i);
		backward(s, stage, i - ahead);
	}
	for (int i = s->micros - ahead; i < s->micros; i++)
		backward(s, stage, i);
	put(&s->rows[stage], SCHED_REDUCE, -1);
}

static int ahead_1f1b(int stages, int micros, int stage)
{
	int ahead = stages - stage - 1;
	return ahead < micros ? ahead : micros;
}

static int ahead_gpipe(int stages, int micros, int stage)
{
	(void)stages;
	(void)stage;
	return micros;
}

/* A kind of schedule is how far a stage's forwards run ahead of its backwards. */
static int (*const kinds[])(int stages, int micros, int stage) = {
	[SCHEDULE_1F1B] = ahead_1f1b,
	[SCHEDULE_GPIPE] = ahead_gpipe,
};

int schedule_live(enum job_schedule kind, int stages, int micros, int stage)
{
	int ahead = kinds[kind](stages, micros, stage);
	return ahead < micros ? ahead + 1 : micros;
}

int schedule_build(enum job_schedule kind, int stages, int micros, struct schedule *out, struct err *e)
{
	if (stages < 1 || micros < 1 || (unsigned)kind >= sizeof kinds / sizeof *kinds)
		return err_set(e, ERR_INTERNAL, "schedule %d of %d stages and %d micro-batches: no such table", (int)kind, stages, micros);
	if ((int64_t)stages * micros > CELLS_MAX)
		return err_set(e, ERR_UNSUPPORTED, "schedule: %d stages × %d micro-batches are more than %d cells; raise batch.micro or lower batch.global",
			       stages, micros, CELLS_MAX);
	struct schedule s = { .kind = kind, .stages = stages, .micros = micros };
	s.rows = calloc((size_t)stages, sizeof *s.rows);
	if (!s.rows)
		goto no_memory;
	for (int i = 0; i < stages; i++) {
		s.rows[i].steps = calloc((size_t)micros * STEPS_PER_CELL + 1, sizeof *s.rows[i].steps);
		if (!s.rows[i].steps)
			goto no_memory;
		int ahead = kinds[kind](stages, micros, i);
		fill_row(&s, i, ahead);
		s.rows[i].live = schedule_live(kind, stages, micros, i);
	}
	*out = s;
	return 0;

no_memory:
	schedule_free(&s);
	return err_set(e, ERR_NOMEM, "no memory for the schedule of %d stages × %d micro-batches; close other programs", stages, micros);
}

void schedule_free(struct schedule *s)
{
	for (int i = 0; s->rows && i < s->stages; i++)
		free(s->rows[i].steps);
	free(s->rows);
	*s = (struct schedule){ 0 };
}
