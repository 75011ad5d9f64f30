/* Slow ranks, and ranks that stood still, are named. The agents and their clocks are doubles. */
#include "tests/unit/launcher/harness.h"

#define STEP_S 0.1

static double own[WORLD], delay[WORLD], stalled[WORLD]; /* sums that the ranks report */
static int64_t done;

static int setup_watch(void **state)
{
	memset(own, 0, sizeof own);
	memset(delay, 0, sizeof delay);
	memset(stalled, 0, sizeof stalled);
	done = 0;
	if (setup(state))
		return -1;
	h.first.job.health.slow_factor = 1.5;
	h.first.job.health.slow_window = 10;
	h.first.job.health.pause = 2;
	h.ranks[1].at.pp = h.ranks[0].at.pp; /* peers */
	supervise_start(h.supervisor);
	train_all();
	pass_time(0.1);
	return 0;
}

static void report_progress(int rank)
{
	send_message(&h.peers[rank], MSG_PROGRESS,
		     msg_progress_json(&(struct msg_progress){ .step = done,
							       .phase = "forward",
							       .count = done,
							       .done = done,
							       .own_s = own[rank],
							       .delay_s = delay[rank],
							       .stalled_s = stalled[rank] }));
}

/* Trains; in each second rank 1 spends `factor` times as long on its own work as rank 0, and waits for a
 * core for `wait` seconds. */
static void train(int seconds, double factor, double wait)
{
	for (int i = 0; i < 2 * seconds; i++) {
		done += 2;
		own[0] += 2 * STEP_S;
		own[1] += 2 * STEP_S * factor;
		delay[1] += wait / 2;
		for (int r = 0; r < WORLD; r++)
			report_progress(r);
		pass_time(0.5);
	}
}

static void equal_ranks_are_not_named(void **state)
{
	(void)state;
	train(120, 1.4, 0);
	assert_int_equal(count_events("\"slow-rank\"", ""), 0);
}

static void a_slow_rank_is_named_after_three_windows_and_once(void **state)
{
	(void)state;
	train(25, 2, 0);
	assert_int_equal(count_events("\"slow-rank\"", ""), 0);
	train(92, 2, 0);
	assert_int_equal(count_events("\"slow-rank\"", "\"rank\":1"), 1);
	assert_int_equal(count_events("\"slow-rank\"", "it has its cores"), 1);
}

static void the_reason_is_said_if_others_use_its_cores(void **state)
{
	(void)state;
	train(60, 2, 0.5);
	assert_int_equal(count_events("\"slow-rank\"", "waited for a core for"), 1);
}

static void the_reason_is_said_if_its_process_is_stopped_at_times(void **state)
{
	(void)state;
	for (int i = 0; i < 60; i++) {
		stalled[1] += 0.4;
		train(1, 2, 0.3);
	}
	assert_int_equal(count_events("\"slow-rank\"", "its process did not run at all for"), 1);
}

static void a_slow_window_now_and_then_is_no_straggler(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		train(20, 2, 0);
		train(12, 1, 0);
	}
	assert_int_equal(count_events("\"slow-rank\"", ""), 0);
}

static void a_rank_that_is_fast_again_is_reported(void **state)
{
	(void)state;
	train(60, 2, 0);
	train(60, 1, 0);
	assert_int_equal(count_events("\"slow-rank\"", "\"slow\":true"), 1);
	assert_int_equal(count_events("\"slow-rank\"", "\"slow\":false"), 1);
	train(60, 3, 0);
	assert_int_equal(count_events("\"slow-rank\"", "\"slow\":true"), 2);
}

/* The difference is large in proportion, but hardly delays a step: most of it is waiting. */
static void a_difference_that_costs_nothing_is_not_named(void **state)
{
	(void)state;
	for (int i = 0; i < 90; i++) {
		done += 4;
		own[0] += 0.01;
		own[1] += 0.05;
		for (int r = 0; r < WORLD; r++)
			report_progress(r);
		pass_time(1);
	}
	assert_int_equal(count_events("\"slow-rank\"", ""), 0);
}

/* Each rank is a stage of its own: the only comparison is with its own past. */
static void a_rank_without_peers_stays_slow(void **state)
{
	(void)state;
	h.ranks[1].at.pp = h.ranks[0].at.pp + 1;
	supervise_close(h.supervisor);
	assert_int_equal(open_supervisor(&fake_ops), 0);
	supervise_start(h.supervisor);
	train_all();
	pass_time(0.1);
	train(200, 1, 0);
	train(400, 2, 0);
	assert_int_equal(count_events("\"slow-rank\"", "times as long per step as before"), 1);
	assert_int_equal(count_events("\"slow-rank\"", "\"slow\":false"), 0);
}

static void with_factor_0_no_rank_is_named(void **state)
{
	(void)state;
	h.first.job.health.slow_factor = 0;
	train(60, 5, 0);
	assert_int_equal(count_events("\"slow-rank\"", ""), 0);
}

/* Rank 1 is silent while rank 0 goes on. pass_time() would be a gap of the supervisor itself. */
static void be_silent(double seconds)
{
	for (double end = h.now + seconds; h.now < end;) {
		report_progress(0);
		pass_time(0.5);
	}
	report_progress(1);
	deliver_all();
}

static void a_rank_that_stood_still_is_named(void **state)
{
	(void)state;
	train(5, 1, 0);
	be_silent(0.5);
	assert_int_equal(count_events("\"rank-paused\"", ""), 0);
	be_silent(3);
	assert_int_equal(count_events("\"rank-paused\"", "\"rank\":1"), 1);
	be_silent(3); /* said already in this minute */
	assert_int_equal(count_events("\"rank-paused\"", ""), 1);
	train(61, 1, 0);
	be_silent(4);
	assert_int_equal(count_events("\"rank-paused\"", "\"rank\":1"), 2);
}

static void a_pause_of_the_supervisor_is_nobodys(void **state)
{
	(void)state;
	train(5, 1, 0);
	h.now += 5;
	supervise_tick(h.supervisor);
	report_progress(0);
	report_progress(1);
	deliver_all();
	assert_int_equal(count_events("\"rank-paused\"", ""), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WATCH_TEST(f) cmocka_unit_test_setup_teardown(f, setup_watch, teardown)
		WATCH_TEST(equal_ranks_are_not_named),
		WATCH_TEST(a_slow_rank_is_named_after_three_windows_and_once),
		WATCH_TEST(the_reason_is_said_if_others_use_its_cores),
		WATCH_TEST(the_reason_is_said_if_its_process_is_stopped_at_times),
		WATCH_TEST(a_slow_window_now_and_then_is_no_straggler),
		WATCH_TEST(a_rank_that_is_fast_again_is_reported),
		WATCH_TEST(a_difference_that_costs_nothing_is_not_named),
		WATCH_TEST(a_rank_without_peers_stays_slow),
		WATCH_TEST(with_factor_0_no_rank_is_named),
		WATCH_TEST(a_rank_that_stood_still_is_named),
		WATCH_TEST(a_pause_of_the_supervisor_is_nobodys),
	};
	return cmocka_run_group_tests_name("slow ranks", tests, NULL, NULL);
}
