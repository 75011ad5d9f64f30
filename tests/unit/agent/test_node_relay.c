/* How the ranks of a node report through its relay, and what they do without it. */
#include "tests/unit/agent/node_play.h"

/* --- reports ------------------------------------------------------------------------------------ */

static void one_message_has_the_newest_report_of_each_rank(void **state)
{
	(void)state;
	open_relay();
	join(t.first, 2);
	join(t.second, 3);
	assert_int_equal(step_of(FIRST), -2); /* it had no news */
	report(t.first, 4);
	report(t.first, 5);
	report(t.second, 6);
	assert_int_equal(hand_on(), 3);
	assert_int_equal(step_of(LEADER), 1);
	assert_int_equal(step_of(FIRST), 5);
	assert_int_equal(step_of(SECOND), 6);
	assert_int_equal(hand_on(), 0);
}

static void a_row_says_what_the_rank_has_reported(void **state)
{
	(void)state;
	const struct msg_progress p = { .step = -1,
					.phase = "optimizer",
					.count = 1,
					.active = 2,
					.done = 3,
					.own_s = 0.125,
					.delay_s = 1e-9,
					.stalled_s = 7 };
	struct msg_progress read;
	int rank;
	open_relay();
	join(t.first, 2);
	assert_true(agent_node_member_report(t.first, &p, NULL, t.now));
	assert_int_equal(hand_on(), 2);
	const json_t *row = json_array_get(json_object_get(t.body, "progress"), 1);
	assert_int_equal(msg_progress_row_read(row, &rank, &read, NULL), 0);
	assert_int_equal(rank, FIRST);
	assert_string_equal(read.phase, "optimizer");
	assert_int_equal(read.step, -1);
	assert_int_equal(read.count, 1);
	assert_int_equal(read.active, 2);
	assert_int_equal(read.done, 3);
	assert_true(read.own_s == 0.125 && read.delay_s == 1e-9 && read.stalled_s == 7);
}

static void times_are_sent_until_they_are_acknowledged(void **state)
{
	(void)state;
	const struct train_times times = { .step = 9, .peak_bytes = 8, .us = { 1, 2, 3 } };
	struct msg_times m;
	int64_t us[TIME_REPORTED];
	int rank;
	open_relay();
	join(t.first, 2);
	assert_false(agent_node_member_settles(t.first));
	agent_node_member_owe(t.first);
	report_with(t.first, 3, &times);
	assert_false(agent_node_member_settles(t.first));
	hand_on();
	assert_int_equal(count_times(), 1);
	const json_t *row = json_array_get(json_object_get(t.body, "times"), 0);
	assert_int_equal(msg_times_row_read(row, &rank, &m, NULL), 0);
	assert_int_equal(time_reported_read(m.us, us, NULL), 0);
	assert_int_equal(rank, FIRST);
	assert_int_equal(m.step, 9);
	assert_int_equal(m.peak_bytes, 8);
	assert_int_equal(us[2], 3);
	assert_true(look(t.first));
	assert_true(agent_node_member_settles(t.first));
	assert_false(agent_node_member_settles(t.first));
}

/* --- a relay that does not hand on --------------------------------------------------------------- */

static void a_rank_that_no_relay_has_acknowledged_reports_itself(void **state)
{
	(void)state;
	assert_false(look(t.first)); /* nobody listens */
	assert_false(report(t.first, 1));
	open_relay();
	assert_false(look(t.first));
	assert_false(report(t.first, 1)); /* it tries again after a heartbeat */
	t.now += heartbeat_s;
	assert_false(look(t.first));
	assert_true(report(t.first, 1));
	assert_false(look(t.first));
	assert_false(report(t.first, 2)); /* one is enough */
	hand_on();
	hand_on();
	assert_true(look(t.first));
}

static void a_rank_reports_itself_while_its_relay_is_stopped(void **state)
{
	(void)state;
	open_relay();
	join(t.first, 1);
	report(t.first, 2);
	t.now += 2 * heartbeat_s - 0.01;
	assert_true(look(t.first));
	t.now += 0.02;
	assert_false(look(t.first));
	assert_false(report(t.first, 3));
	t.now += 100;
	assert_int_equal(hand_on(), 2);
	assert_int_equal(step_of(FIRST), 2); /* the supervisor leaves it out */
	assert_true(look(t.first));
}

/* silent_s may be as short as a second. */
static void a_rank_does_not_wait_until_it_counts_as_silent(void **state)
{
	(void)state;
	struct msg_welcome w = welcome_of(FIRST);
	w.silent_s = 1;
	agent_node_member_close(t.first);
	assert_int_equal(agent_node_member_open(&w, &t.first, NULL), 0);
	open_relay();
	join(t.first, 1);
	report(t.first, 2);
	t.now += 0.3;
	assert_false(look(t.first));
}

static void few_packets_are_under_way(void **state)
{
	int n = 0;
	(void)state;
	open_relay();
	join(t.first, 1);
	while (n < 100 && report(t.first, 2 + n))
		n++;
	assert_int_equal(n, 4);
	assert_int_equal(hand_on(), 2);
	assert_int_equal(step_of(FIRST), 5);
	assert_true(look(t.first));
	assert_true(report(t.first, 9));
}

static void a_rank_leaves_a_relay_that_closes_and_joins_the_next_one(void **state)
{
	(void)state;
	open_relay();
	join(t.first, 1);
	report(t.first, 2);
	agent_node_relay_close(t.relay);
	assert_false(look(t.first));
	open_relay();
	t.now += heartbeat_s;
	join(t.first, 3);
	assert_int_equal(step_of(FIRST), 3);
}

static void a_relay_of_another_generation_is_not_found(void **state)
{
	(void)state;
	t.secret[0] = t.secret[0] == '0' ? '1' : '0';
	open_relay();
	assert_false(look(t.first));
	assert_false(report(t.first, 1));
	assert_int_equal(hand_on(), 0);
}

/* --- which ranks have one ------------------------------------------------------------------------ */

static void a_rank_that_is_alone_needs_no_relay(void **state)
{
	(void)state;
	struct node_member *m;
	struct msg_welcome w = welcome_of(FIRST);
	w.node_ranks = 1;
	w.leader = FIRST;
	assert_int_equal(agent_node_member_open(&w, &m, NULL), 0);
	assert_null(m);
	assert_int_equal(open_relay_with(json_pack("[i]", LEADER), NULL), 0);
	assert_null(t.relay);
}

static void the_first_rank_is_no_member(void **state)
{
	(void)state;
	struct node_member *m;
	struct msg_welcome w = welcome_of(LEADER);
	assert_int_equal(agent_node_member_open(&w, &m, NULL), 0);
	assert_null(m);
}

static void an_invalid_welcome_is_refused(void **state)
{
	static const char *const lists[] = { "[4, 8]", "[4, \"5\"]", "[4, 4]", "[4, -1]" };
	(void)state;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(open_relay_with(json_loads(lists[i], 0, NULL), &e), -1);
		assert_int_equal(e.code, ERR_PROTO);
		assert_null(t.relay);
	}
	struct msg_welcome w = welcome_of(FIRST);
	struct node_member *m;
	struct err e = ERR_INIT;
	w.group_secret = "not hex";
	assert_int_equal(agent_node_member_open(&w, &m, &e), -1);
	assert_null(strstr(e.text, "not hex")); /* it may be a secret */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define RELAY_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		RELAY_TEST(one_message_has_the_newest_report_of_each_rank),
		RELAY_TEST(a_row_says_what_the_rank_has_reported),
		RELAY_TEST(times_are_sent_until_they_are_acknowledged),
		RELAY_TEST(a_rank_that_no_relay_has_acknowledged_reports_itself),
		RELAY_TEST(a_rank_reports_itself_while_its_relay_is_stopped),
		RELAY_TEST(a_rank_does_not_wait_until_it_counts_as_silent),
		RELAY_TEST(few_packets_are_under_way),
		RELAY_TEST(a_rank_leaves_a_relay_that_closes_and_joins_the_next_one),
		RELAY_TEST(a_relay_of_another_generation_is_not_found),
		RELAY_TEST(a_rank_that_is_alone_needs_no_relay),
		RELAY_TEST(the_first_rank_is_no_member),
		RELAY_TEST(an_invalid_welcome_is_refused),
	};
	alarm(PATIENCE_S);
	return cmocka_run_group_tests_name("relay of a node", tests, NULL, NULL);
}
