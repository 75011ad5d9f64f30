/* Tests how often copies in memory are taken. */
#include "agent/engine/train/copy_pace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void steps(struct copy_pace *p, int n, double seconds, bool copying)
{
	for (int i = 0; i < n; i++)
		train_copy_pace_step(p, seconds, copying);
}

static void nothing_is_known_before_a_step_without_a_copy(void **state)
{
	struct copy_pace p = { 0 };
	(void)state;
	train_copy_pace_take(&p, 1);
	steps(&p, 3, 0.1, true);
	assert_int_equal(train_copy_pace_every(&p, 0.01), 0);
	steps(&p, 1, 0.1, false);
	assert_int_equal(train_copy_pace_every(&p, 0.01), 1000);
}

static void the_wait_is_spread_over_steps(void **state)
{
	struct copy_pace p = { 0 };
	(void)state;
	steps(&p, 5, 0.1, false);
	train_copy_pace_take(&p, 0.0099);
	assert_int_equal(train_copy_pace_every(&p, 0.01), 10);
	struct copy_pace cheap = { 0 };
	steps(&cheap, 5, 0.1, false);
	train_copy_pace_take(&cheap, 0.0001);
	assert_int_equal(train_copy_pace_every(&cheap, 0.01), 1);
}

static void slower_steps_count_too(void **state)
{
	struct copy_pace p = { 0 };
	(void)state;
	steps(&p, 5, 0.1, false);
	train_copy_pace_take(&p, 0.01);
	steps(&p, 2, 0.12, true); /* 0.04 s slower in all */
	train_copy_pace_take(&p, 0.01);
	assert_int_equal(train_copy_pace_every(&p, 0.0101), 50);
}

/* Steps that happen to be faster do not pay for the wait. */
static void faster_steps_do_not_count(void **state)
{
	struct copy_pace p = { 0 };
	(void)state;
	steps(&p, 5, 0.1, false);
	train_copy_pace_take(&p, 0.01);
	steps(&p, 2, 0.08, true);
	train_copy_pace_take(&p, 0.01);
	assert_int_equal(train_copy_pace_every(&p, 0.0101), 10);
}

static void one_outlier_does_not_end_the_copies(void **state)
{
	struct copy_pace p = { 0 };
	(void)state;
	steps(&p, 5, 0.1, false);
	for (int i = 0; i < 20; i++)
		train_copy_pace_take(&p, 0.001);
	train_copy_pace_take(&p, 5);
	for (int i = 0; i < 40; i++)
		train_copy_pace_take(&p, 0.001);
	assert_in_range(train_copy_pace_every(&p, 0.01), 1, 3);
}

static void rare_faults_make_copies_rare(void **state)
{
	struct copy_pace p = { 0 };
	(void)state;
	assert_int_equal(train_copy_pace_worth(&p, 1e6, 1000), 0);
	steps(&p, 5, 2, false);
	train_copy_pace_take(&p, 0.02);
	/* the square root of 2 * 0.02 s * 1e6 s is 200 s */
	assert_int_equal(train_copy_pace_worth(&p, 1e6, 100000), 100);
	assert_int_equal(train_copy_pace_worth(&p, 1e4, 100000), 10);
	assert_int_equal(train_copy_pace_worth(&p, 0.1, 100000), 1);
	/* Not more than a tenth of what could be lost. */
	assert_int_equal(train_copy_pace_worth(&p, 1e6, 400), 40);
	assert_int_equal(train_copy_pace_worth(&p, INFINITY, 70), 7);
	assert_int_equal(train_copy_pace_worth(&p, INFINITY, 3), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_known_before_a_step_without_a_copy),
		cmocka_unit_test(the_wait_is_spread_over_steps),
		cmocka_unit_test(slower_steps_count_too),
		cmocka_unit_test(faster_steps_do_not_count),
		cmocka_unit_test(rare_faults_make_copies_rare),
		cmocka_unit_test(one_outlier_does_not_end_the_copies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
