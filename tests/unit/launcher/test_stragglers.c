/* Slow ranks, and ranks that stood still, are named. The agents and their clocks are doubles. */
#include "launcher/supervise/stragglers.h"
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

/* Trains; in each second rank 1 spends `factor` times as long on its own work as rank 0, and waits
 * for a core for `wait` seconds. */
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
		train(1, 2, 0.1);
	}
	assert_int_equal(count_events("\"slow-rank\"", "its process did not run at all for"), 1);
}

/* It is stopped while it waits for other ranks, so its own work takes as long as theirs. */
static void a_rank_that_is_stopped_in_its_waits_is_slow(void **state)
{
	(void)state;
	for (int i = 0; i < 60; i++) {
		stalled[1] += 0.7;
		train(1, 1, 0);
	}
	assert_int_equal(count_events("\"slow-rank\"", "its process did not run at all for"), 1);
}

/* Other processes take its core while it waits for other ranks, which soon wait for it. */
static void a_rank_without_a_core_in_its_waits_is_slow(void **state)
{
	(void)state;
	train(60, 1, 0.7);
	assert_int_equal(count_events("\"slow-rank\"", "waited for a core for"), 1);
}

/* On a busy host all ranks wait, some longer by chance. */
static void a_rank_that_waits_somewhat_longer_than_its_peer_is_not_slow(void **state)
{
	(void)state;
	for (int i = 0; i < 60; i++) {
		delay[0] += 0.5;
		train(1, 1, 0.9);
	}
	assert_int_equal(count_events("\"slow-rank\"", ""), 0);
}

/* Its own work is short, so that a small excess is already many times as long. */
static void an_excess_below_the_limit_does_not_count(void **state)
{
	(void)state;
	for (int i = 0; i < 90; i++) {
		done += 4;
		own[0] += 0.05;
		own[1] += 0.05;
		delay[1] += 0.25; /* less than STRAGGLER_NO_CORE */
		for (int r = 0; r < WORLD; r++)
			report_progress(r);
		pass_time(1);
	}
	assert_int_equal(count_events("\"slow-rank\"", ""), 0);
}

/* Without a core its control thread wakes late, too, as if the process were stopped. */
static void a_rank_without_a_core_is_not_called_stopped(void **state)
{
	(void)state;
	for (int i = 0; i < 60; i++) {
		stalled[1] += 0.5;
		train(1, 2, 0.5);
	}
	assert_int_equal(count_events("\"slow-rank\"", "waited for a core for"), 1);
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

/* --- What the agents see on their nodes --- */

static json_t *finding_json(const char *kind, double share, bool alarm, const char *object,
			    const char *text)
{
	return msg_finding_json(&(struct msg_finding){
		.kind = kind, .share = share, .alarm = alarm, .object = object, .text = text });
}

/* Steals the findings. */
static void report_health(int rank, double clock, json_t *a, json_t *b)
{
	static int64_t number;
	json_t *list = json_array();
	if (a)
		json_array_append_new(list, a);
	if (b)
		json_array_append_new(list, b);
	send_message(&h.peers[rank], MSG_HEALTH,
		     msg_health_json(&(struct msg_health){
			     .number = ++number, .clock = clock, .findings = list }));
	json_decref(list);
}

/* The number of lines of health.jsonl that hold this text. */
static int count_health(const char *text)
{
	char path[400], line[4096];
	int n = 0;
	snprintf(path, sizeof path, "%s/health.jsonl", rundir_path(h.run));
	FILE *in = fopen(path, "re");
	while (in && fgets(line, sizeof line, in))
		n += strstr(line, text) != NULL;
	if (in)
		fclose(in);
	return n;
}

static void the_strongest_finding_is_the_reason(void **state)
{
	(void)state;
	report_health(1, 0, finding_json("delay", 0.3, false, "", "it waited for a core"),
		      finding_json("throttled", 0.6, false, "", "its cgroup /x limits it"));
	train(60, 2, 0.3);
	assert_int_equal(count_events("\"slow-rank\"", "for 30 s; its cgroup /x limits it\""), 1);
	assert_int_equal(count_events("\"node-suspected\"", "\"kind\":\"slow\""), 1);
}

static void a_finding_that_is_gone_is_no_reason(void **state)
{
	(void)state;
	report_health(1, 0, finding_json("throttled", 0.6, false, "", "its cgroup /x limits it"),
		      NULL);
	train(5, 1, 0);
	report_health(1, 0, NULL, NULL);
	train(60, 2, 0);
	assert_int_equal(count_events("\"slow-rank\"", "it has its cores"), 1);
}

static void another_reason_is_said_if_it_stays_the_strongest(void **state)
{
	(void)state;
	report_health(1, 0, finding_json("delay", 0.3, false, "", "it waited for a core"), NULL);
	train(60, 2, 0);
	report_health(1, 0, finding_json("throttled", 0.6, false, "", "its cgroup /x limits it"),
		      NULL);
	train(20, 2, 0); /* two windows */
	assert_int_equal(count_events("\"slow-rank\"", ""), 1);
	train(60, 2, 0);
	assert_int_equal(count_events("\"slow-rank\"", ""), 2);
	assert_int_equal(count_events("\"slow-rank\"", "is still slow"), 1);
	assert_int_equal(count_events("\"slow-rank\"", "its cgroup /x limits it"), 1);
	assert_int_equal(count_events("\"node-suspected\"", "\"kind\":\"slow\""), 1);
	report_health(1, 0, NULL, NULL); /* no reason is no other reason */
	train(60, 2, 0);
	assert_int_equal(count_events("\"slow-rank\"", ""), 2);
}

static void reasons_that_alternate_are_said_a_few_times(void **state)
{
	(void)state;
	for (int i = 0; i < 12; i++) {
		const char *kind = i % 2 ? "delay" : "throttled";
		report_health(1, 0, finding_json(kind, 0.3, false, "", kind), NULL);
		train(i ? 45 : 60, 2, 0);
	}
	assert_int_equal(count_events("\"slow-rank\"", ""), 1 + STRAGGLER_REASONS);
}

static void a_stopped_process_needs_no_other_reason(void **state)
{
	(void)state;
	report_health(1, 0, finding_json("delay", 0.3, false, "", "it waited for a core"), NULL);
	for (int i = 0; i < 60; i++) {
		stalled[1] += 0.5;
		train(1, 2, 0);
	}
	assert_int_equal(count_events("\"slow-rank\"", "its process did not run at all for"), 1);
}

static void a_lower_clock_than_its_peers_is_the_reason(void **state)
{
	(void)state;
	report_health(0, 2900, NULL, NULL);
	report_health(1, 1200, NULL, NULL);
	train(60, 2, 0);
	assert_int_equal(count_events("\"slow-rank\"",
				      "its cores run at 1.20 GHz, its peers' at 2.90 GHz"),
			 1);
}

static void a_defect_is_an_alarm_once_even_if_no_rank_is_slow(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		report_health(1, 0,
			      finding_json("ecc", 0.3, true, "GPU 0000:36:00.0", "2 new errors"),
			      NULL);
		train(10, 1, 0);
	}
	assert_int_equal(count_events("\"health-alarm\"", "GPU 0000:36:00.0"), 1);
	assert_int_equal(count_events("\"node-suspected\"", "\"kind\":\"errors\""), 1);
	report_health(1, 0, finding_json("ecc", 0.3, true, "GPU 0000:39:00.0", "2 new errors"),
		      NULL);
	assert_int_equal(count_events("\"health-alarm\"", ""), 2);
	assert_int_equal(count_events("\"slow-rank\"", ""), 0);
}

static void health_is_recorded_when_it_changes(void **state)
{
	(void)state;
	train(100, 1, 0);
	assert_int_equal(count_health(""), 0);
	report_health(1, 0, finding_json("delay", 0.3, false, "", "it waited for a core"), NULL);
	train(400, 2, 0); /* 40 windows */
	assert_int_equal(count_health("\"slow\":true"), 1);
	train(400, 2, 0);
	assert_int_equal(count_health("\"slow\":true"), 2); /* again, after EVIDENCE_LINE_S */
	assert_int_equal(count_health("\"rank\":0"), 0);
	report_health(1, 0, finding_json("throttled", 0.6, false, "", "its cgroup"), NULL);
	train(30, 2, 0);
	assert_int_equal(count_health("throttled"), 1);
}

static void malformed_findings_lose_their_rank(void **state)
{
	(void)state;
	report_health(1, 0, json_pack("{s:s}", "kind", "x"), NULL);
	assert_int_equal(count_events("\"rank-lost\"", "message finding"), 1);
}

/* Both ranks of the node fall behind those of another one. */
static void the_ranks_of_a_node_are_printed_together(void **state)
{
	bool last;
	(void)state;
	h.ranks[1].at.pp = h.ranks[0].at.pp + 1; /* compared with their own past */
	supervise_close(h.supervisor);
	assert_int_equal(open_supervisor(&fake_ops), 0);
	supervise_start(h.supervisor);
	train_all();
	train(100, 1, 0);
	for (int i = 0; i < 120; i++) {
		done += 4;
		for (int r = 0; r < WORLD; r++) {
			own[r] += 4 * STEP_S * 2;
			report_progress(r);
		}
		pass_time(1);
	}
	assert_int_equal(count_events("\"slow-rank\"", "\"slow\":true"), 2);
	assert_int_equal(count_printed("ranks 0, 1 on here are slow", &last), 1);
	assert_int_equal(count_printed("rank 1 on here is slow", &last), 0);
	assert_int_equal(count_events("\"node-suspected\"", "\"kind\":\"slow\""), 1);
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

static void pauses_again_and_again_are_evidence_against_the_node(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(count_events("\"node-suspected\"", "\"kind\":\"paused\""), i > 2);
		be_silent(3);
		train(61, 1, 0);
	}
	assert_int_equal(count_events("\"node-suspected\"", "\"kind\":\"paused\""), 1);
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
		WATCH_TEST(a_rank_that_is_stopped_in_its_waits_is_slow),
		WATCH_TEST(a_rank_without_a_core_in_its_waits_is_slow),
		WATCH_TEST(a_rank_that_waits_somewhat_longer_than_its_peer_is_not_slow),
		WATCH_TEST(an_excess_below_the_limit_does_not_count),
		WATCH_TEST(a_rank_without_a_core_is_not_called_stopped),
		WATCH_TEST(a_slow_window_now_and_then_is_no_straggler),
		WATCH_TEST(a_rank_that_is_fast_again_is_reported),
		WATCH_TEST(a_difference_that_costs_nothing_is_not_named),
		WATCH_TEST(a_rank_without_peers_stays_slow),
		WATCH_TEST(with_factor_0_no_rank_is_named),
		WATCH_TEST(a_rank_that_stood_still_is_named),
		WATCH_TEST(a_pause_of_the_supervisor_is_nobodys),
		WATCH_TEST(pauses_again_and_again_are_evidence_against_the_node),
		WATCH_TEST(the_strongest_finding_is_the_reason),
		WATCH_TEST(a_finding_that_is_gone_is_no_reason),
		WATCH_TEST(another_reason_is_said_if_it_stays_the_strongest),
		WATCH_TEST(reasons_that_alternate_are_said_a_few_times),
		WATCH_TEST(a_stopped_process_needs_no_other_reason),
		WATCH_TEST(a_lower_clock_than_its_peers_is_the_reason),
		WATCH_TEST(a_defect_is_an_alarm_once_even_if_no_rank_is_slow),
		WATCH_TEST(health_is_recorded_when_it_changes),
		WATCH_TEST(malformed_findings_lose_their_rank),
		WATCH_TEST(the_ranks_of_a_node_are_printed_together),
	};
	return cmocka_run_group_tests_name("slow ranks", tests, NULL, NULL);
}
