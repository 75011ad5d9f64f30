/* The examination of ranks that hang: who is asked, who is named, and that no restart waits for
 * long. */
#include "tests/unit/launcher/harness.h"

static void start_training(void)
{
	supervise_start(h.supervisor);
	train_all();
	h.first.job.restart.hang_timeout = 5;
	h.first.job.restart.stacks_timeout = 4;
}

/* Writes a script that replaces `muster-agent trace`, and reads no other tool's words. */
static void write_verdict(const char *finding, const char *ranks)
{
	char dir[600];
	FILE *out = fopen(h.agent, "w");
	assert_true(out &&
		    fprintf(out,
			    "#!/bin/sh\nprintf '{\"finding\": \"%s\", \"text\": \"the recorders\", "
			    "\"group\": null, \"op\": null, \"number\": 0, \"ranks\": %s, "
			    "\"world\": 2, "
			    "\"missing\": []}'; exit 1\n",
			    finding, ranks) > 0 &&
		    !fclose(out) && !chmod(h.agent, 0700));
	snprintf(dir, sizeof dir, "mkdir -p %s/run/trace/gen-1", h.dir);
	assert_int_equal(system(dir), 0);
}

/* Lets the processes of the supervisor end, which takes real time, until the generation is
 * killed. */
static void await_kill(void)
{
	for (int i = 0; i < 10000 && h.starts == 1; i++) {
		uv_run(&h.loop, UV_RUN_NOWAIT);
		deliver_all();
		usleep(1000);
	}
	assert_int_equal(h.starts, 2);
}

static void a_rank_that_answers_examines_itself(void **state)
{
	(void)state;
	start_training();
	h.found[1] = "call";
	send_step(&h.peers[0], MSG_PROGRESS, 5);
	pass_time(5.2);
	assert_int_equal(h.peers[0].looked_at, 1u << 0);
	assert_int_equal(h.peers[1].looked_at, 1u << 1);
	assert_int_equal(count_events("\"event\":\"hang\"", "\"rank\":1"), 1);
	assert_int_equal(count_events("\"event\":\"hang\"", "\"kind\":\"call\""), 1);
	assert_int_equal(count_events("hung first: its threads were examined", ""), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"hang\""), 1);
	assert_int_equal(h.starts, 2);
}

static void a_rank_that_does_not_answer_is_examined_by_its_neighbour(void **state)
{
	(void)state;
	start_training();
	h.found[0] = "stopped";
	h.peers[0].mute = true;
	for (int i = 0; i < 12; i++) {
		pass_time(0.5);
		send_step(&h.peers[1], MSG_PROGRESS, 5);
	}
	pass_time(1.1);
	assert_int_equal(h.peers[0].looked_at, 0);
	assert_int_equal(h.peers[1].looked_at, 1u << 0); /* not itself: a debugger would stop it */
	assert_int_equal(count_events("\"event\":\"hang\"", "\"rank\":0"), 1);
	assert_int_equal(count_events("\"kind\":\"stopped\"", "\"rank\":0"), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"agent-stopped\""), 1);
	assert_int_equal(h.starts, 2);
}

static void the_flight_recorders_correct_the_watchdog(void **state)
{
	(void)state;
	write_verdict("missing", "[1]");
	start_training();
	h.found[1] = "computing";
	send_step(&h.peers[1], MSG_PROGRESS,
		  5); /* rank 0 is further behind, but others wait for rank 1 */
	pass_time(5.2);
	await_kill();
	assert_int_equal(count_events("\"event\":\"rank-lost\"", "\"rank\":0"), 1);
	assert_int_equal(count_events("\"event\":\"hang\"", "\"rank\":1"), 1);
	assert_int_equal(count_events("\"kind\":\"computing\"", "the recorders"), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"rank\":1"), 1);
}

static void ranks_in_different_collectives_are_a_fault_of_the_job(void **state)
{
	(void)state;
	write_verdict("deadlock", "[1,0]");
	start_training();
	pass_time(5.2);
	await_kill();
	assert_int_equal(count_events("\"event\":\"hang\"", "\"rank\":1"), 1);
	assert_int_equal(count_events("\"kind\":\"collectives\"", "in different collectives"), 1);
	assert_int_equal(count_events("\"fault\":\"deadlock\"", "\"owner\":\"job\""), 1);
}

static void a_cycle_through_a_rank_that_computes_is_that_ranks_hang(void **state)
{
	(void)state;
	write_verdict("deadlock", "[1,0]");
	start_training();
	h.found[0] = "computing";
	pass_time(5.2);
	await_kill();
	assert_int_equal(count_events("\"event\":\"hang\"", "\"rank\":0"), 1);
	assert_int_equal(count_events("\"kind\":\"computing\"", ""), 1);
	assert_int_equal(count_events("\"fault\":\"deadlock\"", ""), 0);
}

static void a_restart_waits_for_answers_only_for_a_limited_time(void **state)
{
	(void)state;
	start_training();
	h.peers[0].mute_later = h.peers[1].mute_later = true;
	pass_time(5.2);
	assert_int_equal(h.starts, 1);
	pass_time(3.7);
	assert_int_equal(h.starts, 1);
	pass_time(0.4);
	assert_int_equal(h.starts, 2);
	assert_int_equal(count_events("\"event\":\"hang\"", "could not be examined in time"), 1);
}

static void what_the_kernel_shows_is_used_if_the_debugger_takes_too_long(void **state)
{
	(void)state;
	start_training();
	h.found[0] = "kernel";
	h.peers[0].slow_debugger = true;
	pass_time(5.2);
	assert_int_equal(h.starts, 1);
	pass_time(4.1);
	assert_int_equal(h.starts, 2);
	assert_int_equal(
		count_events("\"kind\":\"kernel\"", "hung first: its threads were examined"), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"kernel-stuck\""), 1);
}

static void a_restart_waits_for_nobody_if_none_can_answer(void **state)
{
	(void)state;
	start_training();
	h.peers[0].mute = h.peers[1].mute = true;
	pass_time(5.2 + 1.1);
	assert_int_equal(h.starts, 2);
	assert_int_equal(count_events("\"event\":\"hang\"",
				      "no other process of muster runs on its host"),
			 1);
}

static void an_agent_that_dies_while_it_is_examined_is_not_waited_for(void **state)
{
	(void)state;
	start_training();
	h.keep_running = true;
	h.peers[0].mute_later = h.peers[1].mute_later = true;
	pass_time(5.2);
	end_rank(0);
	assert_int_equal(h.kills, 0);
	end_rank(1);
	assert_int_equal(h.kills, 1);
}

static void a_second_request_to_stop_ends_the_examination(void **state)
{
	(void)state;
	start_training();
	h.peers[0].mute_later = h.peers[1].mute_later = true;
	pass_time(5.2);
	supervise_stop(h.supervisor, "a person", true);
	deliver_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void answers_that_nobody_asked_for_change_nothing(void **state)
{
	(void)state;
	start_training();
	for (int rank = -1; rank < 3; rank++)
		send_message(&h.peers[0], MSG_EXAMINED,
			     msg_examined_json(&(struct msg_examined){
				     .rank = rank,
				     .kind = "a long word that does not fit",
				     .text = "x" }));
	pass_time(1);
	assert_int_equal(h.starts, 1);
	assert_int_equal(count_events("\"event\":\"hang\"", ""), 0);
}

static void a_kind_that_is_no_word_is_unknown(void **state)
{
	(void)state;
	start_training();
	h.found[0] = h.found[1] =
		"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4";
	pass_time(5.2);
	assert_int_equal(count_events("\"event\":\"hang\"", "\"kind\":\"unknown\""), 1);
	assert_int_equal(h.starts, 2);
}

static void without_a_time_limit_nothing_is_examined(void **state)
{
	(void)state;
	start_training();
	h.first.job.restart.stacks_timeout = 0;
	pass_time(5.2);
	assert_int_equal(h.starts, 2);
	assert_int_equal(h.peers[0].looked_at | h.peers[1].looked_at, 0);
	assert_int_equal(count_events("\"event\":\"rank-lost\"", "this one is the furthest behind"),
			 1);
}

/* The whole host was stopped: agents and supervisor alike. */
static void time_in_which_the_supervisor_slept_loses_no_rank(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	h.now += 3600;
	supervise_tick(h.supervisor);
	deliver_all();
	assert_int_equal(count_events("did not connect", ""), 0);
	train_all();
	h.now += 3600;
	supervise_tick(h.supervisor);
	pass_time(14);
	assert_int_equal(h.starts, 1);
	pass_time(2);
	assert_int_equal(count_events("\"how\":\"silent\"", ""), 1);
}

static void the_rank_that_is_silent_for_longest_is_lost(void **state)
{
	(void)state;
	start_training();
	h.first.job.restart.hang_timeout = 0;
	pass_time(5);
	send_step(&h.peers[0], MSG_PROGRESS, 1);
	pass_time(9.5);
	assert_int_equal(h.starts, 1);
	pass_time(2);
	assert_int_equal(count_events("\"how\":\"silent\"", "\"rank\":1"), 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_rank_that_answers_examines_itself),
		TEST(a_rank_that_does_not_answer_is_examined_by_its_neighbour),
		TEST(the_flight_recorders_correct_the_watchdog),
		TEST(ranks_in_different_collectives_are_a_fault_of_the_job),
		TEST(a_cycle_through_a_rank_that_computes_is_that_ranks_hang),
		TEST(a_restart_waits_for_answers_only_for_a_limited_time),
		TEST(what_the_kernel_shows_is_used_if_the_debugger_takes_too_long),
		TEST(a_restart_waits_for_nobody_if_none_can_answer),
		TEST(an_agent_that_dies_while_it_is_examined_is_not_waited_for),
		TEST(a_second_request_to_stop_ends_the_examination),
		TEST(answers_that_nobody_asked_for_change_nothing),
		TEST(a_kind_that_is_no_word_is_unknown),
		TEST(without_a_time_limit_nothing_is_examined),
		TEST(time_in_which_the_supervisor_slept_loses_no_rank),
		TEST(the_rank_that_is_silent_for_longest_is_lost),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
