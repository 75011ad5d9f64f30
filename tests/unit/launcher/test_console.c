/* Consoles: stop, checkpoint, and who may connect. */
#include "base/run_paths.h"
#include "tests/unit/launcher/viewer.h"

/* --- stop and checkpoint -------------------------------------------------------------- */

static void test_stop_asks_the_ranks_for_a_checkpoint_and_stop_now_kills_them(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask(v, "stop");
	assert_true(v->last.ok);
	assert_non_null(strstr(v->last.text, "with a checkpoint"));
	assert_true(h.peers[0].stopped && h.peers[1].stopped && h.peers[0].checkpoint);
	assert_int_equal(count_events("\"event\":\"stop\"", "ada on desk"), 1);
	ask(v, "stop");
	assert_non_null(strstr(v->last.text, "already"));
	assert_int_equal(exit_status(), -1);
	ask(v, "stop-now");
	pump();
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void test_all_who_ask_get_the_same_checkpoint(void **state)
{
	(void)state;
	struct viewer *a = viewer_join(0), *b = viewer_join(1);
	ask(a, "checkpoint");
	assert_false(a->last.ok); /* it does not train yet */
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 4);
	ask(a, "checkpoint");
	assert_true(a->last.ok && a->last.more);
	ask(b, "checkpoint");
	assert_true(b->last.ok && b->last.more);
	assert_int_equal(h.peers[0].saves, 1);
	assert_int_equal(h.peers[1].saves, 1);
	/* One that was begun before does not answer it. */
	send_step(&h.peers[0], MSG_CKPT, 3);
	pump();
	assert_int_equal(b->answers, 1);
	send_step(&h.peers[0], MSG_CKPT, 5);
	pump();
	assert_true(a->last.ok && !a->last.more && a->last.step == 5);
	assert_true(b->last.ok && !b->last.more && b->last.step == 5);
	assert_string_equal(b->last.path, "ckpt/x");
	/* The next one is another request. */
	send_step(&h.peers[0], MSG_METRICS, 6);
	ask(a, "checkpoint");
	assert_int_equal(h.peers[0].saves, 2);
	assert_int_equal(count_events("ckpt-asked", "ada on desk"), 2);
}

static void test_a_checkpoint_that_fails_is_told(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask(v, "checkpoint");
	send_message(&h.peers[0], MSG_SAVE_FAILED,
		     msg_save_failed_json(
			     &(struct msg_save_failed){ .step = 1, .text = "the disk is full" }));
	pump();
	assert_int_equal(v->answers, 2);
	assert_false(v->last.ok);
	assert_non_null(strstr(v->last.text, "the disk is full"));
	assert_int_equal(exit_status(), -1);
}

static void fail_save(int rank, int64_t step)
{
	const struct msg_save_failed m = { .step = step, .text = "the disk is full" };
	send_message(&h.peers[rank], MSG_SAVE_FAILED, msg_save_failed_json(&m));
	pump();
}

static void test_the_failure_of_an_earlier_checkpoint_is_no_answer(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 5);
	ask(v, "checkpoint");
	fail_save(0, 4);
	assert_int_equal(v->answers, 1);
	fail_save(0, 5);
	assert_int_equal(v->answers, 2);
	assert_false(v->last.ok);
}

static void test_only_rank_0_reports_that_a_checkpoint_failed(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask(v, "checkpoint");
	fail_save(1, 1);
	assert_int_equal(v->answers, 1);
	assert_int_equal(count_events("rank-lost", "only rank 0 sends it"), 1);
}

static void test_a_checkpoint_cannot_fail_before_the_rank_is_ready(void **state)
{
	(void)state;
	connect_all();
	fail_save(0, 1);
	assert_int_equal(count_events("rank-lost", "message save_failed"), 1);
}

static void test_a_loss_ends_the_wait_for_a_checkpoint(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask(v, "checkpoint");
	end_rank(1);
	pass_time(0.3);
	pump();
	assert_int_equal(v->answers, 2);
	assert_false(v->last.ok);
	assert_false(v->closed);
}

static void test_the_last_checkpoint_answers_too(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	supervise_stop(h.supervisor, "enough", false);
	ask(v, "checkpoint");
	assert_true(v->last.more);
	assert_int_equal(h.peers[0].saves, 0);
	send_step(&h.peers[0], MSG_CKPT, 7);
	pump();
	assert_true(v->last.ok && v->last.step == 7);
}

static void test_the_checkpoint_of_the_last_step_is_the_answer(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 4);
	send_step(&h.peers[0], MSG_CKPT, 4);
	ask(v, "checkpoint");
	assert_true(v->last.ok && !v->last.more && v->last.step == 4);
	/* Two ranks report a step and its checkpoint, in any order. */
	send_step(&h.peers[0], MSG_CKPT, 5);
	ask(v, "checkpoint");
	assert_true(v->last.ok && !v->last.more && v->last.step == 5);
	assert_string_equal(v->last.path, "ckpt/x");
	assert_int_equal(h.peers[0].saves, 0);
}

static void test_a_run_that_went_back_answers_with_an_earlier_step(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 9);
	end_rank(1);
	pass_time(2); /* the back-off */
	train_all();  /* from step 0 on */
	ask(v, "state");
	assert_int_equal(json_integer_value(json_object_get(v->last.state, "step")), 0);
	ask(v, "checkpoint");
	assert_true(v->last.ok && v->last.more);
	send_step(&h.peers[0], MSG_CKPT, 1);
	pump();
	assert_true(v->last.ok && !v->last.more && v->last.step == 1);
}

/* --- traces ------------------------------------------------------------------------------ */

static void ask_trace(struct viewer *v, int steps)
{
	int before = v->answers;
	tell(v, MSG_CONSOLE_ASK,
	     msg_console_ask_json(&(struct msg_console_ask){
		     .what = "trace", .has_count = true, .count = steps }));
	pump();
	assert_int_equal(v->answers, before + 1);
}

/* why: NULL: the rank has written the steps. */
static void send_traced(int rank, int number, int64_t first, int64_t last, const char *why)
{
	send_message(&h.peers[rank], MSG_TRACED,
		     msg_traced_json(&(struct msg_traced){ .number = number,
							   .first = first,
							   .last = last,
							   .has_error = why != NULL,
							   .error = why }));
	pump();
}

static void test_a_trace_is_told_when_all_ranks_have_written_it(void **state)
{
	(void)state;
	struct viewer *a = viewer_join(0), *b = viewer_join(1);
	ask_trace(a, 3);
	assert_false(a->last.ok); /* it does not train yet */
	train_all();
	ask_trace(a, 0);
	assert_false(a->last.ok);
	ask_trace(a, TRACE_STEPS_MOST + 1);
	assert_false(a->last.ok);
	ask(a, "trace"); /* how many? */
	assert_false(a->last.ok);
	assert_int_equal(h.peers[0].traces, 0);
	ask_trace(a, 3);
	assert_true(a->last.ok && a->last.more);
	assert_int_equal(h.peers[0].traces, 1);
	assert_int_equal(h.peers[1].traces, 1);
	ask_trace(b, 3);
	assert_false(b->last.ok);
	assert_non_null(strstr(b->last.text, "ada on desk"));
	/* One rank answers twice, and for a number that nobody has. */
	send_traced(0, 1, 5, 7, NULL);
	send_traced(0, 1, 5, 7, NULL);
	send_traced(1, 9, 5, 7, NULL);
	assert_int_equal(a->answers, 5);
	send_traced(1, 1, 5, 7, NULL);
	assert_int_equal(a->answers, 6);
	assert_true(a->last.ok && !a->last.more && a->last.step == 5 && a->last.last == 7);
	assert_non_null(strstr(a->last.path, "/trace/gen-1"));
	assert_int_equal(count_events("trace-asked", "ada on desk"), 1);
	ask_trace(b, 1);
	assert_true(b->last.ok && b->last.more);
	assert_int_equal(h.peers[0].traces, 2);
}

static void test_a_trace_that_a_rank_cannot_write_is_told(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask_trace(v, 3);
	send_traced(1, 1, 5, 7, "the disk is full");
	assert_int_equal(v->answers, 1);
	send_traced(0, 1, 5, 7, NULL);
	assert_int_equal(v->answers, 2);
	assert_false(v->last.ok);
	assert_non_null(strstr(v->last.text, "rank 1: the disk is full"));
	/* Ranks that recorded other steps than each other. */
	ask_trace(v, 3);
	send_traced(0, 2, 8, 10, NULL);
	send_traced(1, 2, 9, 11, NULL);
	assert_false(v->last.ok);
	assert_non_null(strstr(v->last.text, "rank 1 recorded the steps 9 to 11"));
	assert_int_equal(exit_status(), -1);
}

static void test_a_trace_of_fewer_steps_is_told_when_the_run_stops(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask_trace(v, 100);
	supervise_stop(h.supervisor, "enough", false);
	send_traced(0, 1, 5, 7, NULL);
	send_traced(1, 1, 5, 7, NULL);
	assert_true(v->last.ok && v->last.last == 7);
	assert_non_null(strstr(v->last.text, "the run ends; steps 5 to 7"));
	ask_trace(v, 1);
	assert_false(v->last.ok);
}

static void test_a_loss_ends_the_wait_for_a_trace_and_its_console_may_have_left(void **state)
{
	(void)state;
	struct viewer *a = viewer_join(0), *b = viewer_join(1);
	train_all();
	ask_trace(a, 3);
	send_traced(0, 1, 5, 7, NULL);
	end_rank(1);
	pass_time(0.3);
	pump();
	assert_int_equal(a->answers, 2);
	assert_false(a->last.ok);
	assert_non_null(strstr(a->last.text, "the generation ended"));
	pass_time(2); /* the back-off */
	train_all();
	ask_trace(a, 3);
	assert_true(a->last.ok);
	viewer_end(a);
	pump();
	ask_trace(b, 3);
	assert_false(b->last.ok);
	send_traced(0, 2, 5, 7, NULL);
	send_traced(1, 2, 5, 7, NULL);
	ask_trace(b, 3);
	assert_true(b->last.ok && b->last.more);
}

static void test_a_rank_whose_steps_cannot_be_is_lost(void **state)
{
	(void)state;
	struct viewer *v = viewer_join(0);
	train_all();
	ask_trace(v, 3);
	send_traced(1, 1, 7, 5, NULL);
	assert_true(count_events("\"event\":\"rank-lost\"", "message traced: steps 7 to 5") == 1);
}

/* --- connections ------------------------------------------------------------------------ */

static void test_who_does_not_know_the_secret_is_closed(void **state)
{
	(void)state;
	unsigned char wrong[AUTH_SECRET_BYTES] = { 1 };
	struct viewer *v = viewer_open(0, wrong);
	greet(v, CONSOLE_VERSION);
	ask_for(v, "stop-now");
	pump();
	assert_true(v->closed);
	assert_int_equal(v->answers, 0);
	assert_int_equal(exit_status(), -1);
	/* The agents' secret is another one. */
	v = viewer_open(0, h.secret);
	greet(v, CONSOLE_VERSION);
	pump();
	assert_true(v->closed);
}

static void test_what_is_no_hello_or_no_question_closes_the_connection(void **state)
{
	(void)state;
	struct viewer *v = viewer_open(0, NULL);
	ask_for(v, "state");
	pump();
	assert_true(v->closed);
	v = viewer_open(0, NULL);
	greet(v, CONSOLE_VERSION + 1);
	pump();
	assert_int_equal(v->answers, 1);
	assert_false(v->last.ok);
	assert_non_null(strstr(v->last.text, "another version"));
	assert_true(v->closed);
	v = viewer_join(0);
	tell(v, MSG_ALIVE, NULL);
	pump();
	assert_true(v->closed);
	v = viewer_join(0);
	ask(v, "dance"); /* of a newer muster */
	assert_false(v->last.ok);
	assert_non_null(strstr(v->last.text, "does not know the request"));
	assert_false(v->closed);
	/* An agent's connection is no console's. */
	train_all();
	send_message(&h.peers[0], MSG_CONSOLE_ASK,
		     msg_console_ask_json(&(struct msg_console_ask){ .what = "stop-now" }));
	assert_int_equal(count_events("rank-lost", ""), 1);
}

/* Takes what has come, and whether the connection is closed after that. */
static bool is_closed_after_all(struct viewer *v, size_t *bytes)
{
	char chunk[65536];
	*bytes = 0;
	for (int quiet = 0; quiet < 20;) {
		ssize_t n = recv(v->fd, chunk, sizeof chunk, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			return true;
		*bytes += n > 0 ? (size_t)n : 0;
		quiet = n > 0 ? 0 : quiet + 1;
		deliver_all();
	}
	return false;
}

/* The answers that it does not take are more than the kernel keeps for it: each has a long path. */
static void test_a_console_that_does_not_read_is_dropped_and_delays_nobody(void **state)
{
	(void)state;
	enum { QUESTIONS = 20000, LONG = 1000 };
	struct viewer *deaf = viewer_join(0), *v = viewer_join(1);
	char path[LONG + 1];
	size_t bytes;
	memset(path, 'x', LONG);
	path[LONG] = '\0';
	train_all();
	send_message(&h.peers[0], MSG_CKPT,
		     msg_ckpt_json(&(struct msg_ckpt){ .step = 1, .path = path }));
	for (int i = 0; i < QUESTIONS; i++) {
		ask_for(deaf, "state");
		viewer_write(deaf);
		if (i % 16 == 0)
			deliver_all();
	}
	assert_true(is_closed_after_all(deaf, &bytes));
	assert_true(bytes < QUESTIONS * (size_t)LONG);
	ask(v, "state");
	assert_true(v->last.ok);
}

static void test_the_console_that_was_quiet_for_longest_makes_room(void **state)
{
	(void)state;
	for (int i = 0; i < CONSOLES; i++) {
		viewer_join(i);
		pass_time(0.1);
	}
	ask(&viewers[0], "state");
	viewer_join(CONSOLES);
	assert_true(viewers[1].closed);
	for (int i = 0; i < CONSOLES; i++)
		assert_int_equal(viewers[i].closed, i == 1);
	ask(&viewers[CONSOLES], "state");
}

static void test_the_file_control_is_private_and_goes_with_the_run(void **state)
{
	(void)state;
	struct rundir_control c;
	struct err e = ERR_INIT;
	json_t *object;
	char path[RUN_PATH];
	struct stat st;
	run_path(path, rundir_path(h.run), RUN_CONTROL);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(rundir_control_load(rundir_path(h.run), &object, &c, NULL), 0);
	assert_int_equal(strncmp(c.address, "127.0.0.1:", 10), 0);
	assert_int_equal(c.pid, getpid());
	json_decref(object);
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(rundir_control_load(rundir_path(h.run), &object, &c, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	supervise_stop(h.supervisor, "enough", true);
	pump();
	supervise_close(h.supervisor);
	h.supervisor = NULL;
	assert_int_equal(stat(path, &st), -1);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup_started, teardown_all)

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		CASE(test_stop_asks_the_ranks_for_a_checkpoint_and_stop_now_kills_them),
		CASE(test_all_who_ask_get_the_same_checkpoint),
		CASE(test_a_checkpoint_that_fails_is_told),
		CASE(test_the_failure_of_an_earlier_checkpoint_is_no_answer),
		CASE(test_only_rank_0_reports_that_a_checkpoint_failed),
		CASE(test_a_checkpoint_cannot_fail_before_the_rank_is_ready),
		CASE(test_a_loss_ends_the_wait_for_a_checkpoint),
		CASE(test_the_last_checkpoint_answers_too),
		CASE(test_the_checkpoint_of_the_last_step_is_the_answer),
		CASE(test_a_run_that_went_back_answers_with_an_earlier_step),
		CASE(test_a_trace_is_told_when_all_ranks_have_written_it),
		CASE(test_a_trace_that_a_rank_cannot_write_is_told),
		CASE(test_a_trace_of_fewer_steps_is_told_when_the_run_stops),
		CASE(test_a_loss_ends_the_wait_for_a_trace_and_its_console_may_have_left),
		CASE(test_a_rank_whose_steps_cannot_be_is_lost),
		CASE(test_who_does_not_know_the_secret_is_closed),
		CASE(test_what_is_no_hello_or_no_question_closes_the_connection),
		CASE(test_a_console_that_does_not_read_is_dropped_and_delays_nobody),
		CASE(test_the_console_that_was_quiet_for_longest_makes_room),
		CASE(test_the_file_control_is_private_and_goes_with_the_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
