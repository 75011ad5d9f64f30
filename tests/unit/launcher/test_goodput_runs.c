/* Tests the simulated runs of `muster simulate`: on what their time goes, against what can be computed, and what must hold
 * for all. */
#include "base/random.h"
#include "tests/unit/launcher/goodput_checks.h"
#include "tests/unit/launcher/goodput_setup.h"
#include "tests/unit/patience.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <cmocka.h>

static void without_faults_only_the_start_and_the_snapshots_cost_time(void **state)
{
	(void)state;
	const struct goodput_faults none = { 0 };
	struct goodput_setup s = make_setup(&none);
	struct goodput_result r;
	s.seconds = 0;
	s.steps = 1000;
	goodput_run(&s, 1, &r);
	assert_int_equal(r.steps, 1000);
	assert_float_equal(r.parts[GOODPUT_START], 40, 1e-9);
	assert_float_equal(r.parts[GOODPUT_SAVING], 1000 * (0.1 / 100 + 0.1 / 5), 1e-6);
	assert_float_equal(r.seconds, 40 + 2000 + 21, 1e-6);
	assert_int_equal(r.all_faults, 0);
}

static void each_loss_costs_its_detection_and_its_restart(void **state)
{
	(void)state;
	static const struct {
		enum goodput_shows shows;
		double detection;
	} cases[] = { { SHOWS_CLOSED, 0.1 }, { SHOWS_SILENT, 15 }, { SHOWS_HANG, 65 } };
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct goodput_faults f = only(cases[i].shows, 16, 20 * hour, 0);
		const struct goodput_setup s = make_setup(&f);
		struct goodput_result r;
		goodput_run(&s, 3, &r);
		assert_true(r.restarts > 5);
		assert_float_equal(r.parts[GOODPUT_DETECT], (double)r.restarts * cases[i].detection,
				   1e-6);
		assert_int_equal(r.from_copies, r.restarts);
		assert_float_equal(r.parts[GOODPUT_RESTART], (double)r.restarts * (0.2 + 30 + 2),
				   1e-6);
		/* At most what is between two copies, the time of one, and the step in flight. */
		assert_true(r.parts[GOODPUT_LOST] < (double)r.restarts * (5 * 2.1 + 1 + 2.1));
		check_sums(&s, &r);
	}
}

static void a_planned_stop_loses_no_step(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_PLANNED, 16, 20 * hour, 0);
	const struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	goodput_run(&s, 5, &r);
	assert_true(r.all_faults > 5);
	assert_int_equal(r.restarts, 0);
	assert_true(r.parts[GOODPUT_LOST] < (double)(r.all_faults + 1) * 2.1);
	assert_float_equal(r.parts[GOODPUT_START],
			   40 + (double)r.all_faults * (0.1 + 20 + 10 + 30 + 20), 1e-6);
}

static void wrong_numbers_that_nobody_finds_cost_no_time(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_NUMBERS, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.costs.numbers = INFINITY;
	goodput_run(&s, 3, &r);
	assert_true(r.all_faults > 5);
	assert_int_equal(r.restarts, 0);
	check_sums(&s, &r);
}

static void a_hang_that_nobody_finds_ends_the_work(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_HANG, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.costs.hang = INFINITY;
	goodput_run(&s, 3, &r);
	assert_true(r.parts[GOODPUT_DETECT] > 5 * day);
	check_sums(&s, &r);
	s.seconds = 0;
	goodput_run(&s, 3, &r);
	assert_true(r.endless);
}

/* The time of a step may be less than what can be added to the time of the run. */
static void tiny_steps_after_huge_costs_are_done_all_the_same(void **state)
{
	(void)state;
	const struct goodput_faults none = { 0 };
	struct goodput_setup s = make_setup(&none);
	struct goodput_result r;
	s.seconds = 0;
	s.steps = 3000;
	s.costs.step = 1e-7;
	s.costs.start = s.costs.respawn = 1e9;
	goodput_run(&s, 1, &r);
	assert_int_equal(r.steps, 3000);
}

static void the_same_seed_gives_the_same_faults(void **state)
{
	(void)state;
	struct goodput_faults llama;
	assert_int_equal(goodput_faults_open("llama3", &llama, NULL), 0);
	struct goodput_setup s = make_setup(&llama);
	struct goodput_result a, b;
	s.nodes = s.replicas = 2048;
	goodput_run(&s, 9, &a);
	goodput_run(&s, 9, &b);
	assert_memory_equal(&a, &b, sizeof a);
	s.costs.respawn *= 2;
	goodput_run(&s, 9, &b);
	assert_true(goodput_effective(&b) < goodput_effective(&a));
	assert_in_range(b.all_faults, a.all_faults - 3, a.all_faults + 3);
	goodput_run(&s, 10, &b);
	assert_memory_not_equal(&a, &b, sizeof a);
}

/* Of any setup: the parts add up, and a run of given length has it. */
static void the_parts_add_up_whatever_happens(void **state)
{
	(void)state;
	struct goodput_faults f;
	assert_int_equal(goodput_faults_open("llama3", &f, NULL), 0);
	for (uint64_t seed = 1; seed <= 400; seed++) {
		struct random_stream r;
		struct goodput_result out;
		struct goodput_setup s = make_setup(&f);
		random_init(&r, seed, 1);
		for (int i = 0; i < f.n; i++)
			f.of[i].rate = exp(random_between(&r, -25, -9));
		f.of[0].blames = random_chance(&r, 0.5);
		for (int i = 0; i < GOODPUT_COST_COUNT; i++)
			*goodput_cost(&s.costs, i) *= exp(random_between(&r, -3, 3));
		s.nodes = 1 + random_below(&r, 40);
		s.replicas = random_chance(&r, 0.5) ? 8 * s.nodes : 1 + random_below(&r, s.nodes);
		s.spares = random_below(&r, 5);
		s.seconds = random_chance(&r, 0.7) ? s.seconds : 0;
		s.steps = 20000;
		s.rules.warm = random_chance(&r, 0.5);
		s.rules.keeps = random_chance(&r, 0.3);
		s.rules.shrinks = random_chance(&r, 0.5);
		s.rules.regrows = random_chance(&r, 0.5);
		s.rules.requeues = random_chance(&r, 0.5);
		s.rules.leaves_slow = random_chance(&r, 0.5);
		s.rules.restarts = random_below(&r, 30) - 1;
		s.rules.futile = random_below(&r, 4);
		s.rules.backoff = random_below(&r, 3);
		s.rules.exclude_after = random_below(&r, 3);
		s.rules.every = random_below(&r, 300);
		s.rules.copy_every = random_below(&r, 20);
		goodput_run(&s, seed, &out);
		if (out.endless)
			continue;
		check_sums(&s, &out);
		check_timeline(&s, seed, &out);
		if (s.seconds <= 0)
			assert_int_equal(out.steps, s.steps);
	}
}

static void a_run_that_loses_more_than_it_does_has_no_end(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 10, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.seconds = 0;
	s.steps = 1000;
	goodput_run(&s, 1, &r);
	assert_true(r.endless);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_faults_only_the_start_and_the_snapshots_cost_time),
		cmocka_unit_test(each_loss_costs_its_detection_and_its_restart),
		cmocka_unit_test(a_planned_stop_loses_no_step),
		cmocka_unit_test(wrong_numbers_that_nobody_finds_cost_no_time),
		cmocka_unit_test(a_hang_that_nobody_finds_ends_the_work),
		cmocka_unit_test(tiny_steps_after_huge_costs_are_done_all_the_same),
		cmocka_unit_test(the_same_seed_gives_the_same_faults),
		cmocka_unit_test(the_parts_add_up_whatever_happens),
		cmocka_unit_test(a_run_that_loses_more_than_it_does_has_no_end),
	};
	alarm(PATIENCE_S); /* a run that does not end must not hold up the others */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
