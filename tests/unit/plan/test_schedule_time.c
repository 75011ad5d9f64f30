/* The time that the pipeline's tables take, by the formulas of the literature. */
#include "tests/unit/plan/tables.h"

#include "plan/spec/schedule/timeline.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_bubble_is_the_textbooks(void **state)
{
	(void)state;
	for (int p = 1; p <= 8; p++)
		for (int m = 1; m <= 20; m++) {
			double bubble;
			for (int gpipe = 0; gpipe < 2; gpipe++) {
				struct schedule s = table(gpipe ? SCHEDULE_GPIPE : SCHEDULE_1F1B, p,
							  m);
				near(simulate(&s, 1, 1, 1, 0, &bubble), 3.0 * (m + p - 1));
				near(bubble, (double)(p - 1) / (m + p - 1));
				schedule_free(&s);
			}
			struct schedule s = table(SCHEDULE_NAIVE, p, m);
			near(simulate(&s, 1, 1, 1, 0, &bubble), 3.0 * m * p);
			near(bubble, 1 - 1.0 / p);
			schedule_free(&s);
		}
}

/* Narayanan et al.: the ranks' idle time is 1f1b's divided by the number of chunks. This also holds
 * if pp does not divide the micro-batches. */
static void chunks_divide_the_bubble(void **state)
{
	(void)state;
	for (int chunks = 2; chunks <= 4; chunks++)
		for (int p = 1; p <= 8; p++)
			for (int m = p; m <= 3 * p + 2; m++) {
				struct schedule s = table_of(SCHEDULE_INTERLEAVED, p, chunks, m);
				near(simulate(&s, 1, 1, 1, 0, NULL),
				     3.0 * m + 3.0 * (p - 1) / chunks);
				schedule_free(&s);
			}
}

/* Qi et al.: (p - 1)(forward + input - weight), where 1f1b has (p - 1)(forward + input + weight).
 * If the three are equal, this is a third. */
static void zb_h1_has_a_third_of_the_bubble(void **state)
{
	static const double weights[] = { 0.5, 0.8, 1 };
	(void)state;
	for (int p = 1; p <= 8; p++)
		for (int m = p; m <= 3 * p + 2; m++) {
			struct schedule s = table(SCHEDULE_ZB_H1, p, m);
			for (int i = 0; i < 3; i++)
				near(simulate(&s, 1, 1, weights[i], 0, NULL),
				     m * (2 + weights[i]) + (p - 1) * (2 - weights[i]));
			schedule_free(&s);
		}
}

/* No rank waits between its first pass and its last. The remaining bubble is that the ranks begin
 * one after another, by half a rank's forward. */
static void zb_v_has_next_to_none(void **state)
{
	(void)state;
	for (int p = 1; p <= 8; p++)
		for (int m = 2 * p; m <= 4 * p; m++) {
			struct schedule s = table(SCHEDULE_ZB_V, p, m),
					one_f = table(SCHEDULE_1F1B, p, m);
			double bubble, of_1f1b;
			near(simulate(&s, 1, 1, 1, 0, &bubble), 3.0 * m + 0.5 * (p - 1));
			simulate(&one_f, 1, 1, 1, 0, &of_1f1b);
			assert_true(p == 1 || bubble < of_1f1b / 4);
			schedule_free(&s);
			schedule_free(&one_f);
		}
}

static void the_timeline_is_the_simulations(void **state)
{
	(void)state;
	for (int f = 0; f < n_forms; f++) {
		struct schedule s = table_of(forms[f].kind, 4, forms[f].chunks, 6);
		double f0[STAGES_MAX], i0[STAGES_MAX], w0[STAGES_MAX], bubble,
			clock[RANKS_MAX] = { 0 };
		for (int n = 0; n < STAGES_MAX; n++) {
			f0[n] = 1 + n % 3;
			i0[n] = 2;
			w0[n] = 0.5 * (1 + n % 2);
		}
		struct timeline t = { 0 };
		double end = schedule_simulate(
			&s,
			&(struct sched_costs){
				.forward = f0, .input = i0, .weight = w0, .hop = 0.25 },
			&t, &bubble);
		near(timeline_end(&t), end);
		near(timeline_idle(&t), bubble);
		assert_int_equal(t.n, 4 * 6 * forms[f].chunks *
					      (schedule_splits(forms[f].kind) ? 3 : 2));
		for (int n = 0; n < t.n; n++) {
			const struct timeline_event *v = &t.events[n];
			assert_true(v->begin >= clock[v->rank]);
			clock[v->rank] = v->end;
		}
		timeline_free(&t);
		schedule_free(&s);
	}
}

static void messages_and_slow_stages_cost_time(void **state)
{
	(void)state;
	struct schedule s = table(SCHEDULE_GPIPE, 2, 1);
	double fwd[] = { 1, 2 }, input[] = { 1, 1 }, weight[] = { 2, 3 }, bubble;
	near(schedule_simulate(
		     &s,
		     &(struct sched_costs){
			     .forward = fwd, .input = input, .weight = weight, .hop = 0.5 },
		     NULL, &bubble),
	     1 + 0.5 + 2 + 4 + 0.5 + 3);
	near(bubble, 1 - 10.0 / 22);
	schedule_free(&s);
	/* The slowest stage works without a pause after it has begun. */
	s = table(SCHEDULE_1F1B, 3, 10);
	double f3[] = { 1, 5, 1 }, i3[] = { .5, 2.5, .5 };
	assert_true(
		fabs(schedule_simulate(&s,
				       &(struct sched_costs){
					       .forward = f3, .input = i3, .weight = i3, .hop = 0 },
				       NULL, NULL) -
		     (1 + 100 + 2 + 1)) < 4.5);
	schedule_free(&s);
	/* The turn of the V needs no message: the way there and back has two hops fewer than the
	 * boundaries of four stages. */
	s = table(SCHEDULE_ZB_V, 2, 1);
	near(simulate(&s, 2, 2, 0, 10, NULL), 8 + 4 * 10);
	schedule_free(&s);
}

/* If ranks share cores, the others compute during the bubble of one. */
static void shared_cores_fill_the_bubbles(void **state)
{
	double one[] = { 1, 1, 1, 1 };
	(void)state;
	for (int f = 0; f < n_forms; f++) {
		if (forms[f].chunks > 1 || schedule_splits(forms[f].kind))
			continue;
		struct schedule s = table_of(forms[f].kind, 4, 1, 6);
		struct sched_costs costs = { .forward = one, .input = one, .weight = one };
		double alone = schedule_simulate(&s, &costs, NULL, NULL), bubble;
		/* With one core, all work is done one after another. */
		costs.load = 1;
		near(schedule_simulate(&s, &costs, NULL, &bubble), 4 * 6 * 3);
		/* Each rank has a core. */
		costs.load = 0.25;
		near(schedule_simulate(&s, &costs, NULL, &bubble), alone);
		/* Two cores: the step is no faster than the work and than the table, and no slower
		 * than the table on cores of half the speed. */
		costs.load = 0.5;
		double two = schedule_simulate(&s, &costs, NULL, NULL);
		assert_true(two >= fmax(alone, 36) - 1e-9 && two <= fmax(alone, 2 * alone - 9));
		/* Two nodes with a core each; two ranks are on each node. */
		costs.load = 1;
		costs.node_ranks = 2;
		double nodes = schedule_simulate(&s, &costs, NULL, NULL);
		assert_true(nodes >= two - 1e-9 && nodes <= 72 + 1e-9);
		schedule_free(&s);
	}
}

static void a_shared_pass_takes_longer_and_messages_still_take_their_time(void **state)
{
	(void)state;
	struct schedule s = table(SCHEDULE_GPIPE, 2, 2);
	struct timeline t = { 0 };
	double one[] = { 1, 1 }, none[] = { 0, 0 }, bubble;
	struct sched_costs costs = {
		.forward = one, .input = none, .weight = none, .hop = 0.5, .load = 1
	};
	/* Rank 0 computes from 0 to 1 alone, then with rank 1 from 1.5 on, at half the speed. Its
	 * second pass ends at 2.5. Rank 1's first pass has half left then and ends at 3. */
	near(schedule_simulate(&s, &costs, &t, &bubble), 4.5);
	assert_int_equal(t.n, 8);
	for (int i = 0; i < t.n; i++)
		if (t.events[i].rank == 1 && t.events[i].op == SCHED_FORWARD)
			near(t.events[i].end - t.events[i].begin, t.events[i].micro ? 1 : 1.5);
	near(bubble, 1 - 5.0 / (2 * 4.5));
	timeline_free(&t);
	schedule_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bubble_is_the_textbooks),
		cmocka_unit_test(chunks_divide_the_bubble),
		cmocka_unit_test(zb_h1_has_a_third_of_the_bubble),
		cmocka_unit_test(zb_v_has_next_to_none),
		cmocka_unit_test(the_timeline_is_the_simulations),
		cmocka_unit_test(messages_and_slow_stages_cost_time),
		cmocka_unit_test(shared_cores_fill_the_bubbles),
		cmocka_unit_test(a_shared_pass_takes_longer_and_messages_still_take_their_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
