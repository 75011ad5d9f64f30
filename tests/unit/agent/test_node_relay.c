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

/* --- messages of MSG_REPORTS ---------------------------------------------------------------------- */

/* A message of this type and of `bytes` at least. */
static bool hand(struct node_member *m, int type, int64_t number, size_t bytes)
{
	char *text = calloc(1, bytes + 1);
	assert_non_null(text);
	memset(text, 'x', bytes);
	json_t *body = json_pack("{s:I, s:s}", "number", (json_int_t)number, "text", text);
	bool handed = agent_node_member_hand(m, type, number, body, t.now);
	json_decref(body);
	free(text);
	return handed;
}

static bool hand_health(struct node_member *m, int64_t number, size_t bytes)
{
	return hand(m, REPORT_MSG_HEALTH, number, bytes);
}

static bool hand_links(struct node_member *m, int64_t number, size_t bytes)
{
	return hand(m, REPORT_MSG_LINKS, number, bytes);
}

static bool has_handed(const struct node_member *m, int64_t number)
{
	return agent_node_member_has_handed(m, REPORT_MSG_HEALTH, number);
}

/* The number that the last message has of a rank's report of this type; 0: it has no row of it. */
static int64_t number_of(int rank, enum msg_type type)
{
	size_t i;
	json_t *row;
	int64_t number = 0;
	json_array_foreach(json_object_get(t.body, "reports"), i, row)
	{
		enum msg_type of_type;
		const json_t *body;
		int of;
		assert_int_equal(msg_report_row_read(row, &of, &of_type, &body, NULL), 0);
		if (of != rank || of_type != type)
			continue;
		assert_int_equal(number, 0); /* one row */
		number = json_integer_value(json_object_get(body, "number"));
	}
	return number;
}

static void reports_go_with_the_progress_until_they_are_acknowledged(void **state)
{
	(void)state;
	open_relay();
	join(t.first, 1);
	join(t.second, 1);
	assert_false(has_handed(t.first, 7));
	assert_true(hand_health(t.first, 7, 100));
	assert_true(hand_links(t.first, 3, 100));
	report(t.second, 2);
	assert_true(look(t.first));
	assert_false(has_handed(t.first, 7));
	assert_int_equal(
		hand_on(),
		2); /* that of the rank and that of the second: the first had no progress */
	assert_int_equal(number_of(FIRST, MSG_HEALTH), 7);
	assert_int_equal(number_of(FIRST, MSG_LINKS), 3);
	assert_int_equal(number_of(SECOND, MSG_HEALTH), 0);
	assert_true(look(t.first));
	assert_true(has_handed(t.first, 7));
	assert_true(hand_health(t.first, 7, 100)); /* it has it */
	assert_int_equal(hand_on(), 0);
}

static void the_newest_report_of_a_type_counts(void **state)
{
	(void)state;
	open_relay();
	join(t.first, 1);
	assert_true(hand_health(t.first, 1, 10));
	assert_true(hand_health(t.first, 2, 10));
	assert_int_equal(hand_on(), 1);
	assert_int_equal(number_of(FIRST, MSG_HEALTH), 2);
	look(t.first);
	assert_false(has_handed(t.first, 1));
	assert_true(has_handed(t.first, 2));
}

static void a_report_is_the_ranks_own_if_no_relay_takes_it(void **state)
{
	(void)state;
	assert_false(hand_health(t.first, 1, 10)); /* nobody listens */
	open_relay();
	t.now += heartbeat_s;
	join(t.first, 1);
	assert_false(hand_health(t.first, 1, NODE_REPORT)); /* with its names it is too long */
	assert_true(hand_health(t.first, 2, 10));
	agent_node_relay_close(t.relay);
	t.relay = NULL;
	assert_false(look(t.first));
	assert_false(has_handed(t.first, 2));
	assert_false(hand_health(t.first, 2, 10));
}

/* The relay may have read the packet, and be stopped since then. */
static void a_report_is_the_ranks_own_while_its_relay_is_stopped(void **state)
{
	(void)state;
	open_relay();
	join(t.first, 1);
	assert_true(hand_health(t.first, 1, 10));
	agent_node_relay_take(t.relay);
	t.now += 2 * heartbeat_s + 0.01;
	assert_false(look(t.first));
	assert_false(has_handed(t.first, 1));
	assert_false(hand_health(t.first, 1, 10));
}

static void a_report_waits_for_its_turn_among_the_packets(void **state)
{
	(void)state;
	open_relay();
	join(t.first, 1);
	for (int i = 0; i < 4; i++)
		assert_true(report(t.first, 2 + i));
	assert_true(hand_health(t.first, 1, 10)); /* not now */
	hand_on();
	assert_int_equal(number_of(FIRST, MSG_HEALTH), 0);
	assert_true(look(t.first));
	assert_true(hand_health(t.first, 1, 10));
	hand_on();
	assert_int_equal(number_of(FIRST, MSG_HEALTH), 1);
}

/* A message must not be longer than MSG_MAX, however many ranks have reports. */
static void reports_that_do_not_fit_wait_for_the_next_message(void **state)
{
	enum { THIRD = 6, MOST = 1 << 16 };
	struct node_member *all[] = { t.first, t.second, open_member(THIRD) };
	const int ranks[] = { FIRST, SECOND, THIRD };
	int rows = 0;
	(void)state;
	open_relay_with(json_pack("[i, i, i, i]", LEADER, FIRST, THIRD, SECOND), NULL);
	for (int i = 0; i < 3; i++)
		join(all[i], 1);
	for (int i = 0; i < 3; i++) {
		assert_true(hand_health(all[i], 1, NODE_REPORT - 100));
		assert_true(hand_links(all[i], 1, NODE_REPORT - 100));
		assert_true(report(all[i], 2));
	}
	for (int messages = 0; rows < 6; messages++) {
		assert_true(messages < 3);
		assert_int_equal(hand_on(), messages ? 1 : 4); /* progress is not repeated */
		size_t n = json_array_size(json_object_get(t.body, "reports"));
		assert_true(json_dumpb(t.body, NULL, 0, JSON_COMPACT) <= MOST + 4096);
		rows += (int)n;
		for (int i = 0; i < 3; i++) {
			bool shown = number_of(ranks[i], MSG_HEALTH) == 1;
			bool had = has_handed(all[i], 1);
			look(all[i]);
			assert_int_equal(has_handed(all[i], 1), had || shown);
		}
	}
	assert_int_equal(hand_on(), 0);
	agent_node_member_close(all[2]);
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
		RELAY_TEST(reports_go_with_the_progress_until_they_are_acknowledged),
		RELAY_TEST(the_newest_report_of_a_type_counts),
		RELAY_TEST(a_report_is_the_ranks_own_if_no_relay_takes_it),
		RELAY_TEST(a_report_is_the_ranks_own_while_its_relay_is_stopped),
		RELAY_TEST(a_report_waits_for_its_turn_among_the_packets),
		RELAY_TEST(reports_that_do_not_fit_wait_for_the_next_message),
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
