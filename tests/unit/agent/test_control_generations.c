/* Tests how an agent goes from a generation to the next one over the control channel. */
#include "tests/unit/agent/control_play.h"

#include "base/clock.h"

#include <sched.h>
#include <string.h>
#include <sys/socket.h>

/* --- agents --- */

static int agent_on_one_core(struct stage *s, scenario *play)
{
	cpu_set_t core;
	CPU_ZERO(&core);
	CPU_SET((size_t)sched_getcpu(), &core);
	return sched_setaffinity(0, sizeof core, &core) ? 1 : agent_main(s, play);
}

/* Takes part in two generations; in the second one it meets the other ranks only if `meets`. */
static int regroup(struct control *c, bool meets)
{
	const struct msg_welcome *next;
	struct err e = ERR_INIT;
	json_t *own = json_pack("{s:s}", "a", "b"), *all = NULL;
	if (agent_control_await_next(c, &next, &e) || next->rank != 1 || next->world != 2)
		return 1;
	int rc = agent_control_exchange(c, own, (const int[]){ 0, 1 }, 2, &all, &e);
	bool over = agent_control_regroups(c);
	json_decref(own);
	if (meets ? rc || over || json_array_size(all) != 2 : rc == 0 || !over)
		return 2;
	json_decref(all);
	agent_control_send(c, MSG_FINISHED, json_pack("{s:i}", "step", 1));
	return AS_IT_MUST;
}

static int regroup_and_meet(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)s;
	(void)welcome;
	return regroup(c, true);
}

/* The trainer runs only while the control thread has nothing to do. */
static int regroup_twice(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)s;
	(void)welcome;
	return sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }) ? 3
									     : regroup(c, false);
}

static void note_step(struct control *c, int64_t step)
{
	agent_control_times(c, &(struct train_times){ .step = step }, false);
}

/* Trains one step, fails, trains another one meanwhile, and finishes the next generation. */
static int train_in_two_generations(struct stage *s, struct control *c,
				    const struct msg_welcome *welcome)
{
	(void)s;
	struct err e = ERR_INIT;
	agent_control_send(c, MSG_READY, json_pack("{s:i}", "step", 0));
	note_step(c, 1);
	agent_control_send(c, MSG_FAILED, json_pack("{s:s}", "code", "peer"));
	note_step(c, 2);
	if (agent_control_await_next(c, &welcome, &e))
		return 1;
	agent_control_send(c, MSG_READY, json_pack("{s:i}", "step", 2));
	note_step(c, 3);
	agent_control_send(c, MSG_FINISHED, json_pack("{s:i}", "step", 3));
	return AS_IT_MUST;
}

/* For ten heartbeats; most of that time, the last one was sent too long ago. */
static int stay_in_contact(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	(void)s;
	double end = clock_s() + 10 * welcome->heartbeat_s;
	while (clock_s() < end)
		if (agent_control_await_contact(c, NULL))
			return 1;
	agent_control_send(c, MSG_FINISHED, json_pack("{s:i}", "step", 1));
	return AS_IT_MUST;
}

static int lose_contact(struct stage *s, struct control *c, const struct msg_welcome *welcome)
{
	struct err e = ERR_INIT;
	(void)s;
	(void)welcome;
	if (!agent_control_await_contact(c, &e) || e.code != ERR_ABORTED)
		return 1;
	agent_control_send(c, MSG_FINISHED, json_pack("{s:i}", "step", 1));
	return AS_IT_MUST;
}

/* --- supervisors --- */

static json_t *regroup_json(void)
{
	return msg_regroup_json(&(struct msg_regroup){ .reason = "rank 3 is lost" });
}

static void queue_next_welcome(struct supervisor *v)
{
	json_t *welcome = welcome_json(GENERATION + 1, 1, 2, 0.02);
	assert_int_equal(channel_send(v->channel, MSG_WELCOME, welcome, NULL), 0);
	json_decref(welcome);
	channel_renew(v->channel, GENERATION + 1);
}

/* Up to the welcome of the next generation, which is queued but not sent. */
static void lose_generation(struct supervisor *v, scenario *play)
{
	start_agent(v, agent_on_one_core, play);
	let_in(v);
	send_message(v, MSG_REGROUP, regroup_json());
	struct msg m = expect(v, MSG_IDLE);
	msg_fini(&m);
	queue_next_welcome(v);
}

/* The agent's messages of the lost generation may still come. */
static struct msg receive_of_next(struct supervisor *v, enum msg_type type)
{
	struct msg m = { 0 };
	char data[4096];
	while (m.type != type) {
		struct err e = ERR_INIT;
		msg_fini(&m);
		m = (struct msg){ 0 };
		int rc = channel_next(v->channel, &m, &e);
		assert_true(rc >= 0 || e.code == ERR_STALE);
		if (rc)
			continue;
		ssize_t n = recv(v->fd, data, sizeof data, 0);
		assert_true(n > 0);
		assert_int_equal(channel_feed(v->channel, data, (size_t)n, NULL), 0);
	}
	return m;
}

static void expect_of_next(struct supervisor *v, enum msg_type type)
{
	struct msg m = receive_of_next(v, type);
	msg_fini(&m);
}

/* The times of the steps up to this one, and then a message of this type. */
static void expect_times_before(struct supervisor *v, int64_t step, enum msg_type type)
{
	struct msg m = expect(v, MSG_TIMES);
	assert_int_equal(json_integer_value(json_object_get(m.body, "step")), step);
	msg_fini(&m);
	m = expect(v, type);
	msg_fini(&m);
}

static void the_times_are_reported_before_a_rank_fails_is_idle_or_finishes(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, train_in_two_generations);
	let_in(&v);
	struct msg m = expect(&v, MSG_READY);
	msg_fini(&m);
	expect_times_before(&v, 1, MSG_FAILED);
	send_message(&v, MSG_REGROUP, regroup_json());
	expect_times_before(&v, 2, MSG_IDLE);
	queue_next_welcome(&v);
	flush(&v);
	expect_of_next(&v, MSG_READY);
	expect_times_before(&v, 3, MSG_FINISHED);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

static void send_world_endpoints(struct supervisor *v)
{
	for (int rank = 0; rank < 2; rank++) {
		struct msg_world_endpoints part = { .first = rank,
						    .values = json_pack("[{s:s}]", "a", "b") };
		send_message(v, MSG_WORLD_ENDPOINTS, msg_world_endpoints_json(&part));
		json_decref(part.values);
	}
}

static void an_agent_meets_the_ranks_of_its_next_generation(void **state)
{
	(void)state;
	struct supervisor v;
	lose_generation(&v, regroup_and_meet);
	flush(&v);
	expect_of_next(&v, MSG_ENDPOINTS);
	send_world_endpoints(&v);
	expect_of_next(&v, MSG_FINISHED);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

/* The world may be a smaller one, whose heartbeats are more frequent. */
static void the_next_welcome_sets_the_heartbeat(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_on_one_core, regroup_and_meet);
	let_in_with(&v, 3600);
	send_message(&v, MSG_REGROUP, regroup_json());
	struct msg m = expect(&v, MSG_IDLE);
	msg_fini(&m);
	queue_next_welcome(&v);
	flush(&v);
	expect_of_next(&v, MSG_ENDPOINTS);
	for (int i = 0; i < 3; i++) { /* the trainer only waits meanwhile */
		m = receive_of_next(&v, MSG_PROGRESS);
		assert_true(json_number_value(json_object_get(m.body, "stalled_s")) < PATIENCE_S);
		msg_fini(&m);
	}
	send_world_endpoints(&v);
	expect_of_next(&v, MSG_FINISHED);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

/* The trainer has not seen the welcome yet. */
static void the_loss_of_a_generation_that_has_just_begun_is_not_missed(void **state)
{
	(void)state;
	struct supervisor v;
	lose_generation(&v, regroup_twice);
	send_message(&v, MSG_REGROUP, regroup_json());
	expect_of_next(&v, MSG_FINISHED);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

/* It counts as dead after so many seconds of silence. */
static void let_in_for(struct supervisor *v, double silent_s)
{
	struct msg hello = expect(v, MSG_HELLO);
	json_t *welcome = welcome_json(GENERATION, 5, 8, 0.05);
	json_object_set_new(welcome, "silent_s", json_real(silent_s));
	msg_fini(&hello);
	send_message(v, MSG_WELCOME, welcome);
}

static void contact_is_renewed_by_each_heartbeat(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, stay_in_contact);
	let_in_for(&v, 0.03);
	struct msg m = expect(&v, MSG_FINISHED);
	msg_fini(&m);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

/* No answer could ever be so fresh. */
static void a_rank_without_contact_waits_until_its_generation_is_over(void **state)
{
	(void)state;
	struct supervisor v;
	start_agent(&v, agent_main, lose_contact);
	let_in_for(&v, 1e-9);
	send_message(&v, MSG_REGROUP, regroup_json());
	struct msg m = expect(&v, MSG_FINISHED);
	msg_fini(&m);
	hang_up(&v);
	assert_int_equal(status_of(&v), AS_IT_MUST);
	end_agent(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_times_are_reported_before_a_rank_fails_is_idle_or_finishes),
		cmocka_unit_test(the_next_welcome_sets_the_heartbeat),
		cmocka_unit_test(an_agent_meets_the_ranks_of_its_next_generation),
		cmocka_unit_test(contact_is_renewed_by_each_heartbeat),
		cmocka_unit_test(a_rank_without_contact_waits_until_its_generation_is_over),
		cmocka_unit_test(the_loss_of_a_generation_that_has_just_begun_is_not_missed),
	};
	/* Without an alarm, the test would wait for a broken agent without end. */
	alarm(PATIENCE_S);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
