/* Tests how the supervisor runs a program of the user: where tasks meet, what it prints, and what the ends
 * of tasks mean. */
#include "base/file.h"
#include "tests/unit/launcher/harness.h"

/* The harness's run, with a program. */
static int setup_program(void **state)
{
	if (setup(state))
		return -1;
	supervise_close(h.supervisor);
	struct job *job = &h.first.job;
	snprintf(job->job.program, sizeof job->job.program, "train");
	snprintf(job->job.name, sizeof job->job.name, "run");
	snprintf(job->restart.retry_on, sizeof job->restart.retry_on, "any");
	job->program.show = SHOW_NONE;
	h.tasks = true;
	return open_supervisor(&fake_ops);
}

static json_t *meeting_json(void)
{
	return json_pack("{s:{s:s, s:[i,i]}, s:[i]}", "values", "address", "here", "ports", 1, 2,
			 "wants", 0);
}

static void start_tasks(void)
{
	connect_all();
	send_message(&h.peers[0], MSG_ENDPOINTS, meeting_json());
	for (int i = 0; i < h.world; i++) {
		send_message(&h.peers[i], MSG_TASK,
			     msg_task_json(&(struct msg_task){
				     .pid = 200 + i, .start = 1, .pid_space = 7, .boot = "boot" }));
		send_step(&h.peers[i], MSG_READY, 0);
	}
}

static void start_run(void)
{
	supervise_start(h.supervisor);
	deliver_all();
	start_tasks();
}

static void send_output(int rank, const char *line, int64_t left_out)
{
	json_t *lines = json_pack("[s]", line);
	send_message(&h.peers[rank], MSG_OUTPUT,
		     msg_output_json(&(struct msg_output){ .lines = lines, .left_out = left_out }));
	json_decref(lines);
}

/* The task of the rank ended like this, and its last line was `line`. */
static void fail_task(int rank, enum err_code code, int status, const char *line)
{
	json_t *lines = json_pack("[s]", line);
	send_message(&h.peers[rank], MSG_FAILED,
		     msg_failed_json(&(struct msg_failed){ .code = err_word(code),
							   .text = "the task ended",
							   .has_status = true,
							   .status = status,
							   .has_last_lines = true,
							   .last_lines = lines }));
	json_decref(lines);
}

/* Agents that were told to leave do so after they have ended their tasks. */
static void agents_leave(void)
{
	for (int i = 0; i < h.world; i++)
		end_process(i, 1 << 8);
	deliver_all();
}

/* The others are waited for until it is known who failed first. */
static void lose_task(int rank, int status, const char *line)
{
	fail_task(rank, ERR_TASK, status, line);
	pass_time(0.2);
	agents_leave();
}

static void begin(int rank, int64_t step, double seconds)
{
	send_message(&h.peers[rank], MSG_BEGAN,
		     msg_began_json(&(struct msg_began){ .step = step, .seconds = seconds }));
}

static void work(int rank, int64_t step, int64_t count)
{
	send_message(&h.peers[rank], MSG_PROGRESS,
		     msg_progress_json(&(struct msg_progress){
			     .step = step, .phase = "running", .count = count, .done = step }));
}

static int printed(const char *text)
{
	bool last;
	return count_printed(text, &last);
}

static void all_finish(void)
{
	for (int i = 0; i < WORLD; i++)
		send_step(&h.peers[i], MSG_FINISHED, 0);
	for (int i = 0; i < WORLD; i++)
		end_process(i, 0);
	deliver_all();
}

/* --- the start --------------------------------------------------------------------------- */

static void tasks_meet_when_all_have_connected(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	deliver_all();
	send_message(peer_open(0, h.secret, h.generation), MSG_HELLO, hello_json(0));
	send_message(&h.peers[0], MSG_ENDPOINTS, meeting_json());
	assert_int_equal(h.peers[0].endpoints, 0);
	send_message(peer_open(1, h.secret, h.generation), MSG_HELLO, hello_json(1));
	assert_int_equal(h.peers[0].endpoints, 1);
	assert_int_equal(h.peers[1].endpoints, 1);
}

static void a_meeting_point_that_comes_late_is_sent_at_once(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	deliver_all();
	connect_all();
	assert_int_equal(h.peers[1].endpoints, 0);
	send_message(&h.peers[0], MSG_ENDPOINTS, meeting_json());
	assert_int_equal(h.peers[0].endpoints, 1);
	assert_int_equal(h.peers[1].endpoints, 1);
}

static void each_task_gets_its_place(void **state)
{
	(void)state;
	h.first.job.program.show = SHOW_FIRST;
	supervise_start(h.supervisor);
	deliver_all();
	connect_all();
	for (int i = 0; i < WORLD; i++) {
		const struct peer *p = &h.peers[i];
		assert_true(p->has_program);
		assert_int_equal(p->local_rank, i);
		assert_int_equal(p->group_rank, 0);
		assert_int_equal(p->group_world, 1);
		assert_string_equal(p->tasks_devices, "1,0");
		assert_int_equal(p->shown, i == 0);
	}
}

static void tasks_that_exit_with_0_are_a_finished_run(void **state)
{
	(void)state;
	start_run();
	all_finish();
	assert_int_equal(exit_status(), STATUS_DONE);
	assert_int_equal(printed("2 tasks ended with status 0"), 1);
	assert_int_equal(printed("nan"), 0);
	assert_int_equal(printed("goodput"), 0);
	assert_int_equal(count_events("\"plan\"", "step_s"), 0);
}

static void a_stop_after_the_last_exit_does_not_undo_the_end(void **state)
{
	(void)state;
	start_run();
	for (int i = 0; i < WORLD; i++)
		send_step(&h.peers[i], MSG_FINISHED, 0);
	supervise_stop(h.supervisor, "Terminated", false);
	for (int i = 0; i < WORLD; i++)
		end_process(i, 0);
	deliver_all();
	assert_int_equal(exit_status(), STATUS_DONE);
}

/* --- messages of the wrong kind ------------------------------------------------------------ */

static void only_rank_0_publishes_a_meeting_point_once(void **state)
{
	(void)state;
	supervise_start(h.supervisor);
	deliver_all();
	connect_all();
	send_message(&h.peers[1], MSG_ENDPOINTS, meeting_json());
	assert_int_equal(count_events("rank-lost", "message endpoints"), 1);
	agents_leave();
	start_tasks();
	send_message(&h.peers[0], MSG_ENDPOINTS, meeting_json());
	assert_int_equal(count_events("rank-lost", "message endpoints"), 2);
}

static void agents_that_train_have_no_tasks(void **state)
{
	(void)state;
	const struct {
		enum msg_type type;
		json_t *body;
	} messages[] = {
		{ MSG_TASK, msg_task_json(&(struct msg_task){ .pid = 1, .boot = "" }) },
		{ MSG_OUTPUT, json_pack("{s:[], s:i}", "lines", "left_out", 0) },
		{ MSG_BEGAN, msg_began_json(&(struct msg_began){ .step = 1 }) },
		{ MSG_CLIENT_CKPT,
		  msg_client_ckpt_json(&(struct msg_client_ckpt){ .step = 1, .path = "x" }) },
	};
	for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
		assert_int_equal(setup(NULL), 0);
		supervise_start(h.supervisor);
		deliver_all();
		train_all();
		assert_false(h.peers[0].has_program);
		send_message(&h.peers[0], messages[i].type, messages[i].body);
		assert_int_equal(count_events("rank-lost", "protocol"), 1);
		assert_int_equal(teardown(NULL), 0);
	}
}

/* --- output ------------------------------------------------------------------------------ */

static void the_terminal_shows_the_output_that_the_job_names(void **state)
{
	(void)state;
	start_run();
	h.first.job.program.show = SHOW_FIRST;
	send_output(0, "of the first", 0);
	send_output(1, "of the second", 0);
	assert_int_equal(printed("of the first\n"), 1);
	assert_int_equal(printed("of the second"), 0);
	h.first.job.program.show = SHOW_ALL;
	send_output(1, "of any", 3);
	assert_int_equal(printed("[1] of any\n"), 1);
	assert_int_equal(printed("[1] (3 lines are only in the log of the rank)\n"), 1);
	h.first.job.program.show = SHOW_NONE;
	send_output(0, "of none", 0);
	assert_int_equal(printed("of none"), 0);
}

static void output_cannot_control_the_terminal(void **state)
{
	char longest[4000];
	(void)state;
	memset(longest, 'x', sizeof longest);
	longest[sizeof longest - 1] = '\0';
	start_run();
	h.first.job.program.show = SHOW_ALL;
	send_output(0, "\x1b[2Jred", 0);
	send_output(0, longest, 0);
	assert_int_equal(printed("\x1b"), 0);
	assert_int_equal(printed("[2Jred"), 1);
	assert_int_equal(printed("xxxx\n"), 1);
}

/* --- tasks that fail ----------------------------------------------------------------------- */

static void a_task_that_fails_is_named_with_its_last_lines(void **state)
{
	(void)state;
	start_run();
	lose_task(1, 3 << 8, "ValueError: bad shape");
	assert_int_equal(count_events("\"fault\"", "\"task-failed\""), 2); /* rank-lost, too */
	assert_int_equal(count_events("\"event\":\"fault\"", "\"status\":3"), 1);
	assert_int_equal(count_events("rank-lost", "\"rank\":1"), 1);
	assert_int_equal(printed("ValueError: bad shape"), 1);
	assert_int_equal(h.starts, 2);
	start_tasks();
	lose_task(1, 3 << 8, "ValueError: bad shape"); /* not printed again */
	assert_int_equal(printed("ValueError: bad shape"), 1);
	assert_int_equal(printed("the same line as at the last loss"), 1);
}

/* One whose connection breaks fails first; what matters is why the other one died. */
static void the_rank_that_failed_by_itself_is_named(void **state)
{
	(void)state;
	start_run();
	fail_task(0, ERR_PEER, 1 << 8, "Connection reset by peer");
	assert_int_equal(count_events("rank-lost", ""), 0);
	fail_task(1, ERR_TASK, SIGSEGV, "last words");
	pass_time(0.2);
	agents_leave();
	assert_int_equal(count_events("rank-lost", "\"rank\":1"), 1);
	assert_int_equal(count_events("\"event\":\"fault\"", "task-crashed"), 1);
	assert_int_equal(printed("last words"), 1);
	assert_int_equal(printed("Connection reset"), 0);
}

static void ranks_that_only_blame_others_are_a_lost_peer(void **state)
{
	(void)state;
	start_run();
	fail_task(0, ERR_PEER, 1 << 8, "Connection reset by peer");
	pass_time(0.3);
	agents_leave();
	assert_int_equal(count_events("\"event\":\"fault\"", "\"fault\":\"peer\""), 1);
	assert_int_equal(h.starts, 2);
}

static void an_end_that_retry_on_excludes_fails_the_job(void **state)
{
	(void)state;
	snprintf(h.first.job.restart.retry_on, sizeof h.first.job.restart.retry_on, "any, !2");
	start_run();
	lose_task(0, 1 << 8, "first");
	assert_int_equal(h.starts, 2);
	start_tasks();
	lose_task(0, 2 << 8, "second");
	assert_int_equal(h.starts, 2);
	assert_int_equal(exit_status(), STATUS_FAILED);
	assert_int_equal(count_events("retry_on = any, !2 permits no restart", ""), 1);
}

static void run_and_fail(int times, double seconds)
{
	start_run();
	for (int i = 0; i < times && exit_status() < 0; i++) {
		for (double t = 0; t < seconds; t += 5) {
			work(0, 0, (int64_t)t + 1);
			work(1, 0, (int64_t)t + 1);
			pass_time(5);
		}
		lose_task(0, 1 << 8, "again");
		pass_time(10); /* the back-off */
		if (exit_status() < 0)
			start_tasks();
	}
}

static void restarts_of_a_program_that_fails_at_once_end(void **state)
{
	(void)state;
	run_and_fail(10, 0);
	assert_int_equal(exit_status(), STATUS_GAVE_UP);
	assert_int_equal(h.starts, 4);
	assert_int_equal(count_events("gave-up", "max_futile"), 1);
}

/* It reports no steps, so that it ran for a minute is all that is known. */
static void a_minute_of_running_is_progress(void **state)
{
	(void)state;
	run_and_fail(5, 65);
	assert_int_equal(exit_status(), -1);
	assert_int_equal(h.starts, 6);
}

static void a_task_that_exits_too_early_is_named(void **state)
{
	(void)state;
	h.first.job.program.exit_timeout = 10;
	start_run();
	send_step(&h.peers[1], MSG_FINISHED, 0);
	for (int i = 0; i < 30; i++) { /* the other one computes */
		work(0, 0, i + 1);
		pass_time(1);
	}
	assert_int_equal(count_events("rank-lost", ""), 0);
	for (int i = 0; i < 11; i++) { /* it only waits */
		work(0, 0, 30);
		pass_time(1);
	}
	agents_leave();
	assert_int_equal(count_events("rank-lost", "\"rank\":1"), 1);
	assert_int_equal(count_events("1 of 1 others still run", ""), 1);
	assert_int_equal(h.starts, 2);
}

static void without_an_exit_timeout_tasks_end_when_they_like(void **state)
{
	(void)state;
	h.first.job.program.exit_timeout = 0;
	start_run();
	send_step(&h.peers[1], MSG_FINISHED, 0);
	for (int i = 0; i < 100; i++) {
		work(0, 0, i + 1);
		pass_time(5);
	}
	assert_int_equal(count_events("rank-lost", ""), 0);
}

static void a_silent_program_has_hung(void **state)
{
	(void)state;
	h.first.job.program.silence = 20;
	start_run();
	for (int i = 0; i < 30 && !count_events("rank-lost", ""); i++) {
		work(0, 0, i + 1); /* it is busy */
		work(1, 0, i + 1);
		if (i == 10)
			send_output(1, "still here", 0);
		pass_time(1);
		if (i < 28)
			assert_int_equal(count_events("rank-lost", ""), 0);
	}
	pass_time(2);
	assert_int_equal(count_events("rank-lost", "no task has printed anything"), 1);
}

static void a_supervisor_that_was_stopped_calls_nobody_silent(void **state)
{
	(void)state;
	h.first.job.program.silence = 20;
	start_run();
	pass_time(1);
	h.now += 100; /* the whole host was stopped */
	pass_time(2);
	assert_int_equal(count_events("rank-lost", ""), 0);
}

static void an_idle_rank_among_busy_ones_is_named_once(void **state)
{
	(void)state;
	start_run();
	for (int i = 0; i < 150; i++) { /* hang_timeout is 60 */
		work(0, 0, i + 1);
		work(1, 0, 0);
		pass_time(1);
	}
	assert_int_equal(printed("rank 1 on here has used no CPU and printed nothing"), 1);
	assert_int_equal(count_events("rank-lost", ""), 0);
}

/* The tasks are looked at, not their agents (harness.h). */
static void tasks_that_hang_are_examined(void **state)
{
	(void)state;
	start_run();
	h.first.job.restart.hang_timeout = 5;
	h.first.job.restart.stacks_timeout = 4;
	pass_time(5.5);
	assert_int_equal(count_events("\"how\":\"hung\"", ""), 1);
	assert_int_equal(h.peers[0].looked_at, 1u << 0);
	assert_int_equal(h.peers[1].looked_at, 1u << 1);
}

/* --- the client -------------------------------------------------------------------------- */

static void the_first_step_says_where_a_program_continues(void **state)
{
	(void)state;
	start_run();
	lose_task(0, 1 << 8, "x");
	start_tasks();
	assert_int_equal(printed("continuing from step"), 0);
	begin(0, 40, 3);
	begin(1, 40, 3);
	assert_int_equal(printed("continuing from step 40"), 1);
}

/* What happened before the first step is a part of the start: 10 of the 20 seconds. */
static void the_time_before_the_first_step_is_the_start(void **state)
{
	char path[400];
	struct buf text = BUF_INIT;
	(void)state;
	start_run();
	for (int i = 1; i <= 20; i++) {
		work(0, 0, i);
		work(1, 0, i);
		pass_time(1);
	}
	for (int i = 0; i < WORLD; i++)
		begin(i, 0, 10);
	send_step(&h.peers[1], MSG_METRICS, 1);
	all_finish();
	assert_int_equal(exit_status(), STATUS_DONE);
	snprintf(path, sizeof path, "%s/time.jsonl", rundir_path(h.run));
	assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
	double start = 0;
	for (const char *at = buf_str(&text); (at = strstr(at, "\"start_s\":")); at++)
		start = strtod(at + 10, NULL);
	assert_true(start > 19.8 && start < 20.6); /* of two ranks */
	buf_fini(&text);
}

static void save(int rank, int64_t step)
{
	send_message(
		&h.peers[rank], MSG_CLIENT_CKPT,
		msg_client_ckpt_json(&(struct msg_client_ckpt){ .step = step, .path = "my/ckpt" }));
}

static void checkpoints_of_a_program_are_progress(void **state)
{
	(void)state;
	start_run();
	for (int i = 1; i < 8; i++) {
		save(0, i);
		save(1, i); /* of the same step: it is one checkpoint */
		lose_task(0, 1 << 8, "again");
		pass_time(2);
		if (exit_status() < 0 && i < 5)
			start_tasks();
		else
			break;
	}
	assert_int_equal(count_events("\"event\":\"ckpt\"", "my/ckpt"), 5);
	assert_int_equal(h.starts, 6); /* max_restarts is 5 */
}

static void a_stop_names_the_step_after_the_one_that_any_rank_may_be_in(void **state)
{
	(void)state;
	start_run();
	for (int i = 0; i < WORLD; i++)
		begin(i, 0, 0);
	for (int step = 1; step <= 5; step++)
		send_step(&h.peers[1], MSG_METRICS, step); /* 0.1 s each */
	work(0, 5, 5);
	work(1, 4, 4);
	supervise_stop(h.supervisor, "Terminated", false);
	deliver_all();
	assert_true(h.peers[0].stopped && h.peers[1].stopped);
	assert_int_equal(h.peers[0].at_step, 5 + 1 + 20); /* 2 s of steps */
	assert_int_equal(h.peers[1].at_step, h.peers[0].at_step);
	all_finish();
	assert_int_equal(exit_status(), STATUS_STOPPED);
}

static void a_program_without_steps_stops_at_once(void **state)
{
	(void)state;
	start_run();
	supervise_stop(h.supervisor, "Terminated", false);
	deliver_all();
	assert_true(h.peers[0].stopped);
	assert_int_equal(h.peers[0].at_step, 0);
	assert_int_equal(printed("the tasks are asked to save and exit"), 1);
	all_finish();
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(printed("the same command starts the program again"), 1);
}

/* --- the end of a generation --------------------------------------------------------------- */

static void agents_may_end_their_tasks_before_they_are_killed(void **state)
{
	(void)state;
	start_run();
	fail_task(0, ERR_TASK, 1 << 8, "x");
	pass_time(2);
	assert_true(h.peers[1].aborted);
	assert_int_equal(h.kills, 0);
	pass_time(1.5);
	assert_int_equal(h.starts, 2); /* they were killed, and the next generation has started */
	assert_int_equal(printed("processes still run after 3 s and are killed"), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_program, teardown)
	const struct CMUnitTest tests[] = {
		TEST(tasks_meet_when_all_have_connected),
		TEST(a_meeting_point_that_comes_late_is_sent_at_once),
		TEST(each_task_gets_its_place),
		TEST(tasks_that_exit_with_0_are_a_finished_run),
		TEST(only_rank_0_publishes_a_meeting_point_once),
		cmocka_unit_test(agents_that_train_have_no_tasks),
		TEST(the_terminal_shows_the_output_that_the_job_names),
		TEST(output_cannot_control_the_terminal),
		TEST(a_task_that_fails_is_named_with_its_last_lines),
		TEST(the_rank_that_failed_by_itself_is_named),
		TEST(ranks_that_only_blame_others_are_a_lost_peer),
		TEST(an_end_that_retry_on_excludes_fails_the_job),
		TEST(restarts_of_a_program_that_fails_at_once_end),
		TEST(a_minute_of_running_is_progress),
		TEST(a_task_that_exits_too_early_is_named),
		TEST(without_an_exit_timeout_tasks_end_when_they_like),
		TEST(a_silent_program_has_hung),
		TEST(a_supervisor_that_was_stopped_calls_nobody_silent),
		TEST(an_idle_rank_among_busy_ones_is_named_once),
		TEST(tasks_that_hang_are_examined),
		TEST(a_stop_after_the_last_exit_does_not_undo_the_end),
		TEST(the_first_step_says_where_a_program_continues),
		TEST(the_time_before_the_first_step_is_the_start),
		TEST(checkpoints_of_a_program_are_progress),
		TEST(a_stop_names_the_step_after_the_one_that_any_rank_may_be_in),
		TEST(a_program_without_steps_stops_at_once),
		TEST(agents_may_end_their_tasks_before_they_are_killed),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
