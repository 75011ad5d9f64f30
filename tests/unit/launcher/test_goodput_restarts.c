/* Tests how a simulated run counts its restarts: when it waits for a person, or longer each time. */
#include "tests/unit/launcher/goodput_checks.h"
#include "tests/unit/launcher/goodput_setup.h"
#include "tests/unit/patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <cmocka.h>

static void after_the_last_restart_a_person_begins_again(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 20 * hour, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.rules.restarts = 0;
	goodput_run(&s, 3, &r);
	assert_true(r.restarts > 5);
	assert_int_equal(r.people, r.restarts);
	assert_int_equal(r.from_copies, 0);
	assert_float_equal(r.parts[GOODPUT_PERSON], (double)r.people * 1800, 1801);
	s.rules.restarts = 3;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.people, r.restarts / 4);
}

/* A step takes longer than there is between two faults. */
static struct goodput_setup without_progress(const struct goodput_faults *f)
{
	struct goodput_setup s = make_setup(f);
	s.costs.step = 1000 * hour;
	s.rules.every = s.rules.copy_every = 0;
	return s;
}

static void restarts_without_progress_wait_longer_each_time(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 10 * hour, 0);
	struct goodput_setup s = without_progress(&f);
	struct goodput_result r;
	s.rules.backoff = 3;
	goodput_run(&s, 3, &r);
	assert_true(r.restarts > 10);
	assert_int_equal(r.restarts, r.all_faults);
	/* The first loss is not one of a restart, and the next ones wait for 3, 6, 12, 24, 48 and 60 s. */
	double waits = 3 + 6 + 12 + 24 + 48 + 60 * (double)(r.restarts - 6);
	assert_float_equal(r.parts[GOODPUT_RESTART], (double)r.restarts * (0.2 + 30 + 20) + waits,
			   1e-6);
	/* Steps are progress. */
	s.costs.step = 2;
	s.rules.every = 100;
	goodput_run(&s, 3, &r);
	assert_float_equal(r.parts[GOODPUT_RESTART], (double)r.restarts * (0.2 + 30 + 20), 1e-6);
}

static void too_many_restarts_without_progress_wait_for_a_person(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 10 * hour, 0);
	struct goodput_setup s = without_progress(&f);
	struct goodput_result r;
	s.seconds = 100 * day;
	s.rules.futile = 3;
	goodput_run(&s, 3, &r);
	assert_true(r.people > 30);
	/* The first generation, and three restarts. */
	assert_int_equal(r.people, r.restarts / 4);
	assert_int_equal(r.futile, r.people);
	assert_float_equal(r.parts[GOODPUT_PERSON], (double)r.people * 1800, 1e-6);
	s.costs.step = 2;
	s.rules.every = 100;
	goodput_run(&s, 3, &r);
	assert_int_equal(r.futile + r.people, 0);
	/* A planned stop starts another supervisor, too: few generations are lost between two of them. */
	struct goodput_faults often = f;
	often.n = 2;
	often.of[1] = (struct goodput_fault){ .shows = SHOWS_PLANNED, .rate = 20 * f.of[0].rate };
	s = without_progress(&often);
	s.seconds = 100 * day;
	s.rules.futile = 3;
	goodput_run(&s, 3, &r);
	assert_true(r.restarts > 100);
	assert_in_range(r.futile, 0, 1);
}

/* The next generation has not been started yet. */
static void faults_until_the_restart_belong_to_the_same_loss(void **state)
{
	(void)state;
	const struct goodput_faults f = only(SHOWS_CLOSED, 16, 10, 0);
	struct goodput_setup s = make_setup(&f);
	struct goodput_result r;
	s.seconds = day;
	s.costs.end = 300;
	s.rules.restarts = 1;
	goodput_run(&s, 3, &r);
	assert_true(r.all_faults > 5000);
	assert_int_equal(r.restarts, 1);
	check_sums(&s, &r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(after_the_last_restart_a_person_begins_again),
		cmocka_unit_test(restarts_without_progress_wait_longer_each_time),
		cmocka_unit_test(too_many_restarts_without_progress_wait_for_a_person),
		cmocka_unit_test(faults_until_the_restart_belong_to_the_same_loss),
	};
	alarm(PATIENCE_S); /* a run that does not end must not hold up the others */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
