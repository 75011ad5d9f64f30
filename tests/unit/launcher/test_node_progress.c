/* What the supervisor makes of a message node_progress: the first rank of a node reports for its ranks. */
#include "base/rank_rows.h"
#include "launcher/supervise/supervisor.h"
#include "tests/unit/launcher/harness.h"

/* A row that no rank sends; the others are made from messages. */
static const char *const bad_rows[] = {
	"7",
	"{}",
	"[]",
	"[1, 5, \"forward\", 1, 0, 0, 0, 0]",
	"[1, 5, \"forward\", 1, 0, 0, 0, 0, 0, 0]",
	"[1.0, 5, \"forward\", 1, 0, 0, 0, 0, 0]",
	"[-1, 5, \"forward\", 1, 0, 0, 0, 0, 0]",
	"[2, 5, \"forward\", 1, 0, 0, 0, 0, 0]",
	"[2147483648, 5, \"forward\", 1, 0, 0, 0, 0, 0]",
	"[1, -2, \"forward\", 1, 0, 0, 0, 0, 0]",
	"[1, 5, 7, 1, 0, 0, 0, 0, 0]",
	"[1, 5, \"forward\", -1, 0, 0, 0, 0, 0]",
	"[1, 5, \"forward\", 1, 0, 0, 0, 0, 4611686018427387905]",
};

static const struct rank_state *rank(int r)
{
	return &h.supervisor->ranks[r];
}

static void begin_training(void)
{
	supervise_start(h.supervisor);
	train_all();
}

static json_t *progress_row(int r, int64_t step, int64_t count)
{
	return msg_progress_row(
		r, &(struct msg_progress){ .step = step, .phase = "forward", .count = count });
}

static json_t *times_row(int r, int64_t step, double compute)
{
	json_t *us = time_reported_json(
		(int64_t[TIME_REPORTED]){ [STEP_PART_COMPUTE] = (int64_t)(1e6 * compute) });
	json_t *row = msg_times_row(r, &(struct msg_times){ .step = step, .us = us });
	json_decref(us);
	return row;
}

/* Each of the rows is stolen, or NULL. */
static json_t *body_of(json_t *a, json_t *b, json_t *times)
{
	struct msg_node_progress m = { .progress = json_array(),
				       .times = json_array(),
				       .reports = json_array() };
	json_array_append_new(m.progress, a);
	json_array_append_new(m.progress, b);
	json_array_append_new(m.times, times);
	json_t *body = msg_node_progress_json(&m);
	json_decref(m.progress);
	json_decref(m.times);
	json_decref(m.reports);
	return body;
}

static void report(json_t *a, json_t *b, json_t *times)
{
	send_message(&h.peers[0], MSG_NODE_PROGRESS, body_of(a, b, times));
}

static void rows_update_their_ranks(void **state)
{
	(void)state;
	begin_training();
	report(progress_row(0, 5, 1), progress_row(1, 4, 9), NULL);
	assert_int_equal(rank(0)->step, 5);
	assert_int_equal(rank(1)->step, 4);
	assert_int_equal(rank(1)->count, 9);
	assert_string_equal(rank(1)->phase, "forward");
	assert_false(h.peers[0].closed);
}

static void a_rank_that_is_reported_is_not_silent(void **state)
{
	(void)state;
	begin_training();
	for (int i = 0; i < 16; i++) {
		report(progress_row(0, i, i), progress_row(1, i, i), NULL);
		pass_time(1);
	}
	assert_int_equal(count_events("rank-lost", ""), 0);
	for (int i = 16; i < 32; i++) {
		report(progress_row(0, i, i), NULL, NULL);
		pass_time(1);
	}
	assert_int_equal(count_events("\"how\":\"silent\"", "\"rank\":1"), 1);
}

/* It waits in the socket of the rank that reports it. */
static void a_rank_whose_report_waits_in_a_socket_is_not_silent(void **state)
{
	(void)state;
	begin_training();
	for (int i = 0; i < 15; i++) {
		report(progress_row(0, i, i), NULL, NULL);
		pass_time(0.95);
	}
	leave_message(&h.peers[0], MSG_NODE_PROGRESS, body_of(progress_row(1, 1, 1), NULL, NULL));
	h.now += 0.9;
	supervise_tick(h.supervisor);
	assert_int_equal(count_events("rank-lost", ""), 0);
}

/* The relay was stopped: the rank has reported by itself meanwhile. */
static void an_older_report_is_left_out(void **state)
{
	(void)state;
	begin_training();
	send_message(&h.peers[1], MSG_PROGRESS,
		     msg_progress_json(&(struct msg_progress){
			     .step = 50, .phase = "forward", .count = 500, .active = 3 }));
	double beat = rank(1)->beat;
	h.now += 1;
	report(progress_row(0, 5, 1), progress_row(1, 40, 400), NULL);
	report(progress_row(0, 5, 1), progress_row(1, 50, 500), NULL); /* active is lower */
	assert_int_equal(rank(1)->step, 50);
	assert_float_equal(rank(1)->beat, beat, 1e-9);
	assert_int_equal(count_events("rank-lost", ""), 0);
}

static void a_rank_that_has_finished_stays_so(void **state)
{
	(void)state;
	begin_training();
	send_step(&h.peers[1], MSG_FINISHED, 10);
	report(progress_row(0, 9, 9), progress_row(1, 9, 9), NULL);
	assert_string_equal(rank(1)->phase, "finished");
	assert_int_equal(rank(1)->step, 10);
}

static void a_rank_whose_relay_is_silent_is_not_paused(void **state)
{
	(void)state;
	h.first.job.health.pause = 2;
	begin_training();
	report(progress_row(0, 1, 1), progress_row(1, 1, 1), NULL);
	pass_time(3);
	send_step(&h.peers[1], MSG_PROGRESS, 1); /* by itself */
	assert_int_equal(count_events("\"rank-paused\"", ""), 0);
	report(progress_row(0, 1, 1), NULL, NULL);
	assert_int_equal(count_events("\"rank-paused\"", "\"rank\":0"), 1);
	for (int i = 2; i < 5; i++) {
		pass_time(1);
		report(progress_row(0, i, i), NULL, NULL);
	}
	report(progress_row(0, 5, 5), progress_row(1, 5, 5), NULL);
	assert_int_equal(count_events("\"rank-paused\"", "\"rank\":1"), 1);
}

static void times_count_once_the_rank_is_ready(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	connect_all();
	send_step(&h.peers[0], MSG_READY, 0);
	report(progress_row(0, 1, 1), NULL, times_row(1, 7, 3));
	assert_int_equal(count_events("rank-lost", ""), 0);
	assert_int_equal(supervise_times_of(h.supervisor, 1)->step, 0);
	send_step(&h.peers[1], MSG_READY, 0);
	pass_time(5);
	report(progress_row(0, 1, 2), progress_row(1, 7, 1), times_row(1, 7, 3));
	assert_int_equal(supervise_times_of(h.supervisor, 1)->step, 7);
	assert_int_equal(supervise_times_of(h.supervisor, 1)->us[STEP_PART_COMPUTE], 3000000);
}

/* --- messages of MSG_REPORTS ---------------------------------------------------------------------- */

static json_t *health(int64_t number, int64_t step, json_t *findings)
{
	json_t *body = msg_health_json(
		&(struct msg_health){ .number = number, .step = step, .findings = findings });
	json_decref(findings);
	return body;
}

/* Steals the body. */
static void hand_on(int sender, int r, enum msg_type type, json_t *body)
{
	json_t *message = body_of(NULL, NULL, NULL);
	json_array_append_new(json_object_get(message, "reports"), msg_report_row(r, type, body));
	json_decref(body);
	send_message(&h.peers[sender], MSG_NODE_PROGRESS, message);
}

static int64_t window_of(int r)
{
	return h.supervisor->evidence.ranks[r].step;
}

static void reports_are_taken_as_messages_of_their_ranks(void **state)
{
	(void)state;
	begin_training();
	hand_on(0, 1, MSG_HEALTH, health(1, 30, json_array()));
	hand_on(0, 0, MSG_HEALTH, health(1, 31, json_array()));
	assert_int_equal(window_of(1), 30);
	assert_int_equal(window_of(0), 31);
	json_t *links = json_array(), *body;
	json_array_append_new(links, msg_link_json(&(struct msg_link){
					     .group = "dp", .share = 0.5, .rate = 1e9 }));
	body = msg_links_json(&(struct msg_links){ .number = 1, .links = links });
	json_decref(links);
	hand_on(0, 1, MSG_LINKS, body);
	assert_true(h.supervisor->links.links[LINKS_MOST].known);
	assert_false(h.supervisor->links.links[0].known);
	assert_int_equal(count_events("rank-lost", ""), 0);
}

/* Whichever of the two ways it took. */
static void a_report_that_was_overtaken_is_left_out(void **state)
{
	(void)state;
	begin_training();
	send_message(&h.peers[1], MSG_HEALTH, health(5, 50, json_array()));
	hand_on(0, 1, MSG_HEALTH, health(4, 40, json_array()));
	assert_int_equal(window_of(1), 50);
	hand_on(0, 1, MSG_HEALTH, health(6, 60, json_array()));
	send_message(&h.peers[1], MSG_HEALTH, health(6, 61, json_array()));
	assert_int_equal(window_of(1), 60);
}

/* It may have waited with the relay for long. */
static void a_report_is_no_sign_of_life(void **state)
{
	(void)state;
	begin_training();
	for (int i = 1; i < 17; i++) {
		report(progress_row(0, i, i), NULL, NULL);
		hand_on(0, 1, MSG_HEALTH, health(i, i, json_array()));
		pass_time(1);
	}
	assert_int_equal(count_events("\"how\":\"silent\"", "\"rank\":1"), 1);
}

static void an_invalid_report_costs_the_rank_that_it_is_of(void **state)
{
	(void)state;
	begin_training();
	hand_on(0, 1, MSG_HEALTH, health(1, 30, json_object()));
	assert_int_equal(count_events("\"how\":\"protocol\"", "message health"), 1);
	assert_int_equal(h.supervisor->cause.rank, 1);
}

static void a_report_without_a_number_is_invalid(void **state)
{
	(void)state;
	begin_training();
	json_t *body = health(1, 30, json_array());
	json_object_del(body, "number");
	hand_on(0, 1, MSG_HEALTH, body);
	assert_int_equal(count_events("\"how\":\"protocol\"", "number"), 1);
	assert_int_equal(h.supervisor->cause.rank, 1);
}

static void a_report_of_a_rank_that_has_finished_is_left_out(void **state)
{
	(void)state;
	begin_training();
	send_step(&h.peers[1], MSG_FINISHED, 10);
	hand_on(0, 1, MSG_HEALTH, health(1, 30, json_array()));
	assert_int_equal(window_of(1), 0);
}

/* --- what must not come ------------------------------------------------------------------------- */

/* The sender is lost, with this text. */
static void expect_refusal(int sender, json_t *body, const char *text)
{
	send_message(&h.peers[sender], MSG_NODE_PROGRESS, body);
	assert_int_equal(count_events("\"how\":\"protocol\"", text), 1);
	assert_int_equal(h.supervisor->cause.rank, sender);
}

static void a_rank_of_another_node_is_refused(void **state)
{
	(void)state;
	open_on_two_nodes();
	begin_training();
	expect_refusal(0, body_of(progress_row(0, 1, 1), progress_row(1, 1, 1), NULL),
		       "rank 0 does not report for the node of rank 1");
}

static void only_the_first_rank_of_a_node_reports_for_it(void **state)
{
	(void)state;
	begin_training();
	expect_refusal(1, body_of(progress_row(1, 1, 1), NULL, NULL),
		       "rank 1 does not report for the node of rank 1");
}

static void a_rank_without_hello_is_refused(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	send_message(peer_open(0, h.secret, h.generation), MSG_HELLO, hello_json(0));
	expect_refusal(0, body_of(progress_row(1, 1, 1), NULL, NULL), "rank 1 has sent no hello");
}

static void a_row_that_is_none_is_refused(void **state)
{
	for (size_t i = 0; i < sizeof bad_rows / sizeof *bad_rows; i++) {
		json_t *row = json_loads(bad_rows[i], JSON_DECODE_ANY, NULL);
		assert_non_null(row);
		assert_int_equal(setup(state), 0);
		begin_training();
		expect_refusal(0, body_of(row, NULL, NULL), "message ");
		assert_int_equal(teardown(state), 0);
	}
}

static void times_that_are_none_are_refused(void **state)
{
	static const char *const bad[] = { "[1, 5, 0]", "[1, 5, 0, {}]", "[1, 5, 0, [1, 2]]",
					   "[1, -5, 0, []]", "[3, 5, 0, []]" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(setup(state), 0);
		begin_training();
		expect_refusal(0, body_of(NULL, NULL, json_loads(bad[i], 0, NULL)), "message ");
		assert_int_equal(teardown(state), 0);
	}
}

static void reports_that_are_none_are_refused(void **state)
{
	static const char *const bad[] = { "7",
					   "[]",
					   "[1, \"health\"]",
					   "[1, \"health\", []]",
					   "[1, \"health\", {}, 1]",
					   "[1, 7, {}]",
					   "[1, \"failed\", {}]",
					   "[1, \"\", {}]",
					   "[-1, \"health\", {}]",
					   "[2, \"health\", {}]",
					   "[2147483648, \"health\", {}]" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(setup(state), 0);
		begin_training();
		json_t *body = body_of(NULL, NULL, NULL);
		json_array_append_new(json_object_get(body, "reports"),
				      json_loads(bad[i], JSON_DECODE_ANY, NULL));
		expect_refusal(0, body, "message ");
		assert_int_equal(teardown(state), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define NODE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		NODE_TEST(rows_update_their_ranks),
		NODE_TEST(a_rank_that_is_reported_is_not_silent),
		NODE_TEST(a_rank_whose_report_waits_in_a_socket_is_not_silent),
		NODE_TEST(an_older_report_is_left_out),
		NODE_TEST(a_rank_that_has_finished_stays_so),
		NODE_TEST(a_rank_whose_relay_is_silent_is_not_paused),
		NODE_TEST(times_count_once_the_rank_is_ready),
		NODE_TEST(reports_are_taken_as_messages_of_their_ranks),
		NODE_TEST(a_report_that_was_overtaken_is_left_out),
		NODE_TEST(a_report_is_no_sign_of_life),
		NODE_TEST(an_invalid_report_costs_the_rank_that_it_is_of),
		NODE_TEST(a_report_without_a_number_is_invalid),
		NODE_TEST(a_report_of_a_rank_that_has_finished_is_left_out),
		NODE_TEST(a_rank_of_another_node_is_refused),
		NODE_TEST(only_the_first_rank_of_a_node_reports_for_it),
		NODE_TEST(a_rank_without_hello_is_refused),
		cmocka_unit_test(a_row_that_is_none_is_refused),
		cmocka_unit_test(times_that_are_none_are_refused),
		cmocka_unit_test(reports_that_are_none_are_refused),
	};
	return cmocka_run_group_tests_name("progress of a node", tests, NULL, NULL);
}
