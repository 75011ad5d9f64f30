/* What the supervisor does when nodes are lost and come back: surveys, decisions and new plans. The
 * agents, the processes and the manager of the nodes are doubles. */
#include "launcher/child.h"
#include "launcher/supervise/node_checks.h"
#include "tests/unit/launcher/harness.h"

static struct {
	struct cluster machines; /* two nodes with a GPU each */
	struct deployment *first;
	struct job job;
	/* the manager of the nodes */
	enum node_state nodes[2];
	int surveys, free, requeues;
	bool silent, partly, broken;
	const char *needs, *check; /* what a check of a node prints */
	char go[300], answer[300];
	int checks;
	void (*checked)(void *arg, int status, const char *output);
	void *check_arg;
	bool checking;
	void (*done)(void *arg, const struct survey *s); /* of the survey that is under way */
	void *arg;
} m;

struct surveying {
	int unused;
};
static struct surveying one_survey;

static int begin_survey(uv_loop_t *loop, const struct survey_request *r,
			void (*done)(void *arg, const struct survey *s), void *arg,
			struct surveying **out, struct err *e)
{
	(void)loop;
	assert_int_equal(r->cluster->n_nodes, 2);
	assert_null(m.done); /* one at a time */
	if (m.broken)
		return err_set(e, ERR_NOMEM, "cannot start another process");
	m.surveys++;
	m.done = done;
	m.arg = arg;
	*out = &one_survey;
	return 0;
}

static void stop_survey(struct surveying *s)
{
	assert_ptr_equal(s, &one_survey);
	m.done = NULL;
}

static int requeue_job(const char *exclude, int min_nodes, int max_nodes, struct err *e)
{
	(void)exclude;
	(void)e;
	assert_int_equal(min_nodes, 2);
	assert_int_equal(max_nodes, 2);
	m.requeues++;
	return 0;
}

static void on_check_ended(void *arg, int status, const char *output)
{
	(void)arg;
	m.checking = false;
	m.checked(m.check_arg, status, output);
}

/* The check answers once the file `go` exists. */
static int check_node(uv_loop_t *loop, const struct check_request *r,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e)
{
	static char script[] = "until [ -e \"$0\" ]; do sleep 0.01; done; echo \"$1\"";
	char *const argv[] = { "sh", "-c", script, m.go, m.answer, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	assert_string_equal(r->node, m.machines.nodes[1].name);
	assert_string_equal(r->needs, "{}");
	snprintf(m.go, sizeof m.go, "%s/go", h.dir);
	snprintf(m.answer, sizeof m.answer, "%s", m.check);
	unlink(m.go);
	m.checks++;
	m.checked = ended;
	m.check_arg = arg;
	m.checking = true;
	return launcher_child_watch(loop, &c, on_check_ended, NULL, out, e);
}

static void answer_check(void)
{
	uv_timer_t awake;
	close(open(m.go, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	uv_timer_init(&h.loop, &awake);
	uv_timer_start(&awake, on_nothing, 1, 1);
	while (m.checking)
		uv_run(&h.loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&awake, NULL);
	deliver_all();
}

static void answer_survey(void)
{
	void (*done)(void *arg, const struct survey *s) = m.done;
	struct survey s = { .answered = !m.silent,
			    .nodes = m.nodes,
			    .n_nodes = 2,
			    .partly = !m.silent || m.partly,
			    .job_known = !m.silent,
			    .can_requeue = !m.silent,
			    .free = m.free,
			    .why = "no answer" };
	assert_non_null(done);
	m.done = NULL;
	done(m.arg, &s);
	deliver_all();
}

static const struct launch_ops elastic_ops = { .name = "fake",
					       .start = fake_start,
					       .kill = fake_kill,
					       .close = fake_close,
					       .survey = begin_survey,
					       .survey_stop = stop_survey,
					       .requeue = requeue_job,
					       .check_node = check_node };

/* Opens a run of two ranks, one per node, with these words of the job in addition. */
static void open_run(const char *a, const char *b)
{
	const char *words[] = { "model.layers=8",
				"model.hidden=1024",
				"model.heads=8",
				"model.vocab=256",
				"model.seq=1024",
				"batch.global=64",
				"parallel.dp=2",
				"job.device=cuda",
				"checkpoint.resume=none",
				"restart.backoff=0",
				a,
				b };
	struct cluster whole, used;
	struct cluster_slot gone[14];
	struct err e = ERR_INIT;
	for (int i = 0; i < 14; i++)
		gone[i] = (struct cluster_slot){ i / 7, 1 + i % 7 };
	if (job_words(words,
		      b   ? 12
		      : a ? 11
			  : 10,
		      &m.job, &e) ||
	    topo_cluster_open("dgx-h100:2", 0, &whole, &e) ||
	    topo_cluster_without(&whole, gone, 14, &m.machines, &e) ||
	    topo_cluster_without(&m.machines, NULL, 0, &used, &e) ||
	    launcher_deployment_build(&m.job, 2, 0, &used, &m.first, &e))
		fail_msg("%s", e.text);
	topo_cluster_free(&whole);
	supervise_close(h.supervisor);
	uv_run(&h.loop, UV_RUN_DEFAULT);
	const struct supervise_options o = {
		.loop = &h.loop,
		.job = &m.job,
		.machines = &m.machines,
		.first = m.first,
		.ops = &elastic_ops,
		.agent = h.agent,
		.needs = m.needs,
		.run = h.run,
		.term = h.term,
		.listener = -1,
		.address = "127.0.0.1:1",
		.limits = SUPERVISE_LIMITS,
		.now = fake_now,
	};
	assert_int_equal(supervise_open(&o, &h.supervisor, NULL), 0);
	supervise_start(h.supervisor);
	train_all();
	for (int i = 0; i < h.world; i++)
		send_step(&h.peers[i], MSG_METRICS, 3);
}

/* The agent of rank 1 ends because its node has this state now. */
static void lose_node(enum node_state state)
{
	m.nodes[1] = state;
	end_rank(1);
}

static int setup_run(void **state)
{
	memset(&m, 0, sizeof m);
	m.nodes[0] = m.nodes[1] = NODE_UP;
	return setup(state);
}

static int teardown_run(void **state)
{
	int rc = teardown(state);
	launcher_deployment_free(m.first);
	topo_cluster_free(&m.machines);
	return rc;
}

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

static void shrink(void)
{
	lose_node(NODE_UNREACHABLE);
	answer_survey();
	assert_int_equal(h.world, 1);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 4);
}

/* The agents do what the supervisor asks: they write a checkpoint and finish. */
static void finish_all(int64_t step)
{
	for (int i = 0; i < h.world; i++) {
		assert_true(h.peers[i].stopped && h.peers[i].checkpoint);
		send_step(&h.peers[i], MSG_FINISHED, step);
	}
	for (int i = 0; i < 2; i++)
		end_process(i, 0);
	deliver_all();
}

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
	m.check = "muster-check: ok";
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
	m.check = "muster-check: GPU3: it does not answer; drain the node";
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
	m.check = "muster-check: ok";
	train_for(NODE_CHECK_AGAIN, 110);
	look_at(200);
	answer_check();
	assert_true(h.peers[0].stopped);
}

static void a_check_without_a_result_counts_as_failed(void **state)
{
	(void)state;
	m.needs = "{}";
	m.check = "srun: error: Unable to create step";
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
	m.check = "muster-check: ok";
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
	m.check = "muster-check: ok";
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

#define T(f) cmocka_unit_test_setup_teardown(f, setup_run, teardown_run)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_lost_node_makes_the_world_smaller),
		T(an_agent_that_died_on_a_good_node_changes_nothing),
		T(a_survey_without_an_answer_is_given_up),
		T(an_answer_for_half_of_the_questions_is_used),
		T(a_job_that_is_not_described_can_still_be_requeued),
		T(a_survey_that_cannot_start_does_not_stop_the_restart),
		T(the_run_can_be_stopped_while_the_nodes_are_surveyed),
		T(a_layout_that_must_stay_waits_for_its_node),
		T(patience_ends),
		T(the_wait_for_a_node_can_be_stopped),
		T(a_layout_that_must_stay_is_requeued),
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
		T(a_stop_after_the_plan_shrank_reports_no_old_rank),
		T(without_regrow_nobody_looks_for_nodes),
		T(a_free_node_that_left_the_job_requeues_it_by_choice),
		T(a_lost_gpu_takes_its_slot_out),
		T(a_node_that_fails_twice_is_not_used_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
