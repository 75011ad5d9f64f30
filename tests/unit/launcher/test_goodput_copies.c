/* Tests to which step a simulated run goes back: the checkpoints and the copies in memory that a loss leaves. */
#include "tests/unit/launcher/goodput_checks.h"
#include "tests/unit/launcher/goodput_setup.h"
#include "tests/unit/patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <cmocka.h>

static void without_copies_a_loss_goes_back_to_the_checkpoint(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	s.rules.copy_every = 0;
	sum_runs(&s, 500, &sum);
	assert_true(sum.from_copies == 0);
	/* On average half of the interval, and the time to write. */
	assert_float_equal(sum.parts[GOODPUT_LOST] / sum.restarts, 100 + 20, 4);
}

static void wrong_numbers_go_back_to_before_they_began(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_NUMBERS, 16, 20 * hour, 0);
	const struct goodput_setup s = make_setup(&f);
	struct goodput_sum sum;
	sum_runs(&s, 500, &sum);
	assert_true(sum.from_copies == 0);
	assert_float_equal(sum.parts[GOODPUT_LOST] / sum.restarts, 100 + 20 + 30, 4);
}

/* Processes that do not outlive a loss lose their copies, unless the nodes keep them. */
static void copies_are_kept_by_processes_or_by_nodes(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.rules.warm = false;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.from_copies, 0);
	assert_float_equal(r.parts[GOODPUT_RESTART], (double)r.restarts * (0.2 + 30 + 20 + 10),
			   1e-6);
	s.rules.keeps = true;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.from_copies, r.restarts);
}

/* A copy that is no older than its own transfer does not count. */
static void copies_and_checkpoints_count_once_they_are_done(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_sum soon, late;
	s.rules.every = 0;
	sum_runs(&s, 300, &soon);
	s.costs.copy += 40;
	sum_runs(&s, 300, &late);
	assert_float_equal((late.parts[GOODPUT_LOST] - soon.parts[GOODPUT_LOST]) / late.restarts,
			   40, 2);
}

static void checkpoints_that_take_longer_than_their_interval_hold_up_training(void **state)
{
	(void)state;
	const struct goodput_faults none = { 0 };
	struct goodput_setup s = make_setup(&none);
	struct goodput_result r;
	s.rules.copy_every = 0;
	s.rules.every = 5;
	goodput_run(&s, 1, &r); /* 20 s to write, 10 s of steps */
	assert_float_equal(r.parts[GOODPUT_SAVING] / r.parts[GOODPUT_TRAINED], 1, 1e-3);
}

static double share_from_copies(const struct goodput_result *r)
{
	return (double)r->from_copies / (double)r->restarts;
}

static void the_copies_of_two_neighbours_are_lost_together(void **state)
{
	(void)state;
	/* The second fault comes before the next copy. With two nodes they are neighbours. */
	const struct goodput_faults f = only(SHOWS_CLOSED, 2, 60, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result two, many;
	s.nodes = s.replicas = 2;
	goodput_run(&s, 1, &two);
	const struct goodput_faults g = only(SHOWS_CLOSED, 64, 60, 0);
	s.nodes = s.replicas = 64;
	s.faults = &g;
	goodput_run(&s, 1, &many);
	/* Some losses come before the end of the recovery from the one before. */
	assert_true(share_from_copies(&many) > share_from_copies(&two) + 0.1);
	s.nodes = s.replicas = 1;
	goodput_run(&s, 1, &many);
	assert_int_equal(many.from_copies, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_copies_a_loss_goes_back_to_the_checkpoint),
		cmocka_unit_test(wrong_numbers_go_back_to_before_they_began),
		cmocka_unit_test(copies_are_kept_by_processes_or_by_nodes),
		cmocka_unit_test(copies_and_checkpoints_count_once_they_are_done),
		cmocka_unit_test(checkpoints_that_take_longer_than_their_interval_hold_up_training),
		cmocka_unit_test(the_copies_of_two_neighbours_are_lost_together),
	};
	alarm(PATIENCE_S); /* a run that does not end must not hold up the others */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
