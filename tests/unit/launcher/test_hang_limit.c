/* After how long a run counts as hung: learned for each phase from the time between two moves. */
#include "launcher/supervise/hang_limit.h"
#include "tests/unit/launcher/harness.h"

#define FLOOR 2.0
#define CAP   300.0

static struct hang_limit learned;

static int forget_all(void **state)
{
	(void)state;
	memset(&learned, 0, sizeof learned);
	return 0;
}

static void note_gaps(const char *phase, int n, double seconds)
{
	for (int i = 0; i < n; i++) {
		supervise_hang_note_gap(&learned, phase, seconds);
		supervise_hang_note_gap(&learned, phase, seconds / 1000); /* of another rank */
		supervise_hang_note_step(&learned);
	}
}

static double limit_of(const char *phase)
{
	return supervise_hang_limit_of(&learned, phase, FLOOR, CAP);
}

static void a_phase_that_is_not_known_has_the_longest_limit(void **state)
{
	(void)state;
	assert_true(limit_of("forward") == CAP);
	note_gaps("forward", HANG_STEPS_MIN - 1, 0.5);
	assert_true(limit_of("forward") == CAP);
	note_gaps("forward", 40, 0.5);
	assert_true(limit_of("forward") == HANG_FACTOR * 0.5);
	assert_true(limit_of("evaluation") == CAP);
	assert_true(limit_of("") == CAP);
}

static void the_limit_stays_between_floor_and_cap(void **state)
{
	(void)state;
	note_gaps("forward", 200, 0.001);
	note_gaps("checkpoint", 200, 100);
	assert_true(limit_of("forward") == FLOOR);
	assert_true(limit_of("checkpoint") == CAP);
}

/* One gap in a hundred may be any length; more of them count. */
static void rare_gaps_count_only_if_they_come_again(void **state)
{
	(void)state;
	for (int i = 0; i < HANG_STEPS; i++)
		note_gaps("data", 1, i == 10 || i == 200 ? 5 : 0.25);
	assert_true(limit_of("data") == HANG_FACTOR * 0.25);
	for (int i = 0; i < HANG_STEPS; i++)
		note_gaps("data", 1, i % 50 ? 0.25 : 5);
	assert_true(limit_of("data") == HANG_FACTOR * 5.0);
}

static void old_gaps_are_forgotten(void **state)
{
	(void)state;
	note_gaps("forward", HANG_STEPS, 4);
	note_gaps("forward", HANG_STEPS, 0.5);
	assert_true(limit_of("forward") == HANG_FACTOR * 0.5);
}

static void a_hang_that_was_found_too_early_doubles_the_floor(void **state)
{
	(void)state;
	note_gaps("forward", 200, 0.001);
	supervise_hang_note_hang(&learned, FLOOR, limit_of("forward"), CAP);
	assert_true(limit_of("forward") == 2 * FLOOR);
	supervise_hang_note_hang(&learned, FLOOR, limit_of("forward"), CAP);
	assert_true(limit_of("forward") == 4 * FLOOR);
	supervise_hang_note_hang(&learned, FLOOR, CAP, CAP); /* not a learned one */
	assert_true(limit_of("forward") == 4 * FLOOR);
}

static void a_thousand_phases_are_no_danger(void **state)
{
	char name[64];
	(void)state;
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "a long name of a phase, number %d", i);
		note_gaps(name, 200, 0.001);
	}
	assert_true(limit_of("another") == CAP);
}

/* Both ranks report progress each half second, and then none. */
static void a_run_that_stands_still_is_found_by_what_it_has_learned(void **state)
{
	(void)state;
	h.first.job.restart.hang_timeout = 300;
	h.first.job.restart.hang_floor = 5;
	supervise_start(h.supervisor);
	train_all();
	for (int i = 0; i < 300; i++) {
		for (int r = 0; r < WORLD; r++)
			send_step(&h.peers[r], MSG_PROGRESS, 4 + i);
		send_step(&h.peers[0], MSG_METRICS, 4 + i);
		pass_time(0.5);
	}
	pass_time(8);
	assert_int_equal(count_events("\"how\":\"hung\"", ""), 0);
	pass_time(3);
	assert_int_equal(count_events("\"how\":\"hung\"", "many times longer"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_phase_that_is_not_known_has_the_longest_limit, forget_all),
		cmocka_unit_test_setup(the_limit_stays_between_floor_and_cap, forget_all),
		cmocka_unit_test_setup(rare_gaps_count_only_if_they_come_again, forget_all),
		cmocka_unit_test_setup(old_gaps_are_forgotten, forget_all),
		cmocka_unit_test_setup(a_hang_that_was_found_too_early_doubles_the_floor,
				       forget_all),
		cmocka_unit_test_setup(a_thousand_phases_are_no_danger, forget_all),
		cmocka_unit_test_setup_teardown(
			a_run_that_stands_still_is_found_by_what_it_has_learned, setup, teardown),
	};
	return cmocka_run_group_tests_name("learned limits of a hang", tests, NULL, NULL);
}
