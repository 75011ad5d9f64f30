/* What the supervisor does with [launch] preflight = quick: all nodes are checked before the first
 * generation. */
#include "launcher/supervise/node_checks.h"
#include "tests/unit/launcher/elastic.h"

static const char yes[] = "launch.preflight=quick";

/* Starts a run whose nodes answer the check like this. */
static void start_checked(const char *node0, const char *node1, const char *word)
{
	m.needs = "{}";
	m.check0 = node0;
	m.check = node1;
	start_run(yes, word);
	assert_int_equal(m.checks, 1);
	assert_int_equal(h.starts, 0);
}

static void nodes_that_pass_change_nothing(void **state)
{
	(void)state;
	bool last;
	start_checked("ok", "ok", NULL);
	answer_check();
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_events("\"event\":\"nodes-checked\"", "\"passed\":2,\"failed\":0"),
			 1);
	assert_int_equal(count_events("\"event\":\"node-check\"", ""), 0);
	assert_int_equal(count_printed("2 of 2 passed the check, which took", &last), 1);
	assert_null(m.done);
	train_all();
	lose_node(NODE_UP); /* it does not count as a node that was just back */
	answer_survey();
	assert_int_equal(h.world, 2);
}

static void a_node_that_fails_is_left_out(void **state)
{
	(void)state;
	bool last;
	start_checked("ok", "GPU3: it does not answer; drain the node", NULL);
	answer_check();
	assert_int_equal(h.starts, 0);
	answer_survey();
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 1);
	assert_int_equal(count_events("\"event\":\"node-check\"", "GPU3: it does not answer"), 1);
	assert_int_equal(count_events("\"event\":\"nodes-checked\"", "\"passed\":1,\"failed\":1"),
			 1);
	assert_int_equal(count_events("\"event\":\"decision\"", "on 1 of 1 devices"), 1);
	assert_int_equal(count_printed(" is not used: GPU3: it does not answer; drain", &last), 1);
	assert_int_equal(count_events("\"event\":\"restart\"", ""), 0);
	/* One of two may lack what the job needs: that makes no node a suspect. */
	assert_int_equal(count_events("\"event\":\"node-suspected\"", ""), 0);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 1);
	assert_int_equal(exit_status(), -1);
}

static void a_layout_that_must_stay_is_requeued_without_the_node(void **state)
{
	(void)state;
	start_checked("ok", "GPU3: it does not answer", "restart.shrink=keep");
	answer_check();
	answer_survey();
	assert_int_equal(m.requeues, 1);
	assert_int_equal(h.starts, 0);
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

/* Neither is a node that failed used because there is no other one. */
static void a_layout_that_must_stay_ends_if_it_cannot_be_requeued(void **state)
{
	(void)state;
	bool last;
	m.silent = true;
	start_checked("ok", "GPU3: it does not answer", "restart.shrink=keep");
	answer_check();
	answer_survey();
	assert_int_equal(h.starts, 0);
	assert_int_equal(exit_status(), STATUS_CANNOT_START);
	assert_int_equal(count_printed("the nodes that are left cannot run the job", &last), 1);
}

static void a_survey_that_is_silent_does_not_keep_the_run_from_starting(void **state)
{
	(void)state;
	start_checked("ok", "GPU3: it does not answer", NULL);
	answer_check();
	assert_non_null(m.done);
	pass_time(6);
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 1);
}

static void a_node_without_an_answer_is_asked_again_alone(void **state)
{
	(void)state;
	start_checked("ok", NULL, NULL);
	answer_check();
	assert_int_equal(m.checks, 2);
	assert_int_equal(h.starts, 0);
	answer_check();
	answer_survey();
	assert_int_equal(h.world, 1);
	assert_int_equal(count_events("\"event\":\"node-check\"", "printed no result"), 1);
}

static void nodes_that_cannot_be_asked_start_unchecked(void **state)
{
	(void)state;
	bool last;
	start_checked(NULL, "!srun: error: Unable to contact slurm controller", NULL);
	answer_check();
	assert_int_equal(m.checks, 1);
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 2);
	assert_int_equal(
		count_printed("they cannot be checked, and the run starts without that", &last), 1);
}

static void a_check_of_all_nodes_that_hangs_is_ended(void **state)
{
	(void)state;
	start_checked("ok", "ok", NULL);
	pass_time(NODE_CHECK_SECONDS + 1);
	assert_int_equal(h.starts, 0);
	assert_int_equal(m.checks, 3); /* each node alone */
}

static void a_run_can_be_stopped_while_its_nodes_are_checked(void **state)
{
	(void)state;
	start_checked("ok", "ok", NULL);
	supervise_stop(h.supervisor, "Terminated", false);
	assert_int_equal(h.starts, 0);
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void without_the_key_no_node_is_checked(void **state)
{
	(void)state;
	m.needs = "{}";
	m.check = m.check0 = "broken";
	start_run(NULL, NULL);
	assert_int_equal(m.checks, 0);
	assert_int_equal(h.starts, 1);
}

/* A node that failed the first check is asked again when the run looks for nodes. */
static void a_node_that_failed_is_grown_onto_when_it_is_well(void **state)
{
	(void)state;
	start_checked("ok", "GPU3: it does not answer", NULL);
	answer_check();
	answer_survey();
	train_all();
	m.check = "ok";
	for (int64_t step = 1; m.checks < 2 && step < 100; step++) {
		send_step(&h.peers[0], MSG_METRICS, step);
		send_message(&h.peers[0], MSG_PROGRESS, step_json(MSG_PROGRESS, step));
		pass_time(6);
		send_step(&h.peers[0], MSG_CKPT, step);
		if (m.done)
			answer_survey();
	}
	assert_int_equal(m.checks, 2);
	answer_check();
	finish_all(100);
	assert_int_equal(h.world, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nodes_that_pass_change_nothing),
		T(a_node_that_fails_is_left_out),
		T(a_layout_that_must_stay_is_requeued_without_the_node),
		T(a_layout_that_must_stay_ends_if_it_cannot_be_requeued),
		T(a_survey_that_is_silent_does_not_keep_the_run_from_starting),
		T(a_node_without_an_answer_is_asked_again_alone),
		T(nodes_that_cannot_be_asked_start_unchecked),
		T(a_check_of_all_nodes_that_hangs_is_ended),
		T(a_run_can_be_stopped_while_its_nodes_are_checked),
		T(without_the_key_no_node_is_checked),
		T(a_node_that_failed_is_grown_onto_when_it_is_well),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
