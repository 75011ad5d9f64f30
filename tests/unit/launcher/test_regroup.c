/* A loss in which the other agents live on: who is kept, who is started, and what ends them all. */
#include "tests/unit/launcher/harness.h"

enum { LAUNCHES = 8 };

/* The launch backend: each launch counts the processes that it has started. */
struct launched_here {
	struct launch_events events;
	bool started[WORLD], doomed[WORLD]; /* doomed: killed, and not ended yet */
	int running;
	bool open, killed;
};

static struct {
	struct launched_here list[LAUNCHES];
	int n;
	bool all; /* of the last start */
	bool fails;
	int missing; /* ranks of the last start */
	uint32_t generation;
} b;

static struct launched_here *of(struct launch *l)
{
	return &b.list[(uintptr_t)l - 1];
}

static int start_some(uv_loop_t *loop, const struct launch_request *r,
		      const struct launch_events *ev, struct launch **out, struct err *e)
{
	(void)loop;
	if (b.fails)
		return err_set(e, ERR_NOMEM, "cannot start another process");
	struct launched_here *l = &b.list[b.n++];
	*l = (struct launched_here){ .events = *ev, .open = true, .running = r->n_ranks };
	for (int i = 0; i < r->n_ranks; i++)
		l->started[r->ranks ? r->ranks[i] : i] = true;
	b.all = !r->ranks;
	b.missing = r->n_ranks;
	b.generation = r->generation;
	h.world = r->plan->world;
	assert_int_equal(auth_secret_parse(r->secret, h.secret, e), 0);
	h.generation = r->generation;
	*out = (struct launch *)(uintptr_t)b.n;
	return 0;
}

static void process_ends(struct launched_here *l, int rank, int status)
{
	if (!l->open || !l->started[rank])
		return;
	l->started[rank] = false;
	l->events.exited(l->events.arg, rank, status);
	if (--l->running == 0)
		l->events.all_gone(l->events.arg);
}

static void kill_rank(struct launch *l, int rank)
{
	of(l)->doomed[rank] = true;
}

static void kill_launch(struct launch *l, bool node_lost)
{
	(void)node_lost;
	of(l)->killed = true;
}

static void close_launch(struct launch *l)
{
	assert_int_equal(of(l)->running, 0);
	of(l)->open = false;
}

static const struct launch_ops some_ops = { .name = "fake",
					    .start = start_some,
					    .kill = kill_launch,
					    .kill_agent = kill_rank,
					    .close = close_launch };

/* As Slurm: a process cannot be killed alone, and nothing is said of the end of one. */
static const struct launch_ops step_ops = {
	.name = "fake step", .start = start_some, .kill = kill_launch, .close = close_launch
};

/* The processes that were killed end. */
static void reap_killed(void)
{
	for (int i = 0; i < b.n; i++)
		for (int r = 0; r < WORLD; r++)
			if (b.list[i].killed || b.list[i].doomed[r])
				process_ends(&b.list[i], r, SIGKILL);
	deliver_all();
}

static int processes(void)
{
	int n = 0;
	for (int i = 0; i < b.n; i++)
		n += b.list[i].open ? b.list[i].running : 0;
	return n;
}

/* The process of a rank dies, which closes its connection. Its peer is `i`. */
static void die(int rank, int i)
{
	shutdown(h.peers[i].fd, SHUT_RDWR);
	for (int l = b.n - 1; l >= 0; l--)
		if (b.list[l].open && b.list[l].started[rank]) {
			process_ends(&b.list[l], rank, SIGSEGV);
			break;
		}
	deliver_all();
}

static void start_warm(const struct launch_ops *ops)
{
	h.first.job.restart.warm = true;
	h.first.job.restart.regroup_timeout = 3;
	supervise_close(h.supervisor);
	uv_run(&h.loop, UV_RUN_DEFAULT);
	assert_int_equal(open_supervisor(ops), 0);
	supervise_start(h.supervisor);
}

static void open_warm(void)
{
	start_warm(&some_ops);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 3);
}

/* Publishes a text, and asks for those of the ranks in a list of JSON. */
static void publish_for(struct peer *p, const char *text, const char *wants)
{
	struct msg_endpoints m = { .values = json_pack("{s:s}", "card", text),
				   .wants = json_loads(wants, JSON_DECODE_ANY, NULL) };
	json_t *body = msg_endpoints_json(&m);
	json_decref(m.values);
	json_decref(m.wants);
	send_message(p, MSG_ENDPOINTS, body);
}

static void publish_text(struct peer *p, const char *text)
{
	publish_for(p, text, "[0, 1]");
}

static void publish(struct peer *p)
{
	publish_text(p, "here");
}

/* The missing rank's agent, which is peer `i`, connects, and both train. */
static void join(int rank, int i, int other)
{
	send_message(peer_open(i, h.secret, h.generation), MSG_HELLO, hello_json(rank));
	publish(&h.peers[other]);
	publish(&h.peers[i]);
	send_step(&h.peers[other], MSG_READY, 0);
	send_step(&h.peers[i], MSG_READY, 0);
}

static void the_other_agent_lives_on(void **state)
{
	(void)state;
	open_warm();
	assert_true(h.peers[0].by_pmix);
	die(1, 1);
	assert_int_equal(h.peers[0].regroups, 1);
	assert_int_equal(b.n, 2);
	assert_false(b.all);
	assert_int_equal(b.missing, 1);
	assert_true(b.list[1].started[1]);
	assert_false(b.list[0].killed);
	assert_int_equal(h.peers[0].welcomes, 2);
	assert_false(h.peers[0].by_pmix);
	assert_int_equal(h.peers[0].rank, 0);
	assert_int_equal(count_events("\"regrouped\"", "\"kept\":1"), 1);
	assert_int_equal(count_events("\"hello\"", "\"kept\":true"), 1);
	join(1, 2, 0);
	assert_int_equal(h.peers[0].endpoints, 2);
	assert_int_equal(h.peers[2].endpoints, 2);
	assert_int_equal(count_events("\"event\":\"ready\"", ""), 2);
	assert_int_equal(h.peers[2].predecessors, 0);
	/* The kept agent ends as any other. */
	send_step(&h.peers[0], MSG_METRICS, 4);
	die(0, 0);
	assert_int_equal(b.n, 3);
	assert_int_equal(b.missing, 1);
	assert_true(b.list[2].started[0]);
	assert_int_equal(h.peers[2].welcomes, 2);
	assert_int_equal(processes(), 2);
}

static void an_agent_that_does_not_leave_in_time_is_replaced(void **state)
{
	(void)state;
	open_warm();
	h.peers[0].stubborn = true;
	die(1, 1);
	assert_int_equal(b.n, 1);
	pass_time(2.9);
	assert_int_equal(b.n, 1);
	pass_time(0.3);
	reap_killed();
	assert_int_equal(b.n, 2);
	assert_true(b.all);
}

/* The backend reports the rank that a process was started as. */
static void the_end_of_an_agent_with_another_rank_is_that_of_its_rank(void **state)
{
	(void)state;
	open_warm();
	die(1, 1);
	join(1, 2, 0);
	die(1, 2); /* no progress: the next start is a second later */
	h.ranks[0].slot = 0;
	h.ranks[1].slot = 1; /* that of the agent that was started as rank 0 */
	pass_time(2);
	assert_int_equal(h.peers[0].rank, 1);
	process_ends(&b.list[0], 0, SIGSEGV);
	assert_int_equal(count_events("\"rank-lost\"", "\"how\":\"exited\""), 1);
	assert_int_equal(count_events("\"how\":\"exited\"", "\"rank\":1"), 1);
}

/* The supervisor had no time to read it. */
static void an_answer_that_waits_in_the_socket_is_in_time(void **state)
{
	(void)state;
	open_warm();
	h.peers[0].stubborn = true;
	die(1, 1);
	pass_time(2.9);
	leave_message(&h.peers[0], MSG_IDLE, NULL);
	h.now += 0.3;
	supervise_tick(h.supervisor);
	assert_int_equal(b.n, 2);
	assert_int_equal(b.missing, 1);
	assert_int_equal(count_events("\"regrouped\"", "\"kept\":1"), 1);
}

static void warm_no_ends_all(void **state)
{
	(void)state;
	open_warm();
	h.first.job.restart.warm = false;
	die(1, 1);
	assert_int_equal(h.peers[0].regroups, 0);
	assert_true(h.peers[0].aborted);
	reap_killed();
	assert_int_equal(b.n, 2);
	assert_true(b.all);
}

/* PMIx cannot be left in the middle of a fence. */
static void a_first_start_that_fails_ends_all(void **state)
{
	(void)state;
	start_warm(&some_ops);
	connect_all();
	send_step(&h.peers[0], MSG_READY, 0);
	die(1, 1);
	assert_int_equal(h.peers[0].regroups, 0);
	reap_killed();
	assert_true(b.all);
}

/* A rank that has failed by itself ends, and one that blames it lives on. */
static void a_rank_that_blames_another_lives_on(void **state)
{
	(void)state;
	open_warm();
	json_t *body =
		msg_failed_json(&(struct msg_failed){ .code = "peer", .text = "rank 1 is gone" });
	send_message(&h.peers[0], MSG_FAILED, body);
	assert_int_equal(h.peers[0].regroups, 0);
	body = msg_failed_json(&(struct msg_failed){ .code = "io", .text = "disk full" });
	send_message(&h.peers[1], MSG_FAILED, body);
	assert_int_equal(h.peers[0].regroups, 1);
	assert_int_equal(h.peers[1].regroups, 0);
	assert_int_equal(b.n, 1); /* its process may still hold the device */
	reap_killed();
	assert_int_equal(b.n, 2);
	assert_int_equal(b.missing, 1);
	assert_true(b.list[1].started[1]);
	assert_int_equal(count_events("\"event\":\"rank-lost\"", "\"rank\":1"), 1);
}

/* Its message was on the way when it was asked to leave the generation. */
static void a_rank_that_blames_another_late_lives_on(void **state)
{
	(void)state;
	open_warm();
	h.peers[0].stubborn = true;
	die(1, 1);
	json_t *body =
		msg_failed_json(&(struct msg_failed){ .code = "peer", .text = "rank 1 is gone" });
	send_message(&h.peers[0], MSG_FAILED, body);
	send_message(&h.peers[0], MSG_IDLE, NULL);
	assert_int_equal(b.n, 2);
	assert_int_equal(b.missing, 1);
	assert_int_equal(count_events("\"regrouped\"", "\"kept\":1"), 1);
}

static void warm_restarts_without_progress_become_cold(void **state)
{
	(void)state;
	h.first.job.restart.max_futile = 10;
	open_warm();
	for (int i = 0; i < 2; i++) {
		die(1, i ? 2 : 1);
		pass_time(3);
		assert_false(b.all);
		join(1, 2, 0);
	}
	die(1, 2);
	assert_int_equal(h.peers[0].regroups, 2);
	reap_killed();
	pass_time(6);
	assert_true(b.all);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 4);
	die(1, 1);
	assert_int_equal(h.peers[0].regroups, 1);
	assert_false(b.all);
}

/* The run ends only when the agents that waited are gone. */
static void agents_that_wait_are_ended_with_the_run(void **state)
{
	(void)state;
	h.first.job.restart.max_restarts = 0;
	open_warm();
	die(1, 1);
	assert_int_equal(h.peers[0].regroups, 1);
	assert_int_equal(exit_status(), -1);
	assert_true(b.list[0].killed);
	reap_killed();
	assert_int_equal(exit_status(), STATUS_FAILED);
	assert_int_equal(processes(), 0);
}

static void a_stop_ends_agents_that_leave(void **state)
{
	(void)state;
	open_warm();
	h.peers[0].stubborn = true;
	die(1, 1);
	supervise_stop(h.supervisor, "a person", false);
	assert_int_equal(exit_status(), -1);
	reap_killed();
	pass_time(1);
	assert_int_equal(exit_status(), STATUS_STOPPED);
	assert_int_equal(b.n, 1);
}

/* While the run waits for the next start, the kept agent dies, too. */
static void a_kept_agent_that_dies_is_started_again(void **state)
{
	(void)state;
	open_warm();
	die(1, 1);
	join(1, 2, 0);
	die(1, 2); /* no progress: the next start is a second later */
	pass_time(0.5);
	int before = b.n;
	die(0, 0);
	pass_time(2);
	assert_int_equal(b.n, before + 1);
	assert_true(b.all);
	train_all();
	assert_true(h.peers[0].by_pmix);
	assert_int_equal(count_events("\"event\":\"ready\"", ""), 3);
}

/* A loss before the second generation trains is no reason to end the others: it has no PMIx. */
static void a_loss_while_it_wires_up_keeps_the_other(void **state)
{
	(void)state;
	open_warm();
	die(1, 1);
	assert_int_equal(b.n, 2);
	die(1, 3); /* before it has connected */
	assert_int_equal(h.peers[0].regroups, 2);
	pass_time(2);
	assert_int_equal(b.n, 3);
	join(1, 2, 0);
	assert_int_equal(h.peers[0].endpoints, 2);
	assert_int_equal(count_events("\"event\":\"ready\"", ""), 2);
}

/* Not every agent has forgotten its copies when the second generation is lost. */
static void wrong_numbers_are_not_used_until_a_generation_trains(void **state)
{
	(void)state;
	open_warm();
	json_t *body =
		msg_failed_json(&(struct msg_failed){ .code = "replicas", .text = "they differ" });
	send_message(&h.peers[1], MSG_FAILED, body);
	reap_killed();
	assert_int_equal(h.peers[0].welcomes, 2);
	assert_false(h.peers[0].copies);
	die(1, 1); /* before it has connected */
	pass_time(2);
	assert_int_equal(h.peers[0].welcomes, 3);
	assert_false(h.peers[0].copies);
	join(1, 2, 0);
	send_step(&h.peers[0], MSG_METRICS, 4);
	die(1, 2);
	assert_int_equal(h.peers[0].welcomes, 4);
	assert_true(h.peers[0].copies);
}

static void a_start_that_fails_is_tried_again_with_all(void **state)
{
	(void)state;
	open_warm();
	b.fails = true;
	die(1, 1);
	assert_true(b.list[0].killed);
	b.fails = false;
	reap_killed();
	pass_time(3);
	assert_true(b.all);
	assert_int_equal(b.n, 2);
}

/* All processes of a launch have ended. */
static void step_ends(struct launched_here *l)
{
	l->running = 0;
	l->events.all_gone(l->events.arg);
	deliver_all();
}

/* The first of its ranks leads to the next generation, in which the others are new agents. */
static void a_step_that_ends_costs_no_agent_of_the_next(void **state)
{
	(void)state;
	start_warm(&step_ops);
	train_all();
	for (int i = 1; i >= 0; i--) {
		h.peers[i].stubborn = true;
		shutdown(h.peers[i].fd, SHUT_RDWR);
		deliver_all();
	}
	pass_time(0.3);
	assert_int_equal(b.n, 2);
	assert_true(b.all);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 3);
	h.peers[0].stubborn = false;
	shutdown(h.peers[1].fd, SHUT_RDWR);
	deliver_all();
	assert_int_equal(h.peers[0].regroups, 1);
	assert_int_equal(b.n, 2);
	step_ends(&b.list[1]);
	pass_time(0.3);
	assert_int_equal(b.n, 3);
	assert_true(b.all);
	assert_int_equal(count_events("\"rank-lost\"", "\"generation\":2"), 1);
	assert_int_equal(count_events("\"rank-lost\"", "\"generation\":3"), 0);
	step_ends(&b.list[0]);
	step_ends(&b.list[2]);
}

/* The ends of a helper's agents are reported one by one, and the first may complete the regroup. */
static void an_agent_whose_helper_is_lost_is_not_kept(void **state)
{
	(void)state;
	start_warm(&step_ops);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 3);
	shutdown(h.peers[1].fd, SHUT_RDWR);
	deliver_all();
	assert_int_equal(h.peers[0].regroups, 1);
	assert_int_equal(b.n, 1); /* Slurm may still say how rank 1 has ended */
	b.list[0].events.noted(b.list[0].events.arg, LAUNCH_NOTE_HELPER_LOST, h.node.name, "gone");
	process_ends(&b.list[0], 1, SIGKILL);
	assert_int_equal(b.n, 2);
	assert_true(b.all);
	process_ends(&b.list[0], 0, SIGKILL);
	deliver_all();
	assert_int_equal(count_events("\"rank-lost\"", "\"generation\":2"), 0);
	train_all();
	assert_int_equal(count_events("\"event\":\"ready\"", ""), 2);
	step_ends(&b.list[1]);
}

static void endpoints_are_taken_once(void **state)
{
	(void)state;
	open_warm();
	die(1, 1);
	send_message(peer_open(2, h.secret, h.generation), MSG_HELLO, hello_json(1));
	publish(&h.peers[2]);
	publish(&h.peers[2]);
	assert_int_equal(count_events("\"event\":\"rank-lost\"", "endpoints"), 1);
}

static void a_rank_gets_the_endpoints_that_it_asks_for(void **state)
{
	(void)state;
	open_warm();
	die(1, 1);
	send_message(peer_open(2, h.secret, h.generation), MSG_HELLO, hello_json(1));
	publish_for(&h.peers[0], "here", "[1, 0]");
	assert_int_equal(h.peers[0].endpoints, 0);
	publish_for(&h.peers[2], "here", "[0]");
	assert_int_equal(h.peers[0].endpoints, 2);
	assert_int_equal(h.peers[2].endpoints, 1);
}

static int setup_some(void **state)
{
	memset(&b, 0, sizeof b);
	return setup(state);
}

static void a_list_that_is_not_of_ranks_loses_its_sender(void **state)
{
	static const char *const lists[] = { "[2]", "[-1]", "[0, 1, 0]", "[\"0\"]", "{}", "[0.0]" };
	(void)state;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		if (i) {
			teardown(state);
			setup_some(state);
		}
		open_warm();
		die(1, 1);
		send_message(peer_open(2, h.secret, h.generation), MSG_HELLO, hello_json(1));
		publish_for(&h.peers[2], "here", lists[i]);
		assert_int_equal(count_events("\"event\":\"rank-lost\"", "wants is not a list of"),
				 1);
	}
}

/* More than a socket takes at once. */
static void long_endpoints_arrive_part_by_part(void **state)
{
	static char text[400001];
	(void)state;
	memset(text, 'x', sizeof text - 1);
	open_warm();
	die(1, 1);
	send_message(peer_open(2, h.secret, h.generation), MSG_HELLO, hello_json(1));
	publish_text(&h.peers[0], text);
	publish_text(&h.peers[2], text);
	for (int i = 0; i < 4; i++)
		deliver_all();
	assert_int_equal(h.peers[0].endpoints, 2);
	assert_int_equal(h.peers[2].endpoints, 2);
}

/* A stranger cannot take the rank of an agent that lives on. */
static void a_kept_rank_is_taken(void **state)
{
	(void)state;
	open_warm();
	die(1, 1);
	send_message(peer_open(3, h.secret, h.generation), MSG_HELLO, hello_json(0));
	assert_true(h.peers[3].closed);
	assert_int_equal(count_events("\"refused\"", "already connected"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define REGROUP_TEST(f) cmocka_unit_test_setup_teardown(f, setup_some, teardown)
		REGROUP_TEST(the_other_agent_lives_on),
		REGROUP_TEST(an_answer_that_waits_in_the_socket_is_in_time),
		REGROUP_TEST(the_end_of_an_agent_with_another_rank_is_that_of_its_rank),
		REGROUP_TEST(an_agent_that_does_not_leave_in_time_is_replaced),
		REGROUP_TEST(warm_no_ends_all),
		REGROUP_TEST(a_first_start_that_fails_ends_all),
		REGROUP_TEST(a_rank_that_blames_another_lives_on),
		REGROUP_TEST(a_rank_that_blames_another_late_lives_on),
		REGROUP_TEST(warm_restarts_without_progress_become_cold),
		REGROUP_TEST(agents_that_wait_are_ended_with_the_run),
		REGROUP_TEST(a_stop_ends_agents_that_leave),
		REGROUP_TEST(a_kept_agent_that_dies_is_started_again),
		REGROUP_TEST(a_loss_while_it_wires_up_keeps_the_other),
		REGROUP_TEST(wrong_numbers_are_not_used_until_a_generation_trains),
		REGROUP_TEST(a_start_that_fails_is_tried_again_with_all),
		REGROUP_TEST(a_step_that_ends_costs_no_agent_of_the_next),
		REGROUP_TEST(an_agent_whose_helper_is_lost_is_not_kept),
		REGROUP_TEST(endpoints_are_taken_once),
		REGROUP_TEST(a_rank_gets_the_endpoints_that_it_asks_for),
		REGROUP_TEST(a_list_that_is_not_of_ranks_loses_its_sender),
		REGROUP_TEST(long_endpoints_arrive_part_by_part),
		REGROUP_TEST(a_kept_rank_is_taken),
	};
	return cmocka_run_group_tests_name("agents that live on", tests, NULL, NULL);
}
