#include "tests/unit/plan/tables.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct table_form forms[2 * SCHEDULES];
int n_forms;

__attribute__((constructor)) static void list_forms(void)
{
	for (int kind = 0; kind < SCHEDULES; kind++) {
		const struct schedule_kind *k = schedule_kinds[kind];
		for (int c = k->chunks_least; c <= k->chunks_most && c <= k->chunks_least + 1; c++)
			forms[n_forms++] = (struct table_form){ (enum job_schedule)kind, c };
	}
}

struct layout table_layout(enum job_schedule kind, int pp, int chunks)
{
	return (struct layout){ .tp = 1,
				.cp = 1,
				.dp = 1,
				.pp = pp,
				.ep = 1,
				.chunks = chunks,
				.vee = kind < SCHEDULES && schedule_kinds[kind]->vee };
}

struct schedule table_of(enum job_schedule kind, int pp, int chunks, int micros)
{
	struct schedule s;
	struct err e = ERR_INIT;
	struct layout l = table_layout(kind, pp, chunks);
	if (schedule_build(kind, &l, micros, &s, &e))
		fail_msg("%s", e.text);
	return s;
}

struct schedule table(enum job_schedule kind, int pp, int micros)
{
	return table_of(kind, pp, schedule_kinds[kind]->chunks_least, micros);
}

double simulate(const struct schedule *s, double forward, double input, double weight, double hop,
		double *bubble)
{
	double f[STAGES_MAX], i[STAGES_MAX], w[STAGES_MAX];
	for (int n = 0; n < layout_n_stages(&s->layout); n++) {
		f[n] = forward / s->layout.chunks;
		i[n] = input / s->layout.chunks;
		w[n] = weight / s->layout.chunks;
	}
	return schedule_simulate(
		s, &(struct sched_costs){ .forward = f, .input = i, .weight = w, .hop = hop }, NULL,
		bubble);
}

void near(double a, double b)
{
	if (!(fabs(a - b) < 1e-9 * (1 + fabs(b))))
		fail_msg("%.12g is not %.12g", a, b);
}

void must_pass(const struct schedule *s)
{
	struct err e = ERR_INIT;
	if (schedule_check(s, &e))
		fail_msg("kind %d, %d ranks × %d chunks, %d micro-batches: %s", (int)s->kind,
			 s->layout.pp, s->layout.chunks, s->micros, e.text);
}

void must_refuse(struct schedule *s, const char *what)
{
	struct err e = ERR_INIT;
	if (!schedule_check(s, &e))
		fail_msg("accepted: %s", what);
	assert_int_equal(e.code, ERR_INTERNAL);
	schedule_free(s);
}

void must_be(const struct schedule *s, int rank, const struct sched_step *steps, size_t n)
{
	assert_int_equal(s->rows[rank].n, n);
	for (size_t i = 0; i < n; i++)
		if (memcmp(&s->rows[rank].steps[i], &steps[i], sizeof *steps))
			fail_msg("step %zu is %s of chunk %d, micro-batch %d", i,
				 schedule_op_word(s->rows[rank].steps[i].op),
				 s->rows[rank].steps[i].chunk, s->rows[rank].steps[i].micro);
}
