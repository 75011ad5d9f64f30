/* Tests when a program that reports steps counts as idle or hung, and after which step it stops. */
#include "tests/unit/launcher/program_run.h"

#include <math.h>

/* Both ranks have reported their first step. */
static void start_steps(void)
{
	start_run();
	for (int i = 0; i < WORLD; i++) {
		begin(i, 0, 5);
		work(i, 1, 1);
	}
	send_step(&h.peers[1], MSG_METRICS, 1);
}

/* The step `step` is done after so many seconds, in which the agents are alive. */
static void do_step(int64_t step, double seconds)
{
	for (double end = h.now + seconds - 0.01; h.now < end;) {
		work(0, step - 1, step - 1);
		work(1, step - 1, step - 1);
		pass_time(fmin(end - h.now, 1));
	}
	for (int i = 0; i < WORLD; i++)
		work(i, step, step);
	send_step(&h.peers[1], MSG_METRICS, step);
}

/* The task of the rank computes or prints, and reports no step. */
static void compute(int rank, int64_t step, int64_t active)
{
	send_message(&h.peers[rank], MSG_PROGRESS,
		     msg_progress_json(&(struct msg_progress){ .step = step,
							       .phase = "running",
							       .count = step,
							       .done = step,
							       .active = active }));
}

/* --- idle and hung ranks --------------------------------------------------------------------- */

static void a_rank_that_computes_after_its_last_step_is_not_idle(void **state)
{
	(void)state;
	h.first.job.program.exit_timeout = 10;
	start_steps();
	send_step(&h.peers[1], MSG_FINISHED, 1);
	for (int i = 0; i < 30; i++) { /* it evaluates */
		compute(0, 1, i + 1);
		pass_time(1);
	}
	assert_int_equal(count_events("rank-lost", ""), 0);
	for (int i = 0; i < 11; i++) { /* it only waits */
		compute(0, 1, 30);
		pass_time(1);
	}
	assert_int_equal(count_events("rank-lost", "1 of 1 others still run"), 1);
}

static void a_rank_that_computes_is_not_named_idle(void **state)
{
	(void)state;
	start_steps();
	for (int i = 0; i < 150; i++) { /* hang_timeout is 60 */
		work(0, i + 2, i + 2);
		compute(1, 1, i + 1);
		pass_time(1);
	}
	assert_int_equal(printed("has used no CPU and printed nothing"), 0);
}

/* A program has one phase for all that it does, so nothing is learned from its steps. */
static void an_evaluation_may_take_as_long_as_hang_timeout(void **state)
{
	(void)state;
	h.first.job.restart.hang_floor = 1;
	start_steps();
	for (int step = 2; step < 60; step++)
		do_step(step, 0.1);
	for (int i = 0; i < 55; i++) {
		compute(0, 59, i + 1);
		compute(1, 59, i + 1);
		pass_time(1);
	}
	assert_int_equal(count_events("rank-lost", ""), 0);
	for (int i = 0; i < 10; i++) { /* but that it computes is no progress */
		compute(0, 59, i + 100);
		compute(1, 59, i + 100);
		pass_time(1);
	}
	assert_int_equal(count_events("\"how\":\"hung\"", ""), 1);
}

/* --- the step after which all ranks stop -------------------------------------------------------- */

static int64_t stop(void)
{
	supervise_stop(h.supervisor, "Terminated", false);
	deliver_all();
	assert_true(h.peers[0].stopped && h.peers[1].stopped);
	assert_int_equal(h.peers[1].at_step, h.peers[0].at_step);
	return h.peers[0].at_step;
}

/* 2 seconds of steps, and the one that a rank may be in. */
static void a_stop_names_a_step_that_no_rank_finishes_before_it_hears_of_it(void **state)
{
	(void)state;
	start_steps();
	for (int step = 2; step <= 31; step++)
		do_step(step, 0.1);
	int64_t at = stop();
	assert_true(at >= 31 + 20 && at <= 31 + 25);
	all_finish();
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void the_first_steps_count_before_2_seconds_have_passed(void **state)
{
	(void)state;
	start_steps();
	for (int step = 2; step <= 6; step++)
		do_step(step, 0.1);
	assert_true(stop() >= 6 + 20);
}

/* Nothing is known of the next step, and it may take minutes. */
static void after_the_first_step_one_more_is_left(void **state)
{
	(void)state;
	start_run();
	begin(0, 70, 5);
	begin(1, 70, 5);
	pass_time(0.2); /* the message about the step itself comes a little later */
	work(0, 71, 1);
	work(1, 71, 1);
	pass_time(0.2);
	assert_int_equal(stop(), 71 + 2);
}

static void steps_after_an_evaluation_are_as_fast_as_before(void **state)
{
	(void)state;
	start_steps();
	for (int step = 2; step <= 31; step++)
		do_step(step, 0.1);
	do_step(32, 10);
	assert_true(stop() >= 32 + 15);
}

static void of_steps_of_40_seconds_one_more_is_left(void **state)
{
	(void)state;
	start_steps();
	for (int step = 2; step <= 4; step++)
		do_step(step, 40);
	assert_int_equal(stop(), 4 + 2);
	assert_true(h.peers[0].reach_s >= 40); /* the program is not signalled before */
	all_finish();
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void a_program_without_steps_stops_at_once(void **state)
{
	(void)state;
	start_run();
	supervise_stop(h.supervisor, "Terminated", false);
	deliver_all();
	assert_true(h.peers[0].stopped);
	assert_int_equal(h.peers[0].at_step, 0);
	assert_int_equal(printed("the tasks are asked to save and exit"), 1);
	all_finish();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(printed("the same command starts the program again"), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_program, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_rank_that_computes_after_its_last_step_is_not_idle),
		TEST(a_rank_that_computes_is_not_named_idle),
		TEST(an_evaluation_may_take_as_long_as_hang_timeout),
		TEST(a_stop_names_a_step_that_no_rank_finishes_before_it_hears_of_it),
		TEST(the_first_steps_count_before_2_seconds_have_passed),
		TEST(after_the_first_step_one_more_is_left),
		TEST(steps_after_an_evaluation_are_as_fast_as_before),
		TEST(of_steps_of_40_seconds_one_more_is_left),
		TEST(a_program_without_steps_stops_at_once),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
