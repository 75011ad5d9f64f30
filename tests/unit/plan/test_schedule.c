/* The pipeline's tables: the output of the generators. */
#include "tests/unit/plan/tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int least_of(int a, int b)
{
	return a < b ? a : b;
}

static void every_table_passes_the_check(void **state)
{
	(void)state;
	for (int f = 0; f < n_forms; f++)
		for (int pp = 1; pp <= RANKS_MAX; pp++)
			for (int micros = 1; micros <= 2 * RANKS_MAX + 2; micros++) {
				struct schedule s = table_of(forms[f].kind, pp, forms[f].chunks,
							     micros);
				must_pass(&s);
				for (int i = 0; i < pp; i++) {
					struct sched_slots slots;
					schedule_slots(forms[f].kind, &s.layout, micros, i, &slots);
					assert_memory_equal(&slots, &s.rows[i].slots, sizeof slots);
				}
				schedule_free(&s);
			}
}

static void every_table_of_forwards_passes_the_check(void **state)
{
	(void)state;
	for (int f = 0; f < n_forms; f++)
		for (int pp = 1; pp <= RANKS_MAX; pp++)
			for (int micros = 1; micros <= 2 * RANKS_MAX + 2; micros++) {
				struct schedule s;
				struct layout l = table_layout(forms[f].kind, pp, forms[f].chunks);
				assert_int_equal(schedule_build_forwards(&l, micros, &s, NULL), 0);
				must_pass(&s);
				for (int i = 0; i < pp; i++)
					for (int c = 0; c < l.chunks; c++)
						assert_int_equal(s.rows[i].slots.live[c], 1);
				/* The last rank waits for the first micro-batch and then works
				 * without a pause. The V has to bring its last micro-batch back. */
				if (micros >= pp)
					near(simulate(&s, l.chunks, 0, 0, 0, NULL),
					     micros * l.chunks + (l.vee ? 2 : 1) * (pp - 1));
				schedule_free(&s);
			}
}

/* The most micro-batches that a rank keeps, as a multiple of its share of the model. */
static double most_kept(const struct schedule *s)
{
	int most = 0;
	for (int i = 0; i < s->layout.pp; i++)
		most = s->rows[i].slots.most > most ? s->rows[i].slots.most : most;
	return (double)most / s->layout.chunks;
}

static void slots_are_the_textbooks(void **state)
{
	(void)state;
	for (int pp = 1; pp <= RANKS_MAX; pp++)
		for (int micros = 1; micros <= 20; micros++)
			for (int i = 0; i < pp; i++) {
				struct sched_slots slots;
				struct layout l = table_layout(SCHEDULE_1F1B, pp, 1);
				schedule_slots(SCHEDULE_NAIVE, &l, micros, i, &slots);
				assert_int_equal(slots.live[0], 1);
				schedule_slots(SCHEDULE_GPIPE, &l, micros, i, &slots);
				assert_int_equal(slots.live[0], micros);
				schedule_slots(SCHEDULE_1F1B, &l, micros, i, &slots);
				assert_int_equal(slots.live[0], least_of(pp - i, micros));
				schedule_slots(SCHEDULE_ZB_H1, &l, micros, i, &slots);
				assert_int_equal(slots.live[0], least_of(pp, micros));
			}
}

/* Zero bubble needs no more memory: neither at one time nor in slots, each of which belongs to one
 * chunk. */
static void zero_bubble_keeps_no_more_than_1f1b(void **state)
{
	(void)state;
	for (int pp = 1; pp <= RANKS_MAX; pp++)
		for (int micros = 1; micros <= 30; micros++) {
			struct schedule one_f = table(SCHEDULE_1F1B, pp, micros),
					h1 = table(SCHEDULE_ZB_H1, pp, micros);
			struct schedule v = table(SCHEDULE_ZB_V, pp, micros);
			assert_true(most_kept(&h1) <= most_kept(&one_f));
			assert_true(most_kept(&v) <= most_kept(&one_f));
			for (int i = 0; i < pp; i++)
				assert_true(v.rows[i].slots.live[0] + v.rows[i].slots.live[1] <=
					    2 * most_kept(&one_f));
			schedule_free(&one_f);
			schedule_free(&h1);
			schedule_free(&v);
		}
}

static void the_first_table_of_the_textbook(void **state)
{
	static const struct sched_step row[] = {
		/* the first of two stages, three micro-batches */
		{ SCHED_FORWARD, 0, 0 },  { SCHED_SEND_ACT, 0, 0 },  { SCHED_FORWARD, 0, 1 },
		{ SCHED_SEND_ACT, 0, 1 }, { SCHED_RECV_GRAD, 0, 0 }, { SCHED_BACKWARD, 0, 0 },
		{ SCHED_FORWARD, 0, 2 },  { SCHED_SEND_ACT, 0, 2 },  { SCHED_RECV_GRAD, 0, 1 },
		{ SCHED_BACKWARD, 0, 1 }, { SCHED_RECV_GRAD, 0, 2 }, { SCHED_BACKWARD, 0, 2 },
		{ SCHED_REDUCE, -1, -1 },
	};
	(void)state;
	struct schedule s = table(SCHEDULE_1F1B, 2, 3);
	must_be(&s, 0, row, sizeof row / sizeof *row);
	schedule_free(&s);
}

/* Nothing is sent at the turn of the V: stages 1 and 2 are both on the second rank. */
static void the_turn_of_the_v_sends_nothing(void **state)
{
	/* clang-format off */
	static const struct sched_step row[] = {
		{ SCHED_RECV_ACT, 0, 0 }, { SCHED_FORWARD, 0, 0 }, { SCHED_FORWARD, 1, 0 }, { SCHED_SEND_ACT, 1, 0 },
		{ SCHED_RECV_GRAD, 1, 0 }, { SCHED_BACKWARD_INPUT, 1, 0 }, { SCHED_BACKWARD_WEIGHT, 1, 0 },
		{ SCHED_BACKWARD_INPUT, 0, 0 }, { SCHED_SEND_GRAD, 0, 0 }, { SCHED_BACKWARD_WEIGHT, 0, 0 }, { SCHED_REDUCE, -1, -1 },
	};
	/* clang-format on */
	(void)state;
	struct schedule s = table(SCHEDULE_ZB_V, 2, 1);
	must_be(&s, 1, row, sizeof row / sizeof *row);
	schedule_free(&s);
}

/* Four ranks, two chunks, eight micro-batches: the last rank's row in figure 4 of arXiv
 * 2104.04473. */
static void the_interleaved_order_is_the_papers(void **state)
{
	static const int chunk[] = { 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1 };
	static const int micro[] = { 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7 };
	(void)state;
	struct schedule s = table(SCHEDULE_INTERLEAVED, 4, 8);
	for (int rank = 0; rank < 4; rank++) {
		int forwards = 0, backwards = 0, ahead = -1;
		for (int i = 0; i < s.rows[rank].n; i++) {
			const struct sched_step *step = &s.rows[rank].steps[i];
			if (step->op == SCHED_FORWARD) {
				assert_int_equal(step->chunk, chunk[forwards]);
				assert_int_equal(step->micro, micro[forwards++]);
			} else if (step->op == SCHED_BACKWARD) {
				ahead = ahead < 0 ? forwards : ahead;
				assert_int_equal(step->chunk, 1 - chunk[backwards]);
				assert_int_equal(step->micro, micro[backwards++]);
			}
		}
		assert_int_equal(ahead, 4 + 2 * (3 - rank) + 1);
	}
	schedule_free(&s);
}

/* Gradients are summed in the same order for every schedule. */
static void gradients_are_summed_in_the_order_of_micro_batches(void **state)
{
	(void)state;
	for (int f = 0; f < n_forms; f++) {
		struct schedule s = table_of(forms[f].kind, 4, forms[f].chunks, 7);
		for (int i = 0; i < 4; i++) {
			int next[4] = { 0 };
			for (int j = 0; j < s.rows[i].n; j++) {
				const struct sched_step *step = &s.rows[i].steps[j];
				if (step->op == SCHED_BACKWARD || step->op == SCHED_BACKWARD_WEIGHT)
					assert_int_equal(step->micro, next[step->chunk]++);
			}
			for (int c = 0; c < forms[f].chunks; c++)
				assert_int_equal(next[c], 7);
		}
		schedule_free(&s);
	}
}

static void words_are_written_and_read_back(void **state)
{
	(void)state;
	for (int op = 0; op < SCHED_OPS; op++)
		assert_int_equal(schedule_op_of(schedule_op_word((enum sched_op)op)), op);
	assert_string_equal(schedule_op_word(SCHED_RECV_GRAD), "recv-grad");
	assert_int_equal(schedule_op_of("sideways"), SCHED_OPS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_table_passes_the_check),
		cmocka_unit_test(every_table_of_forwards_passes_the_check),
		cmocka_unit_test(slots_are_the_textbooks),
		cmocka_unit_test(zero_bubble_keeps_no_more_than_1f1b),
		cmocka_unit_test(the_first_table_of_the_textbook),
		cmocka_unit_test(the_turn_of_the_v_sends_nothing),
		cmocka_unit_test(the_interleaved_order_is_the_papers),
		cmocka_unit_test(gradients_are_summed_in_the_order_of_micro_batches),
		cmocka_unit_test(words_are_written_and_read_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
