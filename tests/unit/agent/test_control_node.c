/* Two agents of one node report over the control channel: the first one for both, as long as it can. The test
 * plays the supervisor of each. */
#include "base/rank_rows.h"
#include "tests/unit/agent/control_play.h"

#include <linux/filter.h>
#include <sched.h>
#include <sys/prctl.h>

enum { LEADER = 4, MEMBER = 5, QUIET_MS = 500, AT_ONCE = 100, CONTACT_BEATS = 3 };

static double heartbeat_s = 0.1, silent_s = 15; /* that a welcome asks for */
static struct supervisor a, b; /* of the agents that are LEADER and MEMBER at first */

/* --- agents --- */

/* Reports what a window has shown whenever the test asks for it by the message save: number 100 and above at
 * once. Then it tells the test so. */
static void report_window(const struct stage *s, struct control *c, int *reported)
{
	int asked = agent_control_save_asked(c);
	json_t *findings = json_array();
	json_t *health =
		msg_health_json(&(struct msg_health){ .step = asked, .findings = findings });
	json_t *links = msg_links_json(&(struct msg_links){ .links = findings });
	json_decref(findings);
	if (asked == *reported) {
		json_decref(health);
		json_decref(links);
	} else if (asked >= AT_ONCE) {
		agent_control_report_at_once(c, MSG_HEALTH, health);
		json_decref(links);
	} else {
		agent_control_report_later(c, MSG_HEALTH, health);
		agent_control_report_later(c, MSG_LINKS, links);
	}
	if (asked != *reported && write(s->told[1], "", 1) < 0)
		abort();
	*reported = asked;
}

/* Trains until the generation is over. False: the agent is to stop. */
static bool train(const struct stage *s, struct control *c)
{
	bool checkpoint;
	int reported = 0;
	agent_control_send(c, MSG_READY, json_pack("{s:i}", "step", 0));
	for (int64_t step = 1; !agent_control_regroups(c); step++) {
		if (agent_control_stopping(c, &checkpoint))
			return false;
		agent_control_progress(c, step, "forward");
		agent_control_times(c, &(struct train_times){ .step = step }, false);
		report_window(s, c, &reported);
		poll(NULL, 0, 2);
	}
	return true;
}

static int train_until_stop(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	struct err e = ERR_INIT;
	while (train(s, c))
		if (agent_control_await_next(c, &welcome, &e))
			return 1;
	agent_control_send(c, MSG_FINISHED, json_pack("{s:i}", "step", 1));
	return AS_IT_MUST;
}

/* Its thread never gets beyond its first step, on a core that it shares with another process. */
static int starve(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	cpu_set_t core;
	bool checkpoint;
	(void)s;
	(void)welcome;
	CPU_ZERO(&core);
	CPU_SET((size_t)sched_getcpu(), &core);
	if (sched_setaffinity(0, sizeof core, &core))
		return 1;
	agent_control_worked(c, 1e-6);
	pid_t other = fork();
	if (other == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!agent_control_stopping(c, &checkpoint))
		(void)getppid();
	if (other == 0)
		_exit(0);
	kill(other, SIGKILL);
	if (waitpid(other, NULL, 0) != other)
		return 1;
	agent_control_send(c, MSG_FINISHED, json_pack("{s:i}", "step", 1));
	return AS_IT_MUST;
}

/* --- supervisors --- */

static json_t *welcome_of_node(uint32_t generation, int rank, const char *secret)
{
	json_t *w = welcome_json(generation, rank, 8, heartbeat_s);
	json_object_set_new(w, "silent_s", json_real(silent_s));
	json_object_set_new(w, "leader", json_integer(LEADER));
	json_object_set_new(w, "node_ranks", json_integer(2));
	json_object_set_new(w, "group_secret", json_string(secret));
	if (rank == LEADER)
		json_object_set_new(w, "here", json_pack("[i, i]", LEADER, MEMBER));
	return w;
}

static void start_rank(struct supervisor *v, int rank, const char *secret, scenario *play)
{
	start_agent(v, agent_main, play);
	struct msg hello = expect(v, MSG_HELLO);
	msg_fini(&hello);
	send_message(v, MSG_WELCOME, welcome_of_node(GENERATION, rank, secret));
}

static void new_secret(char hex[AUTH_SECRET_HEX])
{
	unsigned char secret[AUTH_SECRET_BYTES];
	auth_secret_new(secret);
	auth_secret_hex(secret, hex);
}

static void start_node_with(scenario *first)
{
	char secret[AUTH_SECRET_HEX];
	new_secret(secret);
	start_rank(&a, LEADER, secret, first);
	start_rank(&b, MEMBER, secret, train_until_stop);
}

static void start_node(void)
{
	start_node_with(train_until_stop);
}

/* False: no message came for so long. Those of the last generation are skipped. */
static bool receive_within(struct supervisor *v, int ms, struct msg *m)
{
	char data[4096];
	for (;;) {
		struct err e = ERR_INIT;
		struct pollfd p = { v->fd, POLLIN, 0 };
		int rc = channel_next(v->channel, m, &e);
		assert_true(rc >= 0 || e.code == ERR_STALE);
		if (rc > 0)
			return true;
		if (rc < 0)
			continue;
		if (poll(&p, 1, ms) <= 0)
			return false;
		ssize_t n = recv(v->fd, data, sizeof data, 0);
		assert_true(n > 0);
		assert_int_equal(channel_feed(v->channel, data, (size_t)n, NULL), 0);
		flush(v);
	}
}

/* Waits until the agent reports nothing by itself. */
static void await_quiet(struct supervisor *v)
{
	for (struct msg m; receive_within(v, QUIET_MS, &m);)
		msg_fini(&m);
}

static void await_message(struct supervisor *v, enum msg_type type)
{
	for (bool seen = false; !seen;) {
		struct msg m;
		assert_true(receive_within(v, PATIENCE_S * 1000, &m));
		seen = m.type == type;
		msg_fini(&m);
	}
}

/* The step that a message has of the rank; -1: it has no row of it. */
static int64_t step_in(const struct msg *m, const char *list, int rank)
{
	size_t i;
	json_t *row;
	int64_t step = -1;
	if (m->type != MSG_NODE_PROGRESS)
		return -1;
	json_array_foreach(json_object_get(m->body, list), i, row)
	{
		if (json_integer_value(json_array_get(row, 0)) == rank)
			step = json_integer_value(json_array_get(row, 1));
	}
	return step;
}

/* Waits until a message for the node has a row of the rank beyond this step. Returns its step. */
static int64_t await_row(struct supervisor *v, const char *list, int rank, int64_t beyond)
{
	for (int64_t step;;) {
		struct msg m;
		assert_true(receive_within(v, PATIENCE_S * 1000, &m));
		step = step_in(&m, list, rank);
		assert_true(step < 0 || strcmp(list, "progress") ||
			    step_in(&m, list, LEADER) >= 0); /* it is always there */
		msg_fini(&m);
		if (step > beyond)
			return step;
	}
}

static void stop_rank(struct supervisor *v)
{
	send_message(v, MSG_STOP, msg_stop_json(&(struct msg_stop){ .reason = "time is up" }));
	await_message(v, MSG_FINISHED);
	hang_up(v);
	assert_int_equal(status_of(v), AS_IT_MUST);
	end_agent(v);
}

/* The other one relies on the first one from here on, and does so for minutes, however late either
 * gets a core. */
static void start_node_that_waits(void)
{
	char secret[AUTH_SECRET_HEX];
	heartbeat_s = 60;
	silent_s = PATIENT_WAIT_S;
	new_secret(secret);
	start_rank(&a, LEADER, secret, train_until_stop);
	await_message(&a, MSG_READY); /* so its relay listens */
	start_rank(&b, MEMBER, secret, train_until_stop);
	await_row(&a, "progress", MEMBER, 0);
	heartbeat_s = 0.1;
	silent_s = 15;
}

static void the_first_rank_reports_for_the_other_one(void **state)
{
	(void)state;
	start_node();
	int64_t step = await_row(&a, "progress", MEMBER, 0);
	await_row(&a, "times", MEMBER, 0);
	await_row(&a, "times", LEADER, 0);
	await_quiet(&b);
	await_row(&a, "progress", MEMBER, step);
	stop_rank(&b);
	stop_rank(&a);
}

/* Seconds that the first rank waited for a core, by a message for the node; 0: it is another one. */
static double delay_in(const struct msg *m)
{
	struct msg_progress own;
	int rank;
	const json_t *row = json_array_get(json_object_get(m->body, "progress"), 0);
	return m->type == MSG_NODE_PROGRESS && !msg_progress_row_read(row, &rank, &own, NULL)
		       ? own.delay_s
		       : 0;
}

/* Although the other one has news so often that no heartbeat of its own is due. */
static void a_first_rank_that_gets_no_core_says_so(void **state)
{
	(void)state;
	if (access("/proc/self/schedstat", R_OK))
		skip();
	heartbeat_s = 2;
	start_node_with(starve);
	heartbeat_s = 0.1;
	for (double delay = 0; !(delay > 1);) {
		struct msg m;
		assert_true(receive_within(&a, PATIENCE_S * 1000, &m));
		delay = delay_in(&m);
		msg_fini(&m);
	}
	stop_rank(&b);
	stop_rank(&a);
}

static void while_the_first_rank_is_stopped_the_other_one_reports_itself(void **state)
{
	(void)state;
	start_node();
	await_quiet(&b);
	int64_t step = await_row(&a, "progress", MEMBER, 0);
	kill(a.agent, SIGSTOP);
	await_message(&b, MSG_PROGRESS);
	await_message(&b, MSG_PROGRESS);
	kill(a.agent, SIGCONT);
	await_quiet(&b);
	await_row(&a, "progress", MEMBER, step + 1);
	stop_rank(&b);
	stop_rank(&a);
}

static void when_the_first_rank_is_killed_the_other_one_reports_itself(void **state)
{
	int status;
	(void)state;
	start_node();
	await_quiet(&b);
	kill(a.agent, SIGKILL);
	await_message(&b, MSG_PROGRESS);
	assert_int_equal(waitpid(a.agent, &status, 0), a.agent);
	end_agent(&a);
	stop_rank(&b);
}

/* The kernel drops what comes for the supervisor, as if the network did, and so acknowledges nothing. */
static void cut_off(const struct supervisor *v, bool cut)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = { .len = 1, .filter = &nothing };
	assert_int_equal(setsockopt(v->fd, SOL_SOCKET, cut ? SO_ATTACH_FILTER : SO_DETACH_FILTER,
				    &program, sizeof program),
			 0);
}

static void while_the_first_rank_is_cut_off_the_other_one_reports_itself(void **state)
{
	(void)state;
	start_node();
	await_quiet(&b);
	cut_off(&a, true);
	await_message(&b, MSG_PROGRESS);
	await_message(&b, MSG_PROGRESS);
	cut_off(&a, false);
	await_quiet(&b);
	stop_rank(&b);
	stop_rank(&a);
}

/* --- reports --- */

static void ask_for_report(struct supervisor *v, int number)
{
	send_message(v, MSG_SAVE, msg_save_json(&(struct msg_save){ .number = number }));
}

/* Waits until the agent's trainer has made the report. */
static void await_reported(struct supervisor *v)
{
	char byte;
	assert_int_equal(read(v->s.told[0], &byte, 1), 1);
}

/* Waits until a message for the node has the rank's report with this number among the agent's. */
static void await_report_row(struct supervisor *v, int rank, enum msg_type type, int64_t wanted)
{
	for (int64_t number = 0; number != wanted;) {
		struct msg m;
		size_t i;
		json_t *row;
		assert_true(receive_within(v, PATIENCE_S * 1000, &m));
		json_array_foreach(json_object_get(m.body, "reports"), i, row)
		{
			enum msg_type of_type;
			const json_t *body;
			int of;
			assert_int_equal(msg_report_row_read(row, &of, &of_type, &body, NULL), 0);
			if (of == rank && of_type == type)
				number = json_integer_value(json_object_get(body, "number"));
		}
		msg_fini(&m);
		assert_true(number <= wanted);
	}
}

/* Waits until the agent sends this message itself. Returns the number that the test asked for by. */
static int64_t await_health(struct supervisor *v)
{
	for (int64_t asked = -1;;) {
		struct msg m;
		struct msg_health health;
		assert_true(receive_within(v, PATIENCE_S * 1000, &m));
		if (m.type == MSG_HEALTH) {
			assert_int_equal(msg_health_read(m.body, &health, NULL), 0);
			assert_true(health.number > 0);
			asked = health.step;
		}
		msg_fini(&m);
		if (asked >= 0)
			return asked;
	}
}

static void the_first_rank_hands_reports_on(void **state)
{
	(void)state;
	start_node_that_waits();
	ask_for_report(&b, 1);
	await_report_row(&a, MEMBER, MSG_HEALTH, 1);
	ask_for_report(&b, 2);
	await_report_row(&a, MEMBER, MSG_LINKS, 2);
	ask_for_report(&a, 1);
	await_report_row(&a, LEADER, MSG_HEALTH, 1);
	await_quiet(&b);
	stop_rank(&b);
	stop_rank(&a);
}

static void a_report_that_cannot_wait_is_sent_at_once(void **state)
{
	(void)state;
	start_node_that_waits();
	kill(a.agent, SIGSTOP);
	ask_for_report(&b, 1);
	ask_for_report(&b, AT_ONCE);
	assert_int_equal(await_health(&b), AT_ONCE);
	kill(a.agent, SIGCONT);
	await_quiet(&b);
	stop_rank(&b);
	stop_rank(&a);
}

/* It has the report in its socket, and never reads it. */
static void a_first_rank_that_dies_loses_no_report(void **state)
{
	int status;
	(void)state;
	start_node();
	await_quiet(&b);
	kill(a.agent, SIGSTOP);
	ask_for_report(&b, 7);
	poll(NULL, 0,
	     150); /* it hands the report to the relay, and does not yet know that it is stopped */
	kill(a.agent, SIGKILL);
	assert_int_equal(await_health(&b), 7);
	await_message(&b, MSG_LINKS);
	assert_int_equal(waitpid(a.agent, &status, 0), a.agent);
	end_agent(&a);
	stop_rank(&b);
}

static void a_first_rank_that_is_stopped_or_cut_off_holds_no_report(void **state)
{
	(void)state;
	start_node();
	await_quiet(&b);
	kill(a.agent, SIGSTOP);
	ask_for_report(&b, 1);
	assert_int_equal(await_health(&b), 1);
	kill(a.agent, SIGCONT);
	await_quiet(&b);
	cut_off(&a, true);
	poll(NULL, 0, (int)(1000 * CONTACT_BEATS * heartbeat_s) + 200); /* until it knows that */
	await_message(&b, MSG_PROGRESS);
	ask_for_report(&b, 2);
	assert_int_equal(await_health(&b), 2);
	cut_off(&a, false);
	await_quiet(&b);
	stop_rank(&b);
	stop_rank(&a);
}

static void a_report_precedes_the_end_of_its_rank(void **state)
{
	(void)state;
	start_node_that_waits();
	kill(a.agent, SIGSTOP);
	ask_for_report(&b, 1);
	await_reported(&b);
	send_message(&b, MSG_STOP, msg_stop_json(&(struct msg_stop){ .reason = "time is up" }));
	assert_int_equal(await_health(&b), 1);
	await_message(&b, MSG_FINISHED);
	hang_up(&b);
	assert_int_equal(status_of(&b), AS_IT_MUST);
	end_agent(&b);
	kill(a.agent, SIGCONT);
	stop_rank(&a);
}

/* --- ends --- */

static void a_first_rank_that_finishes_leaves_the_other_one(void **state)
{
	(void)state;
	start_node();
	await_quiet(&b);
	stop_rank(&a);
	await_message(&b, MSG_PROGRESS);
	stop_rank(&b);
}

static void leave_generation(struct supervisor *v, int rank, const char *secret)
{
	send_message(v, MSG_REGROUP, msg_regroup_json(&(struct msg_regroup){ .reason = "loss" }));
	await_message(v, MSG_IDLE);
	json_t *welcome = welcome_of_node(GENERATION + 1, rank, secret);
	send_message(v, MSG_WELCOME, welcome);
	channel_renew(v->channel, GENERATION + 1);
}

static void in_the_next_generation_another_rank_may_be_the_first(void **state)
{
	char secret[AUTH_SECRET_HEX];
	(void)state;
	start_node();
	await_quiet(&b);
	new_secret(secret);
	leave_generation(&a, MEMBER, secret);
	leave_generation(&b, LEADER, secret);
	int64_t step = await_row(&b, "progress", MEMBER, 0);
	await_quiet(&a);
	await_row(&b, "progress", MEMBER, step);
	stop_rank(&a);
	stop_rank(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_rank_reports_for_the_other_one),
		cmocka_unit_test(a_first_rank_that_gets_no_core_says_so),
		cmocka_unit_test(while_the_first_rank_is_stopped_the_other_one_reports_itself),
		cmocka_unit_test(when_the_first_rank_is_killed_the_other_one_reports_itself),
		cmocka_unit_test(while_the_first_rank_is_cut_off_the_other_one_reports_itself),
		cmocka_unit_test(the_first_rank_hands_reports_on),
		cmocka_unit_test(a_report_that_cannot_wait_is_sent_at_once),
		cmocka_unit_test(a_first_rank_that_dies_loses_no_report),
		cmocka_unit_test(a_first_rank_that_is_stopped_or_cut_off_holds_no_report),
		cmocka_unit_test(a_report_precedes_the_end_of_its_rank),
		cmocka_unit_test(a_first_rank_that_finishes_leaves_the_other_one),
		cmocka_unit_test(in_the_next_generation_another_rank_may_be_the_first),
	};
	/* Without an alarm, the test would wait for a broken agent without end. */
	alarm(PATIENCE_S);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
