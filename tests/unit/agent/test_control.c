/* Tests the agent's end of the control channel. Each test forks an agent and plays its
 * supervisor. */
#include "tests/unit/agent/control_play.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- agents --- */

static int work_and_finish(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)s;
	if (strcmp(welcome->node, "n1") || strcmp(agent_control_local_address(c), "127.0.0.1"))
		return 1;
	for (int i = 1; i <= 500; i++)
		agent_control_send(c, MSG_METRICS, json_pack("{s:i}", "step", i));
	agent_control_send(c, MSG_FINISHED, json_pack("{s:i}", "step", 500));
	return AS_IT_MUST;
}

static int get_stuck(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)welcome;
	agent_control_allow_to_leave(c, 0.1);
	agent_control_on_abort(c, pass_on, s);
	agent_control_progress(c, 12, "backward");
	stay();
}

static int move_and_fail(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)s;
	(void)welcome;
	bool checkpoint;
	agent_control_progress(c, 12, "backward");
	while (!agent_control_stopping(c, &checkpoint))
		poll(NULL, 0, 1);
	agent_control_progress(c, 13, "optimizer");
	agent_control_send(c, MSG_FAILED, json_pack("{s:s}", "code", "numeric"));
	return AS_IT_MUST;
}

/* Trains without a pause on a core that it shares with another process. */
static int share_a_core(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)s;
	(void)welcome;
	bool checkpoint;
	cpu_set_t core;
	CPU_ZERO(&core);
	CPU_SET((size_t)sched_getcpu(), &core);
	if (sched_setaffinity(0, sizeof core, &core))
		return 1;
	pid_t other = fork();
	if (other < 0)
		return 1;
	if (other == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (other == 0)
		(void)getppid();
	while (!agent_control_stopping(c, &checkpoint)) {
		agent_control_moved(c);
		agent_control_worked(c, 1e-6);
	}
	kill(other, SIGKILL);
	return waitpid(other, NULL, 0) == other ? AS_IT_MUST : 1;
}

/* Without memory for the bodies, the messages are left out. */
static int fail_without_memory(struct stage *s, struct control *c,
			       const struct msg_welcome *welcome)
{
	(void)s;
	(void)welcome;
	agent_control_send(c, MSG_LOG, NULL);
	agent_control_send(c, MSG_FAILED, NULL);
	agent_control_send(c, MSG_METRICS, json_pack("{s:i}", "step", 1));
	return AS_IT_MUST;
}

static int finish_and_get_stuck(struct stage *s, struct control *c,
				const struct msg_welcome *welcome)
{
	(void)welcome;
	agent_control_allow_to_leave(c, 0.1);
	agent_control_on_abort(c, pass_on, s);
	agent_control_send(c, MSG_FINISHED, NULL);
	stay();
}

static int wait_for_stop(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)s;
	(void)welcome;
	bool checkpoint = false;
	while (!agent_control_stopping(c, &checkpoint))
		poll(NULL, 0, 1);
	agent_control_send(c, MSG_FINISHED, NULL);
	return checkpoint ? AS_IT_MUST : AS_IT_MUST + 1;
}

/* The first dump succeeds, the second one fails. */
static int dump_once(void *arg, struct err *e)
{
	int *times = arg;
	return ++*times == 1 ? 0 : err_set(e, ERR_IO, "the disk is full");
}

static int dump_until_stop(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	int times = 0;
	agent_control_on_dump(c, dump_once, &times);
	agent_control_send(c, MSG_METRICS, json_pack("{s:i}", "step", 1)); /* ready to dump */
	int rc = wait_for_stop(s, c, welcome);
	agent_control_on_dump(c, NULL, NULL);
	return times == 2 ? rc : 1;
}

/* The last request counts; an earlier one that comes later does not. */
static int trace_until_stop(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	int steps = 0;
	int rc = wait_for_stop(s, c, welcome);
	return agent_control_trace_asked(c, &steps) == 2 && steps == TRACE_STEPS_MOST ? rc : 1;
}

static void pass_on_and_end(const char *reason, void *arg)
{
	pass_on(reason, arg);
	_exit(1);
}

/* The abort arrives together with the stop, before anybody asks to be notified of it. */
static int ask_late(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)welcome;
	bool checkpoint;
	agent_control_send(c, MSG_METRICS, json_pack("{s:i}", "step", 1)); /* ready to stop */
	while (!agent_control_stopping(c, &checkpoint))
		poll(NULL, 0, 1);
	agent_control_on_abort(c, pass_on_and_end, s);
	stay();
}

static int never_let_in(struct stage *s, scenario *play)
{
	(void)play;
	struct control *c;
	const struct msg_welcome *welcome;
	struct err e = ERR_INIT;
	agent_control_block_signals();
	if (!open_control(s, &c, &welcome, &e))
		return 1;
	return e.code == ERR_ABORTED && strstr(e.text, "too many") ? AS_IT_MUST : 1;
}

static int holds_another_secret(struct stage *s, scenario *play)
{
	(void)play;
	struct control *c;
	const struct msg_welcome *welcome;
	struct err e = ERR_INIT;
	s->hex[0] = s->hex[0] == '0' ? '1' : '0';
	if (!open_control(s, &c, &welcome, &e))
		return 1;
	return e.code == ERR_AUTH ? AS_IT_MUST : 1;
}

/* --- supervisors --- */

static void everything_sent_arrives_in_order_before_the_close(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, work_and_finish);
	let_in(&v);
	for (int i = 1; i <= 500; i++) {
		struct msg m = expect(&v, MSG_METRICS);
		assert_int_equal(json_integer_value(json_object_get(m.body, "step")), i);
		msg_fini(&m);
	}
	struct msg m = expect(&v, MSG_FINISHED);
	msg_fini(&m);
	while (receive_message(&v, &m))
		msg_fini(&m);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

static void heartbeats_report_the_progress(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, get_stuck);
	let_in(&v);
	for (bool seen = false; !seen;) {
		struct msg m = expect(&v, MSG_PROGRESS);
		seen = json_integer_value(json_object_get(m.body, "step")) == 12;
		if (seen) {
			assert_string_equal(json_string_value(json_object_get(m.body, "phase")),
					    "backward");
			assert_int_equal(json_integer_value(json_object_get(m.body, "count")), 1);
		}
		msg_fini(&m);
	}
	hang_up(&v);
	assert_int_equal(status_of(&v), 1);
	end_agent(&v);
}

/* Progress is also reported between 2 heartbeats: this supervisor asks for 1 per hour. */
static void progress_is_reported_soon_and_before_a_failure(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, move_and_fail);
	let_in_with(&v, 3600);
	int64_t step = 0;
	while (step != 12) {
		struct msg m = expect(&v, MSG_PROGRESS);
		step = json_integer_value(json_object_get(m.body, "step"));
		msg_fini(&m);
	}
	send_message(&v, MSG_STOP, msg_stop_json(&(struct msg_stop){ .reason = "time is up" }));
	bool failed = false;
	for (struct msg m; !failed && receive_message(&v, &m); msg_fini(&m)) {
		failed = m.type == MSG_FAILED;
		if (!failed)
			step = json_integer_value(json_object_get(m.body, "step"));
	}
	assert_true(failed);
	assert_int_equal(step, 13);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

/* Also of a trainer that moves all the time, so that no heartbeat without news is ever due. */
static void the_time_without_a_core_is_reported(void **state)
{
	(void)state;
	struct supervisor v;
	double delay = 0;
	if (access("/proc/self/schedstat", R_OK))
		skip();
	start_agent(&v, agent_main, share_a_core);
	let_in_with(&v, 0.5);
	for (int i = 0; i < 100 && !(delay > 0.05); i++) {
		struct msg m = expect(&v, MSG_PROGRESS);
		delay = json_number_value(json_object_get(m.body, "delay_s"));
		msg_fini(&m);
	}
	assert_true(delay > 0.05);
	send_message(&v, MSG_STOP, msg_stop_json(&(struct msg_stop){ .reason = "time is up" }));
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

/* Waits until the stuck agent has reported where it is. Its on_abort is set then. */
static void begin_stuck(struct supervisor *v)
{
	start_agent(v, agent_main, get_stuck);
	let_in(v);
	for (bool seen = false; !seen;) {
		struct msg m = expect(v, MSG_PROGRESS);
		seen = json_integer_value(json_object_get(m.body, "step")) == 12;
		msg_fini(&m);
	}
}

static void a_message_without_a_body_is_not_sent(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, fail_without_memory);
	let_in(&v);
	struct msg m = expect(&v, MSG_METRICS);
	msg_fini(&m);
	while (receive_message(&v, &m))
		msg_fini(&m);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

static void an_abort_ends_an_agent_that_is_stuck(void **state)
{
	(void)state;
	struct supervisor v;
	begin_stuck(&v);
	send_message(&v, MSG_ABORT, msg_abort_json(&(struct msg_abort){ .reason = "rank 3 died" }));
	assert_int_equal(status_of(&v), 1);
	assert_non_null(strstr(reason_told(&v), "rank 3 died"));
	end_agent(&v);
}

static void a_lost_supervisor_ends_an_agent_that_is_stuck(void **state)
{
	(void)state;
	struct supervisor v;
	begin_stuck(&v);
	hang_up(&v);
	assert_int_equal(status_of(&v), 1);
	assert_non_null(strstr(reason_told(&v), "supervisor"));
	end_agent(&v);
}

static void an_abort_just_before_the_close_is_still_received(void **state)
{
	(void)state;
	struct supervisor v;
	begin_stuck(&v);
	/* The agent is stopped so that it sees the message only together with the end of the
	 * connection. */
	kill(v.agent, SIGSTOP);
	send_message(&v, MSG_ABORT, msg_abort_json(&(struct msg_abort){ .reason = "rank 3 died" }));
	shutdown(v.fd, SHUT_WR);
	kill(v.agent, SIGCONT);
	assert_int_equal(status_of(&v), 1);
	assert_non_null(strstr(reason_told(&v), "rank 3 died"));
	end_agent(&v);
}

static void a_broken_frame_ends_the_agent(void **state)
{
	(void)state;
	struct supervisor v;
	begin_stuck(&v);
	assert_int_equal(send(v.fd, "\xff\xff\xff\xff", 4, MSG_NOSIGNAL), 4);
	assert_int_equal(status_of(&v), 1);
	assert_non_null(strstr(reason_told(&v), "frame"));
	end_agent(&v);
}

static void a_message_that_only_agents_send_ends_the_agent(void **state)
{
	(void)state;
	struct supervisor v;
	begin_stuck(&v);
	send_message(&v, MSG_METRICS, json_object());
	assert_int_equal(status_of(&v), 1);
	assert_non_null(strstr(reason_told(&v), "metrics"));
	end_agent(&v);
}

static void a_message_without_a_field_ends_the_agent(void **state)
{
	(void)state;
	struct supervisor v;
	begin_stuck(&v);
	send_message(&v, MSG_STOP, json_pack("{s:s}", "reason", "time is up"));
	assert_int_equal(status_of(&v), 1);
	assert_non_null(strstr(reason_told(&v), "message stop: field \"checkpoint\" is missing"));
	end_agent(&v);
}

static void after_finished_a_lost_supervisor_is_no_failure(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, finish_and_get_stuck);
	let_in(&v);
	struct msg m = expect(&v, MSG_FINISHED);
	msg_fini(&m);
	hang_up(&v);
	assert_int_equal(status_of(&v), 0);
	assert_string_equal(reason_told(&v), "");
	end_agent(&v);
}

static void a_late_abort_handler_is_called_at_once(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, ask_late);
	let_in(&v);
	struct msg m = expect(&v, MSG_METRICS);
	msg_fini(&m);
	json_t *stop = msg_stop_json(&(struct msg_stop){ .reason = "time is up" });
	assert_int_equal(channel_send(v.channel, MSG_STOP, stop, NULL), 0);
	json_decref(stop);
	send_message(&v, MSG_ABORT, msg_abort_json(&(struct msg_abort){ .reason = "too slow" }));
	assert_int_equal(status_of(&v), 1);
	assert_non_null(strstr(reason_told(&v), "too slow"));
	end_agent(&v);
}

static void stop_reaches_the_trainer(bool checkpoint, int status)
{
	struct supervisor v;
	start_agent(&v, agent_main, wait_for_stop);
	let_in(&v);
	send_message(&v, MSG_STOP,
		     msg_stop_json(&(struct msg_stop){ .reason = "time is up",
						       .checkpoint = checkpoint }));
	struct msg m = expect(&v, MSG_FINISHED);
	msg_fini(&m);
	hang_up(&v);
	assert_int_equal(status_of(&v), status);
	end_agent(&v);
}

static void dumps_are_written_on_demand_and_answered(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, dump_until_stop);
	let_in(&v);
	struct msg m = expect(&v, MSG_METRICS);
	msg_fini(&m);
	for (int i = 0; i < 2; i++) {
		send_message(&v, MSG_DUMP, json_object());
		m = expect(&v, MSG_DUMPED);
		const char *error = json_string_value(json_object_get(m.body, "error"));
		assert_true(i ? error && strstr(error, "disk is full") : !error);
		msg_fini(&m);
	}
	send_message(&v, MSG_STOP,
		     msg_stop_json(&(struct msg_stop){ .reason = "time is up", .checkpoint = 1 }));
	m = expect(&v, MSG_FINISHED);
	msg_fini(&m);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

static json_t *trace_json(int number, int steps)
{
	return msg_trace_json(&(struct msg_trace){ .number = number, .steps = steps });
}

static void the_last_request_for_a_trace_counts(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, trace_until_stop);
	let_in(&v);
	send_message(&v, MSG_TRACE, trace_json(2, TRACE_STEPS_MOST));
	send_message(&v, MSG_TRACE, trace_json(1, 7));
	send_message(&v, MSG_STOP,
		     msg_stop_json(&(struct msg_stop){ .reason = "time is up", .checkpoint = 1 }));
	struct msg m = expect(&v, MSG_FINISHED);
	msg_fini(&m);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

static void a_trace_of_too_many_steps_ends_the_agent(void **state)
{
	static const int bad[][2] = { { 1, 0 }, { 0, 5 }, { -1, 5 }, { 1, TRACE_STEPS_MOST + 1 } };
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct supervisor v;
		begin_stuck(&v);
		send_message(&v, MSG_TRACE, trace_json(bad[i][0], bad[i][1]));
		assert_int_equal(status_of(&v), 1);
		assert_non_null(strstr(reason_told(&v), "message trace: "));
		end_agent(&v);
	}
}

static void a_stop_has_the_wish_for_a_checkpoint(void **state)
{
	(void)state;
	stop_reaches_the_trainer(true, AS_IT_MUST);
	stop_reaches_the_trainer(false, AS_IT_MUST + 1);
}

static void signals_are_reported_and_survived(void **state)
{
	(void)state;
	static const int numbers[] = { SIGTERM, SIGINT, SIGUSR1 };
	struct supervisor v;
	begin_stuck(&v);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		kill(v.agent, numbers[i]);
		struct msg m = expect(&v, MSG_SIGNAL);
		assert_int_equal(json_integer_value(json_object_get(m.body, "number")), numbers[i]);
		msg_fini(&m);
	}
	hang_up(&v);
	assert_int_equal(status_of(&v), 1);
	end_agent(&v);
}

static void a_refusal_gives_its_reason(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, never_let_in, NULL);
	struct msg m = expect(&v, MSG_HELLO);
	msg_fini(&m);
	send_message(&v, MSG_ABORT,
		     msg_abort_json(&(struct msg_abort){ .reason = "too many agents" }));
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

static void another_secret_finds_no_supervisor(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, holds_another_secret, NULL);
	char hello[4096];
	ssize_t n = recv(v.fd, hello, sizeof hello, 0);
	assert_true(n > 0);
	/* The supervisor therefore closes the connection. */
	assert_int_equal(channel_feed(v.channel, hello, (size_t)n, NULL), -1);
	shutdown(v.fd, SHUT_RDWR);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_sent_arrives_in_order_before_the_close),
		cmocka_unit_test(heartbeats_report_the_progress),
		cmocka_unit_test(progress_is_reported_soon_and_before_a_failure),
		cmocka_unit_test(the_time_without_a_core_is_reported),
		cmocka_unit_test(a_message_without_a_body_is_not_sent),
		cmocka_unit_test(an_abort_ends_an_agent_that_is_stuck),
		cmocka_unit_test(a_lost_supervisor_ends_an_agent_that_is_stuck),
		cmocka_unit_test(an_abort_just_before_the_close_is_still_received),
		cmocka_unit_test(a_broken_frame_ends_the_agent),
		cmocka_unit_test(a_message_that_only_agents_send_ends_the_agent),
		cmocka_unit_test(a_message_without_a_field_ends_the_agent),
		cmocka_unit_test(after_finished_a_lost_supervisor_is_no_failure),
		cmocka_unit_test(a_late_abort_handler_is_called_at_once),
		cmocka_unit_test(dumps_are_written_on_demand_and_answered),
		cmocka_unit_test(the_last_request_for_a_trace_counts),
		cmocka_unit_test(a_trace_of_too_many_steps_ends_the_agent),
		cmocka_unit_test(a_stop_has_the_wish_for_a_checkpoint),
		cmocka_unit_test(signals_are_reported_and_survived),
		cmocka_unit_test(a_refusal_gives_its_reason),
		cmocka_unit_test(another_secret_finds_no_supervisor),
	};
	/* Without an alarm, the test would wait for a broken agent without end. */
	alarm(PATIENCE_S);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
