/* What a run of two nodes does about the node of a slow rank. A step takes 0.1 s (harness.h). */
#include "launcher/supervise/exclude.h"
#include "tests/unit/launcher/elastic.h"

static double own[WORLD];
static int64_t done;

static void report_progress(int rank)
{
	send_message(&h.peers[rank], MSG_PROGRESS,
		     msg_progress_json(&(struct msg_progress){ .step = 4,
							       .phase = "forward",
							       .count = done,
							       .done = done,
							       .own_s = own[rank] }));
}

/* Trains for that many seconds, or until the generation is asked to stop. In each step the ranks
 * spend these seconds on their own work. */
static void train_at(int seconds, double first, double second)
{
	for (int i = 0; i < 2 * seconds && !h.peers[0].stopped; i++) {
		done += 5;
		own[0] += 5 * first;
		own[1] += 5 * second;
		for (int r = 0; r < h.world; r++)
			report_progress(r);
		pass_time(0.5);
	}
}

/* Rank 1 becomes slower by this factor. The two nodes are of different kinds for the planner, so
 * each rank is compared with its own past. */
static void train(int seconds, double factor)
{
	train_at(45, 0.1 / factor, 0.1 / factor);
	train_at(seconds, 0.1 / factor, 0.1);
}

static int setup_slow(void **state)
{
	memset(own, 0, sizeof own);
	done = 0;
	return setup_run(state);
}

static void a_warning_changes_nothing(void **state)
{
	(void)state;
	open_run("health.slow_policy=warn", NULL);
	train(60, 5);
	assert_false(h.peers[0].stopped);
	assert_int_equal(count_events("\"slow-rank\"", "\"rank\":1"), 1);
	assert_int_equal(count_events("\"slow-node\"", ""), 0);
	assert_int_equal(count_events("\"node-suspected\"", "\"did\":\"\""), 1);
}

static void the_run_leaves_a_node_that_slows_it_down_more_than_it_helps(void **state)
{
	(void)state;
	open_run("health.slow_policy=exclude", NULL);
	train(60, 5);
	assert_int_equal(count_events("\"slow-node\"", "\"excluded\":true"), 1);
	assert_int_equal(count_events("\"node-suspected\"", "the run went on without it"), 1);
	assert_int_equal(count_events("\"decision\"", "\"dp\""), 1);
	finish_all(6);
	assert_int_equal(h.starts, 2);
	assert_int_equal(h.world, 1);
	assert_int_equal(exit_status(), -1);
}

static void the_run_stays_if_it_would_be_slower_without_the_node(void **state)
{
	(void)state;
	open_run("health.slow_policy=exclude", NULL);
	train(100, 1.7);
	assert_false(h.peers[0].stopped);
	assert_int_equal(
		count_events("\"slow-node\"", "stays: a step without it is predicted to take"), 1);
	assert_int_equal(count_events("\"node-suspected\"", "nothing: a step without it"), 1);
}

static void a_node_that_stays_slow_is_considered_again(void **state)
{
	(void)state;
	open_run("health.slow_policy=exclude", NULL);
	train(100, 1.7);
	assert_int_equal(count_events("\"slow-node\"", "stays: "), 1);
	train_at(EXCLUDE_REST_S, 0.1 / 1.7, 0.3); /* it has become slower */
	assert_int_equal(count_events("\"slow-node\"", ""), 2);
	assert_int_equal(count_events("\"slow-node\"", "\"excluded\":true"), 1);
	assert_int_equal(count_events("\"slow-rank\"", ""), 1);
}

static void the_run_stays_if_its_layout_must_not_change(void **state)
{
	(void)state;
	open_run("health.slow_policy=exclude", "restart.shrink=keep");
	train(60, 5);
	assert_false(h.peers[0].stopped);
	assert_int_equal(
		count_events("\"slow-node\"", "stays: the run does not fit on the other nodes"), 1);
}

static void the_only_node_is_not_left(void **state)
{
	(void)state;
	open_run("health.slow_policy=exclude", NULL);
	shrink();
	train_at(45, 0.02, 0);
	train_at(60, 0.1, 0);
	assert_int_equal(count_events("\"slow-node\"", "stays: no other node is usable"), 1);
	assert_false(h.peers[0].stopped);
}

/* The node that replaces the slow one fails: the slow one is used again, and is not left a second
 * time. */
static void a_node_is_not_left_twice(void **state)
{
	(void)state;
	open_run("health.slow_policy=exclude", NULL);
	train(60, 5);
	finish_all(6);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 6);
	m.nodes[0] = NODE_DOWN;
	end_rank(0);
	answer_survey();
	assert_int_equal(h.starts, 3); /* on the slow node alone */
	assert_int_equal(h.world, 1);
	m.nodes[0] = NODE_UP;
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 7);
	pass_time(6);
	send_step(&h.peers[0], MSG_CKPT, 7);
	answer_survey();
	finish_all(7);
	assert_int_equal(h.world, 2);
	train_all();
	for (int i = 0; i < h.world; i++)
		send_step(&h.peers[i], MSG_METRICS, 8);
	train(60, 5);
	assert_int_equal(count_events("\"slow-node\"", "stays: the run has left it before"), 1);
	assert_false(h.peers[0].stopped);
}

/* A person stops the run while it is about to leave a node. */
static void a_stop_is_not_turned_into_a_move(void **state)
{
	(void)state;
	open_run("health.slow_policy=exclude", NULL);
	train(60, 5);
	assert_true(h.peers[0].stopped);
	supervise_stop(h.supervisor, "a person asked for it", false);
	finish_all(6);
	pass_time(1);
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(h.starts, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define SLOW_TEST(f) cmocka_unit_test_setup_teardown(f, setup_slow, teardown_run)
		SLOW_TEST(a_warning_changes_nothing),
		SLOW_TEST(the_run_leaves_a_node_that_slows_it_down_more_than_it_helps),
		SLOW_TEST(the_run_stays_if_it_would_be_slower_without_the_node),
		SLOW_TEST(a_node_that_stays_slow_is_considered_again),
		SLOW_TEST(the_run_stays_if_its_layout_must_not_change),
		SLOW_TEST(the_only_node_is_not_left),
		SLOW_TEST(a_node_is_not_left_twice),
		SLOW_TEST(a_stop_is_not_turned_into_a_move),
	};
	return cmocka_run_group_tests_name("the node of a slow rank", tests, NULL, NULL);
}
