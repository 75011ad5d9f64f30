/* The pipeline's table: what the generators make, what the checker refuses, what time it takes. */
#include "plan/schedule.h"

#include "base/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const enum job_schedule kinds[] = { SCHEDULE_1F1B, SCHEDULE_GPIPE };

static struct schedule table(enum job_schedule kind, int stages, int micros)
{
	struct schedule s;
	struct err e = ERR_INIT;
	if (schedule_build(kind, stages, micros, &s, &e))
		fail_msg("%s", e.text);
	return s;
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

static void every_table_passes_the_check(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++)
		for (int stages = 1; stages <= 9; stages++)
			for (int micros = 1; micros <= 12; micros++) {
				struct schedule s = table(kinds[k], stages, micros);
				struct err e = ERR_INIT;
				if (schedule_check(&s, &e))
					fail_msg("%s", e.text);
				for (int i = 0; i < stages; i++) {
					int live = kinds[k] == SCHEDULE_GPIPE ? micros : least(stages - i, micros);
					assert_int_equal(s.rows[i].live, live);
					assert_int_equal(schedule_live(kinds[k], stages, micros, i), live);
				}
				schedule_free(&s);
			}
}

static void the_first_table_of_the_textbook(void **state)
{
	static const struct sched_step row[] = { /* the first of two stages, three micro-batches */
		{ SCHED_FORWARD, 0 }, { SCHED_SEND_ACT, 0 },
		{ SCHED_FORWARD, 1 }, { SCHED_SEND_ACT, 1 }, { SCHED_RECV_GRAD, 0 }, { SCHED_BACKWARD, 0 },
		{ SCHED_FORWARD, 2 }, { SCHED_SEND_ACT, 2 }, { SCHED_RECV_GRAD, 1 }, { SCHED_BACKWARD, 1 },
		{ SCHED_RECV_GRAD, 2 }, { SCHED_BACKWARD, 2 }, { SCHED_REDUCE, -1 },
	};
	(void)state;
	struct schedule s = table(SCHEDULE_1F1B, 2, 3);
	assert_int_equal(s.rows[0].n, sizeof row / sizeof *row);
	assert_memory_equal(s.rows[0].steps, row, sizeof row);
	assert_string_equal(sched_op_word(SCHED_RECV_GRAD), "recv-grad");
	schedule_free(&s);
}

/* Gradients are summed in the same order whatever the schedule. */
static void backwards_go_in_the_order_of_micro_batches(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++) {
		struct schedule s = table(kinds[k], 4, 7);
		for (int i = 0; i < 4; i++)
			for (int j = 0, next = 0; j < s.rows[i].n; j++)
				if (s.rows[i].steps[j].op == SCHED_BACKWARD)
					assert_int_equal(s.rows[i].steps[j].micro, next++);
		schedule_free(&s);
	}
}

static void must_refuse(struct schedule *s, const char *what)
{
	struct err e = ERR_INIT;
	if (!schedule_check(s, &e))
		fail_msg("accepted: %s", what);
	assert_int_equal(e.code, ERR_INTERNAL);
	schedule_free(s);
}

static void a_dropped_step_is_refused(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++)
		for (int stage = 0; stage < 3; stage++)
			for (int i = 0;; i++) {
				struct schedule s = table(kinds[k], 3, 4);
				struct sched_row *row = &s.rows[stage];
				if (i == row->n) {
					schedule_free(&s);
					break;
				}
				memmove(row->steps + i, row->steps + i + 1, (size_t)(row->n - i - 1) * sizeof *row->steps);
				row->n--;
				must_refuse(&s, "a dropped step");
			}
}

static void a_wrong_micro_batch_is_refused(void **state)
{
	(void)state;
	for (int stage = 0; stage < 3; stage++)
		for (int i = 0; i < 12; i++)
			for (int wrong = -1; wrong <= 4; wrong++) {
				struct schedule s = table(SCHEDULE_1F1B, 3, 4);
				struct sched_step *step = &s.rows[stage].steps[i];
				if (step->micro == wrong || step->op == SCHED_REDUCE) {
					schedule_free(&s);
					continue;
				}
				step->micro = wrong;
				must_refuse(&s, "a wrong micro-batch");
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
	s.rows[2].live--;
	must_refuse(&s, "a lie about live micro-batches");
	s = table(SCHEDULE_GPIPE, 3, 4);
	struct sched_step last = s.rows[0].steps[s.rows[0].n - 1];
	s.rows[0].steps[s.rows[0].n - 1] = s.rows[0].steps[s.rows[0].n - 2];
	s.rows[0].steps[s.rows[0].n - 2] = last;
	must_refuse(&s, "a reduction before the last backward");
}

static void swap(struct sched_step *a, struct sched_step *b)
{
	struct sched_step t = *a;
	*a = *b;
	*b = t;
}

/* Steps of a row in another order are refused, or still compute: what needs what comes first. */
static void swapped_dependent_steps_are_refused(void **state)
{
	(void)state;
	for (int stage = 0; stage < 3; stage++)
		for (int i = 0; i + 1 < 13; i++) {
			struct schedule s = table(SCHEDULE_1F1B, 3, 4);
			struct sched_step *a = &s.rows[stage].steps[i], *b = a + 1;
			if (a->micro != b->micro || b->op == SCHED_REDUCE) {
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
	/* The first stage wants gradient 0 before it sends activation 1, the second wants activation 1 before
	 * it goes back: each row is right on its own. */
	struct schedule s = table(SCHEDULE_1F1B, 2, 2);
	static const struct sched_step first[] = {
		{ SCHED_FORWARD, 0 }, { SCHED_SEND_ACT, 0 }, { SCHED_RECV_GRAD, 0 }, { SCHED_BACKWARD, 0 },
		{ SCHED_FORWARD, 1 }, { SCHED_SEND_ACT, 1 }, { SCHED_RECV_GRAD, 1 }, { SCHED_BACKWARD, 1 }, { SCHED_REDUCE, -1 },
	};
	static const struct sched_step second[] = {
		{ SCHED_RECV_ACT, 0 }, { SCHED_FORWARD, 0 }, { SCHED_RECV_ACT, 1 }, { SCHED_FORWARD, 1 },
		{ SCHED_BACKWARD, 0 }, { SCHED_SEND_GRAD, 0 }, { SCHED_BACKWARD, 1 }, { SCHED_SEND_GRAD, 1 }, { SCHED_REDUCE, -1 },
	};
	assert_int_equal(s.rows[0].n, 9);
	memcpy(s.rows[0].steps, first, sizeof first);
	s.rows[0].live = 1;
	memcpy(s.rows[1].steps, second, sizeof second);
	s.rows[1].live = 2;
	struct err e = ERR_INIT;
	assert_int_equal(schedule_check(&s, &e), -1);
	assert_non_null(strstr(e.text, "deadlock"));
	double one[] = { 1, 1 }, bubble;
	assert_true(schedule_simulate(&s, one, one, 0, &bubble) < 0);
	schedule_free(&s);
}

static void messages_out_of_order_are_refused(void **state)
{
	(void)state;
	/* The first stage sends 1 before 0; the second takes 0 first. */
	struct schedule s = table(SCHEDULE_GPIPE, 2, 2);
	swap(&s.rows[0].steps[0], &s.rows[0].steps[2]);
	swap(&s.rows[0].steps[1], &s.rows[0].steps[3]);
	must_refuse(&s, "messages out of order");
}

static void the_bubble_is_the_textbooks(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++)
		for (int p = 1; p <= 8; p++)
			for (int m = 1; m <= 20; m++) {
				struct schedule s = table(kinds[k], p, m);
				double fwd[8], bwd[8], bubble;
				for (int i = 0; i < p; i++) {
					fwd[i] = 1;
					bwd[i] = 2;
				}
				double t = schedule_simulate(&s, fwd, bwd, 0, &bubble);
				assert_true(fabs(t - 3.0 * (m + p - 1)) < 1e-9);
				assert_true(fabs(bubble - (double)(p - 1) / (m + p - 1)) < 1e-12);
				schedule_free(&s);
			}
}

static void messages_and_slow_stages_cost_time(void **state)
{
	(void)state;
	struct schedule s = table(SCHEDULE_GPIPE, 2, 1);
	double fwd[] = { 1, 2 }, bwd[] = { 3, 4 }, bubble;
	assert_true(fabs(schedule_simulate(&s, fwd, bwd, 0.5, &bubble) - (1 + 0.5 + 2 + 4 + 0.5 + 3)) < 1e-12);
	assert_true(fabs(bubble - (1 - 10.0 / 22)) < 1e-12);
	schedule_free(&s);
	/* The slowest stage works without a pause once it has begun. */
	s = table(SCHEDULE_1F1B, 3, 10);
	double f3[] = { 1, 5, 1 }, b3[] = { 1, 5, 1 };
	assert_true(fabs(schedule_simulate(&s, f3, b3, 0, NULL) - (1 + 100 + 2 + 1)) < 4.5);
	schedule_free(&s);
}

static void impossible_tables_are_refused(void **state)
{
	struct schedule s;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(schedule_build(SCHEDULE_1F1B, 0, 4, &s, &e), -1);
	assert_int_equal(schedule_build(SCHEDULE_1F1B, 4, 0, &s, &e), -1);
	assert_int_equal(schedule_build((enum job_schedule)7, 4, 4, &s, &e), -1);
	assert_int_equal(schedule_build(SCHEDULE_1F1B, 1024, 1 << 20, &s, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
}

/* Random damage: whatever the checker accepts can be simulated to its end. */
static void what_is_accepted_can_run(void **state)
{
	uint64_t at = 0;
	int accepted = 0;
	(void)state;
	for (int round = 0; round < 20000; round++) {
		uint32_t w[4], v[4];
		struct schedule s = table(kinds[round % 2], 3, 3);
		double one[] = { 1, 1, 1 };
		philox4(philox_key(2, PHILOX_TEST, 0), at++, w);
		philox4(philox_key(3, PHILOX_TEST, 0), at, v);
		struct sched_row *row = &s.rows[w[0] % 3];
		if (w[1] % 2)
			swap(&row->steps[w[2] % (unsigned)row->n], &row->steps[w[3] % (unsigned)row->n]);
		else
			row->steps[w[2] % (unsigned)row->n] = (struct sched_step){ (enum sched_op)(v[0] % 9), (int)(v[1] % 6) - 1 };
		if (!schedule_check(&s, NULL)) {
			assert_true(schedule_simulate(&s, one, one, 0, NULL) > 0);
			accepted++;
		}
		schedule_free(&s);
	}
	assert_true(accepted < 20000 / 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_table_passes_the_check),
		cmocka_unit_test(the_first_table_of_the_textbook),
		cmocka_unit_test(backwards_go_in_the_order_of_micro_batches),
		cmocka_unit_test(a_dropped_step_is_refused),
		cmocka_unit_test(a_wrong_micro_batch_is_refused),
		cmocka_unit_test(a_repeated_or_foreign_step_is_refused),
		cmocka_unit_test(swapped_dependent_steps_are_refused),
		cmocka_unit_test(a_deadlock_is_refused),
		cmocka_unit_test(messages_out_of_order_are_refused),
		cmocka_unit_test(the_bubble_is_the_textbooks),
		cmocka_unit_test(messages_and_slow_stages_cost_time),
		cmocka_unit_test(impossible_tables_are_refused),
		cmocka_unit_test(what_is_accepted_can_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
