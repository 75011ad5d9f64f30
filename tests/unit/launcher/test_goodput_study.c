/* Tests what many simulated runs say: their means, the settings that are best, and how many runs a report needs. */
#include "launcher/goodput/report.h"
#include "plan/cost/train_time.h"
#include "tests/unit/launcher/goodput_checks.h"
#include "tests/unit/launcher/goodput_setup.h"
#include "tests/unit/patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* Daly's equation (20), which plan/cost/train_time.h computes. */
static void the_mean_is_that_of_dalys_formula(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	struct train_time expected;
	s.seconds = 0;
	s.steps = 20000;
	s.costs.step = 1;
	s.costs.snapshot = 5;
	s.costs.write = s.costs.closed = s.costs.start = 0;
	s.rules.copy_every = 0;
	const struct train_costs costs = { .step = 1,
					   .snapshot = 5,
					   .restart = s.costs.end + s.costs.respawn + s.costs.load,
					   .mtbf = hour };
	cost_train_expect(&costs, s.steps, s.rules.every, &expected);
	sum_runs(&s, 3000, &sum);
	/* The first start is not in the formula. */
	assert_float_equal((sum.seconds - s.costs.respawn) / expected.total, 1, 0.005);
	assert_float_equal(sum.all_faults / expected.failures, 1, 0.02);
}

static void low_and_high_leave_out_a_tenth_of_the_runs(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 2 * day, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	int below = 0, above = 0;
	s.rules.copy_every = 0;
	sum_runs(&s, 101, &sum);
	for (uint64_t seed = 1; seed <= 101; seed++) {
		struct goodput_result r;
		goodput_run(&s, seed, &r);
		below += goodput_effective(&r) < sum.low;
		above += goodput_effective(&r) > sum.high;
	}
	assert_int_equal(below, 5);
	assert_int_equal(above, 5);
}

static void too_many_faults_are_refused(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 100, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	struct err e = ERR_INIT;
	s.seconds = 300 * day;
	assert_int_equal(
		goodput_sum(&s, &(struct goodput_plan){ .runs = 100, .seed = 1 }, &sum, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "give fewer --runs"));
}

static void the_best_interval_is_as_good_as_dalys(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 6 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	const struct goodput_plan p = { .runs = 200, .seed = 1 };
	struct goodput_advice best;
	struct goodput_sum daly;
	s.costs.snapshot = 5;
	s.costs.write = 0;
	s.rules.copy_every = 0;
	const struct train_costs costs = {
		.step = 2, .snapshot = 5, .restart = 50, .mtbf = 6 * hour
	};
	assert_int_equal(goodput_advise(&s, &p, &best, NULL), 0);
	s.rules.every = cost_train_interval(&costs, 1000000);
	assert_int_equal(goodput_sum(&s, &p, &daly, NULL), 0);
	assert_true(best.sum.effective > daly.effective - 0.001);
	assert_in_range(best.every, s.rules.every / 3, s.rules.every * 3);
	assert_int_equal(best.spares, 0); /* no node is ever away */
	assert_int_equal(best.copy_every, 0);
}

static void too_few_faults_give_no_advice(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 3000 * day, 0);
	const struct goodput_setup s = make_setup(&f);
	struct goodput_advice best;
	assert_int_equal(
		goodput_advise(&s, &(struct goodput_plan){ .runs = 5, .seed = 1 }, &best, NULL), 0);
	assert_false(best.known);
}

static void note_done(const struct goodput_watch *w)
{
	*(int64_t *)w->arg = w->done;
}

/* A line of progress shows the share of all runs. */
static void the_number_of_runs_is_known_before(void **state)
{
	(void)state;
	struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_report *r = calloc(1, sizeof *r);
	f.of[0].blames = true;
	for (int i = 0; i < 4; i++) {
		int64_t told = 0;
		struct goodput_watch w = { .show = note_done, .arg = &told };
		*r = (struct goodput_report){ .job = "job",
					      .cluster = "cluster",
					      .setup = make_setup(&f),
					      .plan = { .runs = 3, .seed = 1, .watch = &w } };
		r->setup.seconds = i & 1 ? 10 * day : 0;
		r->setup.steps = 10000;
		r->setup.rules.copy_every = i & 2 ? 5 : 0;
		r->setup.rules.exclude_after = 2;
		assert_int_equal(goodput_report_make(r, NULL), 0);
		assert_true(w.all > 300);
		assert_int_equal(w.done, w.all);
		assert_int_equal(told, w.all);
		goodput_report_close(r);
	}
	free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_mean_is_that_of_dalys_formula),
		cmocka_unit_test(low_and_high_leave_out_a_tenth_of_the_runs),
		cmocka_unit_test(too_many_faults_are_refused),
		cmocka_unit_test(the_best_interval_is_as_good_as_dalys),
		cmocka_unit_test(too_few_faults_give_no_advice),
		cmocka_unit_test(the_number_of_runs_is_known_before),
	};
	alarm(PATIENCE_S); /* a run that does not end must not hold up the others */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
