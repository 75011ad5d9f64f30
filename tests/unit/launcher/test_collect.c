/* Logs that stay on the nodes: who is told to move them to the run folder, and when. */
#include "base/run_paths.h"
#include "plan/spec/job/node_path.h"
#include "tests/unit/launcher/viewer.h"

static int setup_local(void **state)
{
	if (setup_started(state))
		return -1;
	snprintf(h.first.job.log.local, sizeof h.first.job.log.local, "/scratch/%%N");
	return 0;
}

static void ask_logs(struct viewer *v, const char *ranks, const char *node)
{
	int before = v->answers;
	tell(v, MSG_CONSOLE_ASK,
	     msg_console_ask_json(&(struct msg_console_ask){ .what = "logs",
							     .has_ranks = ranks != NULL,
							     .ranks = ranks,
							     .has_node = node != NULL,
							     .node = node }));
	pump();
	assert_int_equal(v->answers, before + 1);
}

/* why: NULL: the log has moved. */
static void send_collected(int by, int rank, const char *why)
{
	send_message(
		&h.peers[by], MSG_COLLECTED,
		msg_collected_json(&(struct msg_collected){
			.rank = rank, .node = "here", .has_error = why != NULL, .error = why }));
	pump();
}

/* Rank 1 is killed, and all ranks of the next generation train. */
static void lose_rank_1(void)
{
	end_rank(1);
	pass_time(2); /* the back-off */
	train_all();
}

static void a_console_is_told_when_the_logs_are_there(void **state)
{
	(void)state;
	struct viewer *a = viewer_join(0), *b = viewer_join(1);
	ask_logs(a, NULL, NULL);
	assert_true(a->last.ok && !a->last.more); /* no rank is connected */
	train_all();
	ask_logs(a, "0", NULL); /* it is always there */
	assert_true(a->last.ok && !a->last.more);
	ask_logs(a, NULL, "there");
	assert_true(a->last.ok && !a->last.more);
	assert_int_equal(h.peers[1].collects, 0);
	ask_logs(a, "0-7", "here");
	assert_true(a->last.ok && a->last.more);
	assert_int_equal(h.peers[0].collects, 0);
	assert_int_equal(h.peers[1].collects, 1);
	assert_int_equal(h.peers[1].collect_rank, 1);
	assert_string_equal(h.peers[1].collect_node, "here");
	ask_logs(b, "1", NULL); /* waits for the same */
	assert_true(b->last.ok && b->last.more);
	assert_int_equal(h.peers[1].collects, 1);
	send_collected(1, 1, NULL);
	assert_int_equal(a->answers, 5);
	assert_true(a->last.ok && !a->last.more);
	assert_true(b->last.ok && !b->last.more);
	ask_logs(b, "1", NULL);
	assert_true(b->last.ok && !b->last.more);
	assert_int_equal(h.peers[1].collects, 1);
}

static void a_log_that_cannot_move_is_told(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask_logs(v, "1", NULL);
	send_collected(0, 0, NULL); /* nobody has asked for it */
	assert_int_equal(v->answers, 1);
	send_collected(1, 1, "the disk is full");
	assert_int_equal(v->answers, 2);
	assert_false(v->last.ok);
	assert_non_null(strstr(v->last.text, "rank 1 on here: the disk is full"));
	ask_logs(v, "1", NULL);
	assert_int_equal(h.peers[1].collects, 2);
	send_collected(1, 1, NULL);
	assert_true(v->last.ok);
	ask_logs(v, "one", NULL);
	assert_false(v->last.ok);
	assert_int_equal(exit_status(), -1);
}

static void logs_in_the_run_folder_are_not_collected(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	snprintf(h.first.job.log.local, sizeof h.first.job.log.local, "auto"); /* 2 ranks are few */
	train_all();
	ask_logs(v, NULL, NULL);
	assert_true(v->last.ok && !v->last.more);
	end_rank(1);
	assert_int_equal(h.peers[0].collects + h.peers[1].collects, 0);
}

static void between_two_generations_nothing_can_be_collected(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	h.keep_running = true; /* its process does not end */
	end_rank(1);
	ask_logs(v, "1", NULL);
	assert_true(!v->last.ok && !v->last.more);
	assert_non_null(strstr(v->last.text, "ask again"));
	h.keep_running = false;
	pass_time(0.2);
}

/* A start that does not go on is when logs are wanted. */
static void a_rank_that_is_not_ready_is_asked_too(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	connect_all();
	ask_logs(v, "1", NULL);
	assert_true(v->last.ok && v->last.more);
	assert_int_equal(h.peers[1].collects, 1);
	pass_time(0.2);
	assert_int_equal(v->answers, 1);
	for (int i = 0; i < h.world; i++)
		send_step(&h.peers[i], MSG_READY, 0);
	send_collected(1, 1, NULL);
	assert_int_equal(v->answers, 2);
	assert_true(v->last.ok && !v->last.more);
}

static void a_loss_ends_the_wait(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask_logs(v, "1", NULL);
	end_rank(1);
	pass_time(0.3);
	pump();
	assert_int_equal(v->answers, 2);
	assert_false(v->last.ok);
	assert_non_null(strstr(v->last.text, "the generation ended"));
}

static void stop_now(void)
{
	supervise_stop(h.supervisor, "enough", true);
	pump();
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void the_next_generation_moves_the_log_of_a_lost_rank(void **state)
{
	bool last;
	(void)state;
	train_all();
	end_rank(1);
	assert_int_equal(h.peers[0].collects, 0); /* it should leave quickly */
	pass_time(2);                             /* the back-off */
	connect_all();
	assert_int_equal(h.peers[0].collects + h.peers[1].collects, 0);
	for (int i = 0; i < h.world; i++)
		send_step(&h.peers[i], MSG_READY, 0);
	assert_int_equal(h.peers[0].collects, 0);
	assert_int_equal(h.peers[1].collects, 1); /* the rank itself is on the node */
	assert_int_equal(h.peers[1].collect_rank, 1);
	assert_string_equal(h.peers[1].collect_node, "here");
	send_collected(1, 1, NULL);
	stop_now();
	assert_int_equal(count_printed("was lost, and its log", &last), 0);
}

static void a_log_that_nobody_could_move_is_named_at_the_end(void **state)
{
	bool last;
	(void)state;
	train_all();
	lose_rank_1();
	send_collected(1, 1, "the disk is full");
	assert_int_equal(
		count_events("\"warn\"", "which was lost, stays on here: the disk is full"), 1);
	end_rank(1);
	pass_time(3);
	train_all();
	assert_int_equal(h.peers[1].collects, 1); /* once more */
	stop_now();
	assert_int_equal(count_printed("still on here: /scratch/here/run-", &last), 1);
}

static void a_log_that_is_in_the_run_folder_is_not_asked_for(void **state)
{
	bool last;
	char path[RUN_PATH];
	(void)state;
	run_path_rank_log(path, rundir_path(h.run), "here", 1);
	train_all();
	close(open(path, O_WRONLY | O_CREAT, 0600));
	lose_rank_1();
	assert_int_equal(h.peers[0].collects + h.peers[1].collects, 0);
	stop_now();
	assert_int_equal(count_printed("was lost, and its log", &last), 0);
}

static void a_log_that_does_not_exist_is_forgotten(void **state)
{
	bool last;
	(void)state;
	train_all();
	lose_rank_1();
	send_message(&h.peers[1], MSG_COLLECTED,
		     msg_collected_json(&(struct msg_collected){ .rank = 1,
								 .node = "here",
								 .has_error = true,
								 .error = "there is no such log",
								 .has_gone = true,
								 .gone = true }));
	assert_int_equal(count_events("\"warn\"", "is not on here"), 1);
	stop_now();
	assert_int_equal(count_printed("was lost, and its log", &last), 0);
}

static void an_agent_of_another_node_is_not_asked(void **state)
{
	(void)state;
	static struct cluster_node nodes[2];
	supervise_close(h.supervisor);
	nodes[0] = nodes[1] = h.node;
	snprintf(nodes[1].name, sizeof nodes[1].name, "there");
	h.first.cluster.nodes = nodes;
	h.first.cluster.n_nodes = 2;
	h.ranks[1].node = 1;
	assert_int_equal(open_supervisor(&fake_ops), 0);
	supervise_start(h.supervisor);
	train_all();
	end_rank(1);
	h.ranks[1].node = 0; /* the next generation does without the node */
	pass_time(2);
	train_all();
	assert_int_equal(h.peers[0].collects + h.peers[1].collects, 0);
}

static void a_rank_that_fails_by_itself_may_move_its_log(void **state)
{
	bool last;
	(void)state;
	train_all();
	send_message(&h.peers[1], MSG_FAILED,
		     msg_failed_json(&(struct msg_failed){ .code = "io", .text = "the disk" }));
	assert_int_equal(h.peers[0].collects + h.peers[1].collects, 0);
	pass_time(2);
	train_all();
	assert_int_equal(h.peers[1].collects, 1); /* it has not said that it did */
	send_message(&h.peers[1], MSG_FAILED,
		     msg_failed_json(&(struct msg_failed){ .code = "io", .text = "the disk" }));
	stop_now();
	assert_int_equal(count_printed("was lost, and its log", &last), 1);
}

static void the_run_has_an_id_if_logs_stay_on_the_nodes(void **state)
{
	char path[RUN_PATH], folder[RUN_PATH], again[RUN_PATH];
	(void)state;
	run_path(path, rundir_path(h.run), RUN_LOGS_ID);
	assert_int_equal(access(path, F_OK), -1); /* setup_local() is later than the first start */
	train_all();
	end_rank(1);
	pass_time(2);
	assert_int_equal(job_logs_folder(&h.first.job, rundir_path(h.run), "n", NULL, folder, NULL),
			 0);
	end_rank(0);
	pass_time(3);
	assert_int_equal(job_logs_folder(&h.first.job, rundir_path(h.run), "n", NULL, again, NULL),
			 0);
	assert_string_equal(folder, again);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup_local, teardown_all)

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		CASE(a_console_is_told_when_the_logs_are_there),
		CASE(a_log_that_cannot_move_is_told),
		CASE(logs_in_the_run_folder_are_not_collected),
		CASE(between_two_generations_nothing_can_be_collected),
		CASE(a_rank_that_is_not_ready_is_asked_too),
		CASE(a_loss_ends_the_wait),
		CASE(the_next_generation_moves_the_log_of_a_lost_rank),
		CASE(a_log_that_nobody_could_move_is_named_at_the_end),
		CASE(a_log_that_is_in_the_run_folder_is_not_asked_for),
		CASE(a_log_that_does_not_exist_is_forgotten),
		CASE(an_agent_of_another_node_is_not_asked),
		CASE(a_rank_that_fails_by_itself_may_move_its_log),
		CASE(the_run_has_an_id_if_logs_stay_on_the_nodes),
	};
	return cmocka_run_group_tests_name("collect", tests, NULL, NULL);
}
