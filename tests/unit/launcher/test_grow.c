/* What the supervisor does when nodes are back: looks for them, checks them, and grows onto them. */
#include "launcher/rundir/time.h"
#include "launcher/supervise/node_checks.h"
#include "tests/unit/launcher/elastic.h"

#include <math.h>

static void a_node_that_is_back_makes_the_run_grow_at_a_checkpoint(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	shrink();
	send_step(&h.peers[0], MSG_CKPT, 4);
	answer_survey(); /* it is not back */
	assert_false(h.peers[0].stopped);
	m.nodes[1] = NODE_UP;
	send_step(&h.peers[0], MSG_CKPT, 5);
	assert_null(m.done); /* too early for another look */
	pass_time(6);
	send_step(&h.peers[0], MSG_CKPT, 6);
	answer_survey();
	finish_all(6);
	assert_int_equal(h.starts, 3);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_events("\"event\":\"decision\"", "\"grow\""), 1);
	train_all();
	assert_int_equal(exit_status(), -1);
}

/* Of a program no step is predicted, and it says itself when it has saved. */
static void a_program_grows_at_a_checkpoint_that_it_reports(void **state)
{
	(void)state;
	const struct msg_client_ckpt saved = { .step = 6, .path = "my/ckpt" };
	open_program();
	shrink();
	m.nodes[1] = NODE_UP;
	pass_time(6);
	send_message(&h.peers[0], MSG_CLIENT_CKPT, msg_client_ckpt_json(&saved));
	answer_survey();
	finish_all(6);
	assert_int_equal(h.starts, 3);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_events("\"how\":\"grow\"", "\"possible\":true"), 1);
	train_all();
	assert_int_equal(exit_status(), -1);
}

static void a_program_without_checkpoints_grows_when_it_starts_again(void **state)
{
	(void)state;
	open_program();
	shrink();
	m.nodes[1] = NODE_UP;
	end_rank(0);
	end_process(0, 1 << 8); /* after its task */
	answer_survey();
	assert_int_equal(h.starts, 3);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_events("\"event\":\"decision\"", "\"grow\""), 1);
	train_all();
	assert_int_equal(exit_status(), -1);
}

/* One that reports them grows at the next one: the node is checked first. */
static void a_program_with_checkpoints_starts_again_on_its_nodes(void **state)
{
	(void)state;
	const struct msg_client_ckpt saved = { .step = 4, .path = "my/ckpt" };
	open_program();
	shrink();
	send_message(&h.peers[0], MSG_CLIENT_CKPT, msg_client_ckpt_json(&saved));
	answer_survey();
	m.nodes[1] = NODE_UP;
	end_rank(0);
	end_process(0, 1 << 8); /* after its task */
	answer_survey();
	assert_int_equal(h.starts, 3);
	assert_int_equal(h.world, 1);
}

/* Rank 0 reports so many steps of a second. */
static void report_compute(int64_t seconds)
{
	int64_t us[TIME_REPORTED] = { [STEP_PART_COMPUTE] = 1000000 * seconds };
	json_t *list = time_reported_json(us);
	const struct msg_times times = { .step = seconds, .us = list };
	send_message(&h.peers[0], MSG_TIMES, msg_times_json(&times));
	json_decref(list);
}

/* What the ranks do from their last step until the larger generation is ready is a restart. */
static void the_change_to_more_nodes_is_time_of_restarts(void **state)
{
	(void)state;
	struct rundir_time_line before, l;
	open_run(NULL, NULL);
	shrink();
	m.nodes[1] = NODE_UP;
	pass_time(6);
	send_step(&h.peers[0], MSG_CKPT, 6);
	assert_int_equal(rundir_time_last(rundir_path(h.run), &before, NULL), 0);
	answer_survey();
	assert_true(h.peers[0].stopped);
	report_compute(6);
	send_step(&h.peers[0], MSG_FINISHED, 6);
	pass_time(3); /* the process takes its time to end */
	end_process(0, 0);
	deliver_all();
	assert_int_equal(h.starts, 3);
	connect_all();
	pass_time(2);
	for (int r = 0; r < 2; r++)
		send_step(&h.peers[r], MSG_READY, 6);
	send_step(&h.peers[0], MSG_CKPT, 7);
	assert_int_equal(rundir_time_last(rundir_path(h.run), &l, NULL), 0);
	assert_int_equal(l.ranks, 2);
	assert_true(l.stop_s == before.stop_s);
	/* One rank for 3 s, and both of them for 2 s. */
	assert_in_range(llround(10 * (l.restart_s - before.restart_s)), 10 * (3 + 2 * 2) - 3,
			10 * (3 + 2 * 2) + 3);
}

/* The second node is back, and the run looks for nodes at a checkpoint of this step. */
static void look_at(int64_t step)
{
	m.nodes[1] = NODE_UP;
	pass_time(6);
	send_step(&h.peers[0], MSG_CKPT, step);
	answer_survey();
}

static void a_node_is_checked_before_the_run_stops_to_grow(void **state)
{
	(void)state;
	m.needs = "{}";
	m.check = "ok";
	open_run(NULL, NULL);
	shrink();
	look_at(5);
	assert_int_equal(m.checks, 1);
	assert_false(h.peers[0].stopped);
	answer_check();
	assert_int_equal(count_events("\"event\":\"node-check\"", "\"passed\":true"), 1);
	finish_all(6);
	assert_int_equal(h.world, 2);
	train_all();
	assert_int_equal(m.checks, 1);
}

/* Trains one step every 5 s: ranks that are silent would be lost. */
static void train_for(double seconds, int64_t step)
{
	for (double end = h.now + seconds; h.now < end;) {
		send_message(&h.peers[0], MSG_PROGRESS, step_json(MSG_PROGRESS, step++));
		pass_time(5);
	}
}

static void a_node_that_fails_its_check_is_not_grown_onto(void **state)
{
	(void)state;
	bool last;
	m.needs = "{}";
	m.check = "GPU3: it does not answer; drain the node";
	open_run(NULL, NULL);
	shrink();
	look_at(5);
	answer_check();
	assert_int_equal(count_events("\"event\":\"node-check\"", "GPU3: it does not answer"), 1);
	look_at(6); /* too early to ask again */
	assert_int_equal(m.checks, 1);
	train_for(NODE_CHECK_AGAIN, 10);
	look_at(100);
	answer_check();
	assert_int_equal(m.checks, 2);
	assert_false(h.peers[0].stopped);
	assert_int_equal(count_printed("is back, but the run does not grow onto it: GPU3", &last),
			 1);
	assert_int_equal(count_events("\"event\":\"node-check\"", ""), 1);
	m.check = "ok";
	train_for(NODE_CHECK_AGAIN, 110);
	look_at(200);
	answer_check();
	assert_true(h.peers[0].stopped);
}

static void a_check_without_a_result_counts_as_failed(void **state)
{
	(void)state;
	m.needs = "{}";
	m.check = "!srun: error: Unable to create step";
	open_run(NULL, NULL);
	shrink();
	look_at(5);
	answer_check();
	assert_false(h.peers[0].stopped);
	assert_int_equal(count_events("\"event\":\"node-check\"", "printed no result"), 1);
}

static void a_check_that_hangs_is_ended(void **state)
{
	(void)state;
	m.needs = "{}";
	m.check = "ok";
	open_run(NULL, NULL);
	shrink();
	look_at(5);
	train_for(NODE_CHECK_SECONDS + 1, 10);
	assert_false(h.peers[0].stopped);
	assert_int_equal(count_events("\"event\":\"node-check\"", "took too long"), 1);
}

static void a_loss_ends_the_checks(void **state)
{
	(void)state;
	m.needs = "{}";
	m.check = "ok";
	open_run(NULL, NULL);
	shrink();
	look_at(5);
	end_rank(0);
	answer_survey();
	assert_int_equal(h.starts, 3);
	assert_int_equal(count_events("\"event\":\"node-check\"", ""), 0);
	train_all();
	look_at(6); /* asked again, because nothing is known */
	assert_int_equal(m.checks, 2);
	answer_check();
	assert_true(h.peers[0].stopped);
}

static void a_run_that_is_stopped_does_not_grow(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	shrink();
	m.nodes[1] = NODE_UP;
	send_step(&h.peers[0], MSG_CKPT, 5);
	answer_survey();
	supervise_stop(h.supervisor, "Terminated", false);
	finish_all(6);
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(h.starts, 2);
}

static void a_loss_while_growing_restarts(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	shrink();
	m.nodes[1] = NODE_UP;
	send_step(&h.peers[0], MSG_CKPT, 5);
	answer_survey();
	end_rank(0);
	answer_survey();
	assert_int_equal(h.starts, 3);
	assert_int_equal(exit_status(), -1);
}

static void agents_that_hang_while_growing_are_replaced(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	shrink();
	m.nodes[1] = NODE_UP;
	send_step(&h.peers[0], MSG_CKPT, 5);
	answer_survey();
	for (int i = 0; i < 400 && h.starts < 3; i++) {
		send_message(&h.peers[0], MSG_PROGRESS, step_json(MSG_PROGRESS, 6));
		pass_time(1);
		if (m.done)
			answer_survey();
	}
	assert_int_equal(h.starts, 3);
	assert_int_equal(exit_status(), -1);
}

static void a_stop_while_the_grown_agents_leave_ends_the_run(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	shrink();
	m.nodes[1] = NODE_UP;
	send_step(&h.peers[0], MSG_CKPT, 5);
	answer_survey();
	send_step(&h.peers[0], MSG_FINISHED, 6); /* its process still runs */
	supervise_stop(h.supervisor, "Terminated", false);
	end_process(0, 0);
	deliver_all();
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void a_node_that_is_back_but_not_well_is_excluded(void **state)
{
	(void)state;
	open_run(NULL, NULL);
	shrink();
	m.nodes[1] = NODE_UP;
	send_step(&h.peers[0], MSG_CKPT, 5);
	answer_survey();
	finish_all(6);
	connect_all();
	json_t *body = msg_failed_json(&(struct msg_failed){ .code = err_word(ERR_NOTFOUND),
							     .text = "/data: does not exist" });
	send_message(&h.peers[1], MSG_FAILED, body);
	answer_survey();
	assert_int_equal(h.starts, 4);
	assert_int_equal(h.world, 1);
	assert_int_equal(exit_status(), -1);
}

static void without_regrow_nobody_looks_for_nodes(void **state)
{
	(void)state;
	open_run("restart.regrow=no", NULL);
	shrink();
	send_step(&h.peers[0], MSG_CKPT, 5);
	assert_null(m.done);
}

static void a_free_node_that_left_the_job_requeues_it_by_choice(void **state)
{
	(void)state;
	open_run("restart.regrow=requeue", NULL);
	shrink();
	m.nodes[1] = NODE_LEFT;
	m.free = 1;
	send_step(&h.peers[0], MSG_CKPT, 5);
	answer_survey();
	finish_all(6);
	assert_int_equal(m.requeues, 1);
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void a_refused_requeue_does_not_end_a_run_that_trained(void **state)
{
	(void)state;
	open_run("restart.regrow=requeue", NULL);
	shrink();
	m.nodes[1] = NODE_LEFT;
	m.free = 1;
	m.refuse = true;
	send_step(&h.peers[0], MSG_CKPT, 5);
	answer_survey();
	finish_all(6);
	assert_int_equal(exit_status(), -1);
	assert_int_equal(h.starts, 3);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 7);
	pass_time(6);
	send_step(&h.peers[0], MSG_CKPT, 7);
	answer_survey(); /* it is not asked again: each attempt costs a start */
	assert_false(h.peers[0].stopped);
	assert_int_equal(m.requeues, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_program_grows_at_a_checkpoint_that_it_reports),
		T(a_program_without_checkpoints_grows_when_it_starts_again),
		T(a_program_with_checkpoints_starts_again_on_its_nodes),
		T(the_change_to_more_nodes_is_time_of_restarts),
		T(a_node_that_is_back_makes_the_run_grow_at_a_checkpoint),
		T(a_node_is_checked_before_the_run_stops_to_grow),
		T(a_node_that_fails_its_check_is_not_grown_onto),
		T(a_check_without_a_result_counts_as_failed),
		T(a_check_that_hangs_is_ended),
		T(a_loss_ends_the_checks),
		T(a_run_that_is_stopped_does_not_grow),
		T(a_loss_while_growing_restarts),
		T(agents_that_hang_while_growing_are_replaced),
		T(a_stop_while_the_grown_agents_leave_ends_the_run),
		T(a_node_that_is_back_but_not_well_is_excluded),
		T(without_regrow_nobody_looks_for_nodes),
		T(a_free_node_that_left_the_job_requeues_it_by_choice),
		T(a_refused_requeue_does_not_end_a_run_that_trained),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
