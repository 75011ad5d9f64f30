/* Tests when a run is restarted, after how long a wait, and when it is not. */
#include "launcher/supervise/restart.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static const struct fault crash = { .name = "crash", .retry = RETRY_NOW, .counts = true };
static const struct fault damaged = {
	.name = "damaged", .retry = RETRY_ONCE, .counts = true, .text = "it is damaged"
};
static const struct fault wrong = { .name = "wrong", .retry = RETRY_ONCE, .counts = true };
static const struct fault denied = { .name = "denied", .retry = RETRY_NEVER, .counts = true };
static const struct fault outage = { .name = "outage", .retry = RETRY_WAIT, .text = "away" };

static double now;

static bool lose_generation(struct restart *r, const struct fault *fault, double *wait,
			    struct err *e)
{
	*wait = -1;
	*e = (struct err)ERR_INIT;
	return supervise_restart_decide(r, fault, false, now, wait, e) &&
	       (supervise_restart_start(r), true);
}

static void restart_init(struct restart *r, int64_t max_restarts, int64_t max_futile,
			 double backoff)
{
	now = 1000;
	supervise_restart_init(r, &(struct restart_limits){ .max_restarts = max_restarts,
							    .max_futile = max_futile,
							    .backoff = backoff,
							    .patience = 100 });
}

static void the_first_restart_is_immediate(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 10, 3, 2);
	assert_true(lose_generation(&r, &crash, &wait, &e));
	assert_true(wait == 0);
	assert_int_equal(r.restarts, 1);
}

/* The decision may lead to a wait for nodes or to a requeue. */
static void a_restart_counts_when_it_starts(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 1, 9, 0);
	assert_true(supervise_restart_decide(&r, &crash, false, now, &wait, &e));
	assert_int_equal(r.restarts, 0);
	assert_true(supervise_restart_start(&r));
	assert_int_equal(r.restarts, 1);
	supervise_restart_go_on(&r);
	assert_false(supervise_restart_start(&r)); /* it grows: nothing was lost */
	assert_true(supervise_restart_decide(&r, &outage, false, now, &wait, &e));
	assert_false(supervise_restart_start(&r));
	assert_int_equal(r.restarts, 1);
	assert_false(supervise_restart_decide(&r, &crash, false, now, &wait, &e));
}

static void what_cannot_get_better_ends_the_run_at_once(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 10, 3, 2);
	supervise_restart_step(&r, 7); /* also after it had trained */
	assert_false(lose_generation(&r, &denied, &wait, &e));
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_int_equal(r.restarts, 0);
}

static void waits_double_without_progress(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 100, 50, 2);
	const double want[] = { 0, 2, 4, 8, 16, 32, 60, 60 };
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		supervise_restart_step(&r, 7); /* the same step each time: progress only once */
		assert_true(lose_generation(&r, &crash, &wait, &e));
		assert_true(wait == want[i]);
	}
	supervise_restart_step(&r, 8);
	assert_true(lose_generation(&r, &crash, &wait, &e));
	assert_true(wait == 0);
}

static void a_new_checkpoint_is_progress(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 100, 1, 2);
	supervise_restart_step(&r, 100);
	assert_true(lose_generation(&r, &crash, &wait, &e));
	supervise_restart_step(&r, 60); /* fewer steps than before, but more of them are saved */
	supervise_restart_ckpt(&r, 50);
	assert_true(lose_generation(&r, &crash, &wait, &e));
	assert_int_equal(r.futile, 0);
	supervise_restart_step(&r, 60);
	assert_false(lose_generation(&r, &crash, &wait, &e));
	assert_int_equal(e.code, ERR_ABORTED);
}

static void crash_loop_at_one_step_ends(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	int restarts = 0;
	restart_init(&r, 1000, 3, 0);
	for (;;) {
		supervise_restart_step(&r, 12);
		if (!lose_generation(&r, &crash, &wait, &e))
			break;
		restarts++;
		assert_true(restarts < 10);
	}
	assert_int_equal(restarts, 3);
}

static void max_restarts_also_limits_runs_with_progress(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 2, 3, 0);
	for (int i = 0; i < 2; i++) {
		supervise_restart_step(&r, 10 * (i + 1));
		assert_true(lose_generation(&r, &crash, &wait, &e));
	}
	supervise_restart_step(&r, 1000);
	assert_false(lose_generation(&r, &crash, &wait, &e));
	assert_int_equal(e.code, ERR_ABORTED);
}

static void lasting_failure_of_the_first_generation_ends_at_once(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 100, 100, 0);
	assert_false(lose_generation(&r, &damaged, &wait, &e));
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.text, "it is damaged"));
}

static void lasting_failure_of_a_later_one_is_tried_twice(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 100, 100, 0);
	supervise_restart_step(&r, 1);
	assert_true(lose_generation(&r, &crash, &wait, &e));
	assert_true(lose_generation(&r, &damaged, &wait, &e));
	assert_false(lose_generation(&r, &damaged, &wait, &e));
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.text, "it is damaged"));
}

static void lasting_failures_of_two_kinds_or_after_steps_are_retried(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 100, 100, 0);
	supervise_restart_step(&r, 1);
	assert_true(lose_generation(&r, &wrong, &wait, &e));
	assert_true(lose_generation(&r, &damaged, &wait, &e));
	assert_true(lose_generation(&r, &wrong, &wait, &e));
	assert_true(lose_generation(&r, &crash, &wait, &e)); /* another reason in between */
	assert_true(lose_generation(&r, &wrong, &wait, &e));
}

static void lasting_failure_after_steps_is_tried_once_more(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 100, 100, 0);
	supervise_restart_step(&r, 1);
	assert_true(lose_generation(&r, &wrong, &wait, &e));
	assert_false(lose_generation(&r, &wrong, &wait, &e));
	assert_int_equal(r.restarts, 1);
}

static void an_outage_is_waited_out_without_counting(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 1, 1, 2);
	const double want[] = { 1, 2, 4, 8, 15, 15, 15, 15 };
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		assert_true(lose_generation(&r, &outage, &wait, &e));
		assert_true(wait == want[i]);
		now += wait + 1; /* the attempt takes a second */
	}
	assert_int_equal(r.restarts, 0);
	assert_int_equal(r.futile, 0);
	assert_true(lose_generation(&r, &crash, &wait, &e)); /* the permitted restart is left */
	assert_int_equal(r.restarts, 1);
}

static void an_outage_ends_the_run_when_patience_is_over(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 100, 100, 2);
	assert_true(lose_generation(&r, &outage, &wait, &e));
	now += 97;
	assert_true(lose_generation(&r, &outage, &wait, &e));
	now += 2.5;
	assert_true(lose_generation(&r, &outage, &wait, &e));
	assert_true(wait == 0.5); /* never past its end */
	now += wait;
	assert_false(lose_generation(&r, &outage, &wait, &e));
	assert_int_equal(e.code, ERR_TIMEOUT);
	assert_non_null(strstr(e.text, "patience = 100 s"));
}

static void a_later_outage_has_all_the_patience_again(void **state)
{
	(void)state;
	struct restart r;
	struct err e;
	double wait;
	restart_init(&r, 100, 100, 2);
	assert_true(lose_generation(&r, &outage, &wait, &e));
	now += 90;
	supervise_restart_step(&r, 5);
	now += 90;
	assert_true(lose_generation(&r, &outage, &wait, &e));
	assert_true(wait == 1);
	now += 90;
	assert_true(lose_generation(&r, &crash, &wait, &e));
	now += 90;
	assert_true(lose_generation(&r, &outage, &wait, &e));
	assert_true(wait == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_restart_is_immediate),
		cmocka_unit_test(a_restart_counts_when_it_starts),
		cmocka_unit_test(what_cannot_get_better_ends_the_run_at_once),
		cmocka_unit_test(waits_double_without_progress),
		cmocka_unit_test(a_new_checkpoint_is_progress),
		cmocka_unit_test(crash_loop_at_one_step_ends),
		cmocka_unit_test(max_restarts_also_limits_runs_with_progress),
		cmocka_unit_test(lasting_failure_of_the_first_generation_ends_at_once),
		cmocka_unit_test(lasting_failure_of_a_later_one_is_tried_twice),
		cmocka_unit_test(lasting_failures_of_two_kinds_or_after_steps_are_retried),
		cmocka_unit_test(lasting_failure_after_steps_is_tried_once_more),
		cmocka_unit_test(an_outage_is_waited_out_without_counting),
		cmocka_unit_test(an_outage_ends_the_run_when_patience_is_over),
		cmocka_unit_test(a_later_outage_has_all_the_patience_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
