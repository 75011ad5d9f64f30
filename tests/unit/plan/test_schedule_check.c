/* Tables that the checker of the pipeline's tables refuses. */
#include "tests/unit/plan/tables.h"

#include "base/philox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_dropped_step_is_refused(void **state)
{
	(void)state;
	for (int f = 0; f < n_forms; f++)
		for (int rank = 0; rank < 3; rank++)
			for (int i = 0;; i++) {
				struct schedule s = table_of(forms[f].kind, 3, forms[f].chunks, 4);
				struct sched_row *row = &s.rows[rank];
				if (i == row->n) {
					schedule_free(&s);
					break;
				}
				memmove(row->steps + i, row->steps + i + 1,
					(size_t)(row->n - i - 1) * sizeof *row->steps);
				row->n--;
				must_refuse(&s, "a dropped step");
			}
}

static void a_wrong_micro_batch_or_chunk_is_refused(void **state)
{
	(void)state;
	for (int f = 0; f < n_forms; f++)
		for (int rank = 0; rank < 3; rank++)
			for (int i = 0; i < 12; i++)
				for (int wrong = -1; wrong <= 4; wrong++) {
					for (int of_chunk = 0; of_chunk < 2; of_chunk++) {
						struct schedule s = table_of(forms[f].kind, 3,
									     forms[f].chunks, 4);
						struct sched_step *step = &s.rows[rank].steps[i];
						int *field = of_chunk ? &step->chunk : &step->micro;
						if (step->op == SCHED_REDUCE || *field == wrong) {
							schedule_free(&s);
							continue;
						}
						*field = wrong;
						must_refuse(&s, "a wrong micro-batch or chunk");
					}
				}
}

static void a_repeated_or_foreign_step_is_refused(void **state)
{
	(void)state;
	struct schedule s = table(SCHEDULE_GPIPE, 3, 4);
	s.rows[1].steps[3] = s.rows[1].steps[0];
	must_refuse(&s, "a repeated step");
	s = table(SCHEDULE_GPIPE, 3, 4);
	s.rows[0].steps[1].op = SCHED_SEND_GRAD;
	must_refuse(&s, "a gradient sent by the first stage");
	s = table(SCHEDULE_GPIPE, 3, 4);
	s.rows[2].steps[1].op = (enum sched_op)99;
	must_refuse(&s, "an unknown operation");
	s = table(SCHEDULE_GPIPE, 3, 4);
	s.rows[2].slots.live[0]--;
	must_refuse(&s, "a lie about a chunk's slots");
	s = table(SCHEDULE_INTERLEAVED, 3, 4);
	s.rows[2].slots.most--;
	must_refuse(&s, "a lie about all slots");
	s = table(SCHEDULE_GPIPE, 3, 4);
	struct sched_step last = s.rows[0].steps[s.rows[0].n - 1];
	s.rows[0].steps[s.rows[0].n - 1] = s.rows[0].steps[s.rows[0].n - 2];
	s.rows[0].steps[s.rows[0].n - 2] = last;
	must_refuse(&s, "a reduction before the last backward");
}

/* A backward pass is either whole or two halves. The weights' half follows the input's half. */
static void halves_that_do_not_fit_are_refused(void **state)
{
	static const enum sched_op wrong[] = { SCHED_BACKWARD, SCHED_BACKWARD_WEIGHT,
					       SCHED_FORWARD };
	(void)state;
	for (int w = 0; w < 3; w++)
		for (int i = 0;; i++) {
			struct schedule s = table(SCHEDULE_ZB_H1, 3, 4);
			struct sched_step *step = &s.rows[1].steps[i];
			if (step->op == SCHED_REDUCE) {
				schedule_free(&s);
				break;
			}
			if ((step->op != SCHED_BACKWARD_INPUT &&
			     step->op != SCHED_BACKWARD_WEIGHT) ||
			    step->op == wrong[w]) {
				schedule_free(&s);
				continue;
			}
			step->op = wrong[w];
			must_refuse(&s, "a wrong half");
		}
	/* A whole pass in the place of the other half is as good as both halves. */
	struct schedule s = table(SCHEDULE_ZB_H1, 1, 1);
	assert_int_equal(s.rows[0].n, 4);
	s.rows[0].steps[1].op = SCHED_BACKWARD;
	s.rows[0].steps[2] = s.rows[0].steps[3];
	s.rows[0].n = 3;
	must_pass(&s);
	schedule_free(&s);
}

/* On one rank, one chunk's output exists before the next chunk reads it. */
static void a_chunk_that_reads_too_early_is_refused(void **state)
{
	(void)state;
	for (int back = 0; back < 2; back++) {
		struct schedule s = table(SCHEDULE_ZB_V, 1, 1);
		static const struct sched_step first[] = { { SCHED_FORWARD, 0, 0 },
							   { SCHED_FORWARD, 1, 0 },
							   { SCHED_BACKWARD_INPUT, 1, 0 },
							   { SCHED_BACKWARD_WEIGHT, 1, 0 },
							   { SCHED_BACKWARD_INPUT, 0, 0 } };
		must_be(&s, 0,
			(struct sched_step[]){ first[0],
					       first[1],
					       first[2],
					       first[3],
					       first[4],
					       { SCHED_BACKWARD_WEIGHT, 0, 0 },
					       { SCHED_REDUCE, -1, -1 } },
			7);
		struct sched_step *steps = s.rows[0].steps;
		if (back) {
			steps[2] = first[4];
			steps[3] = first[2];
			steps[4] = first[3];
		} else {
			steps[0] = first[1];
			steps[1] = first[0];
		}
		struct err e = ERR_INIT;
		assert_int_equal(schedule_check(&s, &e), -1);
		assert_non_null(
			strstr(e.text, back ? "whose gradient it reads" : "whose output it reads"));
		schedule_free(&s);
	}
}

static void swap(struct sched_step *a, struct sched_step *b)
{
	struct sched_step t = *a;
	*a = *b;
	*b = t;
}

/* Steps of one micro-batch in another order are refused, because each needs the step before it. */
static void swapped_dependent_steps_are_refused(void **state)
{
	(void)state;
	for (int f = 0; f < n_forms; f++)
		for (int rank = 0; rank < 3; rank++)
			for (int i = 0; i + 1 < 13; i++) {
				struct schedule s = table_of(forms[f].kind, 3, forms[f].chunks, 4);
				struct sched_step *a = &s.rows[rank].steps[i], *b = a + 1;
				/* A gradient may be sent before or after the weights' half. */
				bool free_order = a->op == SCHED_SEND_GRAD ||
						  b->op == SCHED_SEND_GRAD;
				if (a->micro != b->micro || a->chunk != b->chunk ||
				    b->op == SCHED_REDUCE ||
				    (free_order && schedule_splits(s.kind))) {
					schedule_free(&s);
					continue;
				}
				swap(a, b);
				must_refuse(&s, "swapped steps of one micro-batch");
			}
}

static void a_deadlock_is_refused(void **state)
{
	(void)state;
	/* The first stage waits for gradient 0 before it sends activation 1. The second waits for
	 * activation 1 before its backward pass. Each row is valid on its own. */
	struct schedule s = table(SCHEDULE_1F1B, 2, 2), naive = table(SCHEDULE_NAIVE, 2, 2),
			all = table(SCHEDULE_GPIPE, 2, 2);
	struct sched_row mine = s.rows[0], last = s.rows[1];
	s.rows[0] = naive.rows[0];
	s.rows[1] = all.rows[1];
	struct err e = ERR_INIT;
	assert_int_equal(schedule_check(&s, &e), -1);
	assert_non_null(strstr(e.text, "deadlock"));
	assert_true(simulate(&s, 1, 1, 1, 0, NULL) < 0);
	s.rows[0] = mine;
	s.rows[1] = last;
	schedule_free(&s);
	schedule_free(&naive);
	schedule_free(&all);
}

static void messages_out_of_order_are_refused(void **state)
{
	(void)state;
	/* Each row is valid on its own. The first rank sends chunk 1 of micro-batch 0 before chunk
	 * 0 of micro-batch 2; the second receives them in the other order, from one channel. */
	struct schedule s = table(SCHEDULE_INTERLEAVED, 2, 4);
	struct sched_step *steps = s.rows[1].steps;
	int n = s.rows[1].n, found = 0;
	for (int i = 0; i + 2 < n && !found; i++)
		for (int j = i + 1; j < n && !found; j++)
			if (steps[i].op == SCHED_RECV_ACT && steps[i].chunk == 0 &&
			    steps[i].micro == 1 && steps[j].op == SCHED_RECV_ACT &&
			    steps[j].chunk == 1 && steps[j].micro == 0) {
				struct sched_step late = steps[j];
				memmove(steps + i + 1, steps + i, (size_t)(j - i) * sizeof *steps);
				steps[i] = late;
				found = 1;
			}
	assert_int_equal(found, 1);
	must_refuse(&s, "messages out of order");
}

static void impossible_tables_are_refused(void **state)
{
	struct schedule s;
	struct err e = ERR_INIT;
	(void)state;
	/* clang-format off */
	static const struct { enum job_schedule kind; int pp, chunks, micros; bool vee; } wrong[] = {
		{ SCHEDULE_1F1B, 0, 1, 4, false }, { SCHEDULE_1F1B, 4, 1, 0, false }, { SCHEDULE_1F1B, 4, 2, 4, false },
		{ SCHEDULES, 4, 1, 4, false }, { SCHEDULE_INTERLEAVED, 4, 1, 4, false }, { SCHEDULE_INTERLEAVED, 4, 2, 4, true },
		{ SCHEDULE_INTERLEAVED, 4, LAYOUT_CHUNKS_MAX + 1, 4, false }, { SCHEDULE_ZB_V, 4, 2, 4, false }, { SCHEDULE_ZB_V, 4, 3, 4, true },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct layout l = table_layout(wrong[i].kind, wrong[i].pp, wrong[i].chunks);
		l.vee = wrong[i].vee;
		assert_int_equal(schedule_build(wrong[i].kind, &l, wrong[i].micros, &s, &e), -1);
		assert_int_equal(e.code, ERR_INTERNAL);
	}
	struct layout l = table_layout(SCHEDULE_1F1B, 1024, 1);
	assert_int_equal(schedule_build(SCHEDULE_1F1B, &l, 1 << 20, &s, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	struct sched_slots slots;
	schedule_slots(SCHEDULE_GPIPE, &l, 1 << 30, 0, &slots);
	assert_true(slots.most > 1000);
}

/* Random damage: every table that the checker accepts can be simulated to its end. */
static void what_is_accepted_can_run(void **state)
{
	uint64_t at = 0;
	int accepted = 0;
	(void)state;
	for (int round = 0; round < 30000; round++) {
		uint32_t w[4], v[4];
		const struct table_form *form = &forms[round % n_forms];
		struct schedule s = table_of(form->kind, 3, form->chunks, 3);
		philox4(philox_key(2, PHILOX_TEST, 0), at++, w);
		philox4(philox_key(3, PHILOX_TEST, 0), at, v);
		struct sched_row *row = &s.rows[w[0] % 3];
		if (w[1] % 2)
			swap(&row->steps[w[2] % (unsigned)row->n],
			     &row->steps[w[3] % (unsigned)row->n]);
		else
			row->steps[w[2] % (unsigned)row->n] = (struct sched_step){
				(enum sched_op)(v[0] % 11), (int)(v[2] % 4) - 1, (int)(v[1] % 6) - 1
			};
		if (!schedule_check(&s, NULL)) {
			assert_true(simulate(&s, 1, 1, 1, 0, NULL) > 0);
			accepted++;
		}
		schedule_free(&s);
	}
	assert_in_range(accepted, 100, 30000 / 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_dropped_step_is_refused),
		cmocka_unit_test(a_wrong_micro_batch_or_chunk_is_refused),
		cmocka_unit_test(a_repeated_or_foreign_step_is_refused),
		cmocka_unit_test(halves_that_do_not_fit_are_refused),
		cmocka_unit_test(a_chunk_that_reads_too_early_is_refused),
		cmocka_unit_test(swapped_dependent_steps_are_refused),
		cmocka_unit_test(a_deadlock_is_refused),
		cmocka_unit_test(messages_out_of_order_are_refused),
		cmocka_unit_test(impossible_tables_are_refused),
		cmocka_unit_test(what_is_accepted_can_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
