/* The properties of each schedule: its order, the bubble given in its paper, and the activations
 * that it keeps. */
#include "tests/unit/plan/tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void every_row_is_complete(void **state)
{
	(void)state;
	for (int kind = 0; kind < SCHEDULES; kind++) {
		const struct schedule_kind *k = schedule_kinds[kind];
		assert_true(k->list_passes && k->seconds && *schedule_words[kind]);
		assert_true(k->chunks_least >= 1 && k->chunks_most >= k->chunks_least &&
			    k->chunks_most <= LAYOUT_CHUNKS_MAX);
		assert_true(!k->vee || (k->chunks_least == 2 && k->chunks_most == 2));
		assert_in_range(k->complexity, 0, 3);
		for (int other = 0; other < kind; other++)
			assert_string_not_equal(schedule_words[kind], schedule_words[other]);
	}
	assert_null(schedule_words[SCHEDULES]);
}

/* --- breadth-first ------------------------------------------------------------ */

/* The first of two ranks with two chunks and two micro-batches: stages 0 and 2 of four. */
static void breadth_first_passes_a_chunk_before_the_next(void **state)
{
	/* clang-format off */
	static const struct sched_step row[] = {
		{ SCHED_FORWARD, 0, 0 }, { SCHED_SEND_ACT, 0, 0 }, { SCHED_FORWARD, 0, 1 }, { SCHED_SEND_ACT, 0, 1 },
		{ SCHED_RECV_ACT, 1, 0 }, { SCHED_FORWARD, 1, 0 }, { SCHED_SEND_ACT, 1, 0 },
		{ SCHED_RECV_ACT, 1, 1 }, { SCHED_FORWARD, 1, 1 }, { SCHED_SEND_ACT, 1, 1 },
		{ SCHED_RECV_GRAD, 1, 0 }, { SCHED_BACKWARD, 1, 0 }, { SCHED_SEND_GRAD, 1, 0 },
		{ SCHED_RECV_GRAD, 1, 1 }, { SCHED_BACKWARD, 1, 1 }, { SCHED_SEND_GRAD, 1, 1 },
		{ SCHED_RECV_GRAD, 0, 0 }, { SCHED_BACKWARD, 0, 0 }, { SCHED_RECV_GRAD, 0, 1 }, { SCHED_BACKWARD, 0, 1 },
		{ SCHED_REDUCE, -1, -1 },
	};
	/* clang-format on */
	(void)state;
	struct schedule s = table_of(SCHEDULE_BREADTH_FIRST, 2, 2, 2);
	must_be(&s, 0, row, sizeof row / sizeof *row);
	schedule_free(&s);
}

/* The last rank's passes with three ranks, two chunks and three micro-batches. */
static void breadth_first_runs_its_backward_passes_from_the_last_chunk(void **state)
{
	static const int chunk[] = { 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0 };
	static const int micro[] = { 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2 };
	(void)state;
	struct schedule s = table_of(SCHEDULE_BREADTH_FIRST, 3, 2, 3);
	int passes = 0;
	for (int i = 0; i < s.rows[2].n; i++) {
		const struct sched_step *step = &s.rows[2].steps[i];
		if (step->op != SCHED_FORWARD && step->op != SCHED_BACKWARD)
			continue;
		assert_int_equal(step->op, passes < 6 ? SCHED_FORWARD : SCHED_BACKWARD);
		assert_int_equal(step->chunk, chunk[passes]);
		assert_int_equal(step->micro, micro[passes++]);
	}
	assert_int_equal(passes, 12);
	schedule_free(&s);
}

/* Lamy-Poirier, section 3: looping divides the bubble by the number of chunks. With fewer
 * micro-batches than ranks, each loop waits until the first micro-batch comes round. */
static void breadth_first_has_the_bubble_of_looping(void **state)
{
	(void)state;
	for (int chunks = 2; chunks <= 4; chunks++)
		for (int p = 1; p <= 8; p++)
			for (int m = 1; m <= 3 * p + 2; m++) {
				struct schedule s = table_of(SCHEDULE_BREADTH_FIRST, p, chunks, m);
				double bubble, loops = (chunks - 1) * (m < p ? p : m),
					       expected = 3.0 * (loops + m + p - 1) / chunks;
				near(simulate(&s, 1, 1, 1, 0, &bubble), expected);
				near(bubble, 1 - 3.0 * m / expected);
				schedule_free(&s);
			}
}

static void breadth_first_keeps_every_activation(void **state)
{
	(void)state;
	for (int pp = 1; pp <= RANKS_MAX; pp++)
		for (int micros = 1; micros <= 20; micros++)
			for (int i = 0; i < pp; i++) {
				struct sched_slots slots;
				struct layout l = table_layout(SCHEDULE_BREADTH_FIRST, pp, 3);
				schedule_slots(SCHEDULE_BREADTH_FIRST, &l, micros, i, &slots);
				for (int c = 0; c < 3; c++)
					assert_int_equal(slots.live[c], micros);
				assert_int_equal(slots.most, 3 * micros);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_is_complete),
		cmocka_unit_test(breadth_first_passes_a_chunk_before_the_next),
		cmocka_unit_test(breadth_first_runs_its_backward_passes_from_the_last_chunk),
		cmocka_unit_test(breadth_first_has_the_bubble_of_looping),
		cmocka_unit_test(breadth_first_keeps_every_activation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
