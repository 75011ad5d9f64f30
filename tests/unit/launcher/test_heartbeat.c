/* In a large world heartbeats are rarer, and what is judged by them waits longer. The world of these
 * tests is small, and the limit on the heartbeats of all ranks is as well. */
#include "launcher/supervise/heartbeat.h"
#include "tests/unit/launcher/harness.h"

#define HEARTBEAT_S 2.5 /* of the two ranks: 2 s more than in a small world */

static int64_t counts[WORLD];

static int setup_rare(void **state)
{
	if (setup(state))
		return -1;
	supervise_close(h.supervisor);
	h.heartbeats = WORLD / HEARTBEAT_S;
	h.first.job.health.slow_factor = 1.5;
	h.first.job.health.slow_window = 10;
	h.first.job.health.pause = 2;
	return open_supervisor(&fake_ops);
}

static void begin_training(void)
{
	supervise_start(h.supervisor);
	train_all();
}

/* moves: the trainer has done something since its last message. */
static void beat(int rank, int64_t step, bool moves)
{
	counts[rank] += moves;
	send_message(&h.peers[rank], MSG_PROGRESS,
		     msg_progress_json(&(struct msg_progress){
			     .step = step, .phase = "forward", .count = counts[rank] }));
}

static double interval(double silent, int world)
{
	struct supervise_limits l = SUPERVISE_LIMITS;
	l.silent = silent;
	return supervise_heartbeat(&l, world);
}

static void all_ranks_together_send_a_limited_number(void **state)
{
	(void)state;
	assert_float_equal(interval(15, 1), 0.5, 1e-9);
	assert_float_equal(interval(15, 2000), 0.5, 1e-9);
	assert_float_equal(interval(15, 4000), 1, 1e-9);
	assert_float_equal(interval(15, 10000), 2.5, 1e-9);
}

static void a_silent_rank_has_missed_several(void **state)
{
	(void)state;
	assert_float_equal(interval(15, 100000), 2.5, 1e-9);
	assert_float_equal(interval(60, 100000), 10, 1e-9);
	assert_float_equal(interval(1, 100000), 0.5,
			   1e-9); /* it cannot be rarer than in a small world */
}

static void agents_are_told_the_interval(void **state)
{
	(void)state;
	begin_training();
	assert_float_equal(h.peers[0].heartbeat_s, HEARTBEAT_S, 1e-9);
}

/* Rank 0 sends all the time, and rank 1 once in so many seconds. */
static void beat_once_in(double seconds)
{
	for (double end = h.now + seconds; h.now < end;) {
		beat(0, 1, true);
		pass_time(0.5);
	}
	beat(1, 1, true);
}

static void the_time_between_two_heartbeats_is_no_pause(void **state)
{
	(void)state;
	begin_training();
	for (int i = 0; i < 5; i++)
		beat_once_in(HEARTBEAT_S);
	beat_once_in(3.5);
	assert_int_equal(count_events("\"rank-paused\"", ""), 0);
	beat_once_in(4.5);
	assert_int_equal(count_events("\"rank-paused\"", "\"rank\":1"), 1);
}

static void a_hang_is_found_as_much_later_as_heartbeats_are_rarer(void **state)
{
	(void)state;
	h.first.job.restart.hang_timeout = 1;
	begin_training();
	beat(0, 1, true);
	beat(1, 1, true);
	pass_time(2.9);
	assert_int_equal(count_events("\"how\":\"hung\"", ""), 0);
	pass_time(0.3);
	assert_int_equal(count_events("\"how\":\"hung\"", ""), 1);
}

/* When the hang is found, the last message of rank 0 is 2.5 to 3 s old. */
static void a_rank_is_not_quiet_between_two_heartbeats(void **state)
{
	(void)state;
	h.first.job.restart.hang_timeout = 5;
	begin_training();
	beat(0, 5, true);
	beat(1, 4, true); /* the others wait for it */
	for (int i = 0; i < 12; i++) {
		pass_time(0.5);
		beat(1, 4, false);
		if (i == 7)
			beat(0, 5, false);
	}
	assert_int_equal(count_events("\"how\":\"hung\"", ""), 0);
	pass_time(1.2);
	assert_int_equal(count_events("\"how\":\"hung\"", "\"rank\":1"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_ranks_together_send_a_limited_number),
		cmocka_unit_test(a_silent_rank_has_missed_several),
#define RARE_TEST(f) cmocka_unit_test_setup_teardown(f, setup_rare, teardown)
		RARE_TEST(agents_are_told_the_interval),
		RARE_TEST(the_time_between_two_heartbeats_is_no_pause),
		RARE_TEST(a_hang_is_found_as_much_later_as_heartbeats_are_rarer),
		RARE_TEST(a_rank_is_not_quiet_between_two_heartbeats),
	};
	return cmocka_run_group_tests_name("heartbeats", tests, NULL, NULL);
}
