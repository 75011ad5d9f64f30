/* What the supervisor does when nodes are lost: surveys, decisions and new plans. */
#include "tests/unit/launcher/elastic.h"

static void a_lost_node_makes_the_world_smaller(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	lose_node(NODE_DOWN);
	assert_int_equal(h.starts, 1); /* it waits for the survey */
	answer_survey();
	assert_int_equal(h.starts, 2);
	assert_int_equal(h.world, 1);
	assert_int_equal(count_events("\"event\":\"survey\"", "is down"), 1);
	assert_int_equal(count_events("\"event\":\"decision\"", "on 1 of 1 devices"), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "node-down"), 1);
	train_all();
	assert_int_equal(h.peers[0].at[2], 0);
	send_step(&h.peers[0], MSG_METRICS, 4);
	assert_int_equal(exit_status(), -1);
}

static void an_agent_that_died_on_a_good_node_changes_nothing(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	lose_node(NODE_UP);
	answer_survey();
	assert_int_equal(h.world, 2);
	assert_int_equal(count_events("\"event\":\"decision\"", ""), 0);
}

static void a_survey_without_an_answer_is_given_up(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	lose_node(NODE_DOWN);
	pass_time(6);
	assert_null(m.done);
	assert_int_equal(h.starts, 2);
	assert_int_equal(h.world, 2);
}

static void an_answer_for_half_of_the_questions_is_used(void **state)
{
	(void)state;
	bool last;
	open_run(NULL, NULL);
	m.silent = m.partly = true;
	m.nodes[0] = NODE_UNKNOWN;
	lose_node(NODE_DOWN);
	answer_survey();
	assert_int_equal(h.world, 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "node-down"), 1);
	assert_int_equal(count_printed("their manager has answered only in part: no answer", &last),
			 1);
}

/* An earlier answer has said that the job can be requeued. */
static void a_job_that_is_not_described_can_still_be_requeued(void **state)
{
	(void)state;
	open_run("restart.shrink=keep", NULL);
	lose_node(NODE_UP);
	answer_survey();
	train_all();
	m.silent = m.partly = true;
	m.nodes[0] = NODE_UNKNOWN;
	lose_node(NODE_DOWN);
	answer_survey();
	assert_int_equal(m.requeues, 1);
}

static void a_survey_that_cannot_start_does_not_stop_the_restart(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	m.broken = true;
	lose_node(NODE_DOWN);
	assert_int_equal(h.starts, 2);
}

static void the_run_can_be_stopped_while_the_nodes_are_surveyed(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	lose_node(NODE_DOWN);
	supervise_stop(h.supervisor, "Interrupt", false);
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

/* Its process does not end, and no survey of the loss could see it. */
static void a_node_that_dies_after_the_survey_is_not_waited_for(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	h.keep_running = true;
	lose_node(NODE_UP);
	answer_survey();
	m.nodes[0] = NODE_UNREACHABLE;
	assert_int_equal(m.surveys, 1);
	pass_time(11);
	assert_int_equal(m.surveys, 2);
	assert_false(h.node_lost);
	answer_survey();
	assert_true(h.node_lost);
	h.keep_running = false;
	pass_time(0.1);
	assert_int_equal(h.starts, 2);
	assert_int_equal(h.world, 1);
}

static void a_layout_that_must_stay_waits_for_its_node(void **state)
{
	(void)state;
	bool last;
	open_run("restart.shrink=keep", "slurm.requeue=no");
	lose_node(NODE_UNREACHABLE);
	answer_survey();
	assert_int_equal(h.starts, 1);
	for (int i = 0; i < 3; i++) {
		pass_time(6);
		answer_survey();
		assert_int_equal(h.starts, 1);
	}
	assert_int_equal(count_events("\"event\":\"decision\"", "\"wait\""), 1);
	assert_int_equal(count_printed("restart 1 of 10", &last), 0);
	m.nodes[1] = NODE_UP;
	pass_time(6);
	answer_survey();
	assert_int_equal(h.starts, 2);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_events("\"event\":\"generation-start\"", "\"restarts\":1"), 1);
	assert_int_equal(count_printed("generation 2 starts, restart 1 of 10", &last), 1);
	train_all();
}

static void patience_ends(void **state)
{
	(void)state;
	bool last;
	open_run("restart.shrink=keep", "restart.patience=20");
	m.job.slurm.requeue = false;
	lose_node(NODE_DRAIN);
	answer_survey();
	for (int i = 0; i < 8 && exit_status() < 0; i++) {
		pass_time(6);
		if (m.done)
			answer_survey();
	}
	assert_int_equal(exit_status(), STATUS_GAVE_UP);
	assert_int_equal(h.starts, 1);
	count_printed("remedy     ", &last);
	assert_true(last);
	assert_int_equal(count_events("\"event\":\"gave-up\"", "\"restarts\":0"), 1);
}

static void the_wait_for_a_node_can_be_stopped(void **state)
{
	(void)state;
	open_run("restart.shrink=keep", "slurm.requeue=no");
	lose_node(NODE_DOWN);
	answer_survey();
	supervise_stop(h.supervisor, "Terminated", false);
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void lose_a_node_of_a_job_that_was_requeued_often(void)
{
	setenv("SLURM_RESTART_COUNT", "1000", 1);
	lose_node(NODE_FAIL);
	answer_survey();
	unsetenv("SLURM_RESTART_COUNT");
}

static void a_job_that_was_requeued_often_is_not_requeued_again(void **state)
{
	(void)state;
	open_run("restart.shrink=keep", "restart.patience=0");
	lose_a_node_of_a_job_that_was_requeued_often();
	assert_int_equal(m.requeues, 0);
	assert_int_equal(exit_status(), STATUS_GAVE_UP);
}

/* Requeues at time limits count, too. */
static void a_job_that_makes_progress_is_requeued_as_often_as_needed(void **state)
{
	(void)state;
	open_run("restart.shrink=keep", "restart.patience=0");
	send_step(&h.peers[0], MSG_CKPT, 4);
	lose_a_node_of_a_job_that_was_requeued_often();
	assert_int_equal(m.requeues, 1);
}

static void a_layout_that_must_stay_is_requeued(void **state)
{
	(void)state;
	open_run("restart.shrink=keep", NULL);
	lose_node(NODE_FAIL);
	answer_survey();
	assert_int_equal(m.requeues, 1);
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(count_events("\"event\":\"stopped\"", "\"restarts\":0"), 1);
}

static void a_stop_after_the_plan_shrank_reports_no_old_rank(void **state)
{
	(void)state;
	open_run("restart.backoff=5", NULL);
	lose_node(NODE_UP);
	answer_survey();
	connect_all();
	lose_node(NODE_DOWN); /* no progress: the next start waits */
	answer_survey();
	supervise_stop(h.supervisor, "Interrupt", false);
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void a_lost_gpu_takes_its_slot_out(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	json_t *body = msg_failed_json(
		&(struct msg_failed){ .code = err_word(ERR_DEVICE), .text = "GPU0 is lost" });
	send_message(&h.peers[1], MSG_FAILED, body);
	answer_survey();
	assert_int_equal(h.world, 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "device-lost"), 1);
}

static void a_node_that_fails_twice_is_not_used_again(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(h.world, 2);
		lose_node(NODE_UP); /* SIGSEGV: the node is blamed */
		answer_survey();
		train_all();
		send_step(&h.peers[0], MSG_METRICS, 5 + i);
	}
	assert_int_equal(h.world, 1);
}

static void nodes_that_have_ranks_count_once(void **state)
{
	(void)state;
	struct plan_rank ranks[] = {
		{ .node = 1 }, { .node = 3 }, { .node = 1 }, { .node = 0 }, { .node = 3 }
	};
	struct deployment d = { .plan = { .world = 5, .ranks = ranks },
				.cluster = { .n_nodes = 5 } };
	assert_int_equal(launcher_deployment_nodes(&d), 3);
	d.plan.world = 0;
	assert_int_equal(launcher_deployment_nodes(&d), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_that_have_ranks_count_once),
		T(a_lost_node_makes_the_world_smaller),
		T(an_agent_that_died_on_a_good_node_changes_nothing),
		T(a_survey_without_an_answer_is_given_up),
		T(an_answer_for_half_of_the_questions_is_used),
		T(a_job_that_is_not_described_can_still_be_requeued),
		T(a_survey_that_cannot_start_does_not_stop_the_restart),
		T(the_run_can_be_stopped_while_the_nodes_are_surveyed),
		T(a_node_that_dies_after_the_survey_is_not_waited_for),
		T(a_layout_that_must_stay_waits_for_its_node),
		T(patience_ends),
		T(the_wait_for_a_node_can_be_stopped),
		T(a_job_that_was_requeued_often_is_not_requeued_again),
		T(a_job_that_makes_progress_is_requeued_as_often_as_needed),
		T(a_layout_that_must_stay_is_requeued),
		T(a_stop_after_the_plan_shrank_reports_no_old_rank),
		T(a_lost_gpu_takes_its_slot_out),
		T(a_node_that_fails_twice_is_not_used_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
