/* What the supervisor does with [launch] preflight = full: the nodes are measured before the first
 * generation. Each node's burn-in is a double that speaks on the real listener. */
#include "launcher/supervise/burn_in.h"
#include "launcher/supervise/node_checks.h"
#include "tests/unit/launcher/elastic.h"

#include "base/file.h"
#include "base/run_paths.h"

enum { NODES = 2, TURNS = 40 };

/* The burn-in of one node. */
static struct node_double {
	int fd; /* -1: it is not connected */
	struct channel *channel;
	int64_t number;   /* of the last order */
	int orders, rank; /* rank: of the last order; -1: it was about the node itself */
	bool ordered;     /* that order has not been answered */
	bool released;
	char card[64];
} nodes[NODES];

static const char *name_of(int i)
{
	return m.machines.nodes[i].name;
}

static void take(struct node_double *n, const struct msg *got)
{
	struct msg_burn_in_order o;
	struct msg_burn_in_card c;
	if (got->type == MSG_BURN_IN_ORDER) {
		assert_int_equal(msg_burn_in_order_read(got->body, &o, NULL), 0);
		assert_false(n->ordered);
		n->number = o.number;
		n->rank = o.has_peer ? o.rank : -1;
		n->ordered = true;
		n->orders++;
	} else if (got->type == MSG_BURN_IN_CARD) {
		assert_int_equal(msg_burn_in_card_read(got->body, &c, NULL), 0);
		assert_int_equal(c.number, n->number);
		snprintf(n->card, sizeof n->card, "%s",
			 json_string_value(json_object_get(c.values, "from")));
	} else {
		assert_int_equal(got->type, MSG_RELEASE);
		n->released = true;
	}
}

static void end_node(int i)
{
	if (nodes[i].fd >= 0)
		close(nodes[i].fd);
	channel_close(nodes[i].channel);
	nodes[i].fd = -1;
	nodes[i].channel = NULL;
}

static void exchange(int i)
{
	struct node_double *n = &nodes[i];
	char data[8192];
	struct msg got;
	struct buf *out = channel_out(n->channel);
	ssize_t len = out->len ? send(n->fd, out->data, out->len, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
	if (len > 0)
		buf_drop(out, (size_t)len);
	while ((len = recv(n->fd, data, sizeof data, MSG_DONTWAIT)) > 0)
		assert_int_equal(channel_feed(n->channel, data, (size_t)len, NULL), 0);
	while (channel_next(n->channel, &got, NULL) == 1) {
		take(n, &got);
		msg_fini(&got);
	}
	if (!len)
		end_node(i);
}

/* Delivers what is under way. */
static void deliver(void)
{
	for (int turn = 0; turn < TURNS; turn++) {
		for (int i = 0; i < NODES; i++)
			if (nodes[i].fd >= 0)
				exchange(i);
		uv_run(&h.loop, UV_RUN_NOWAIT);
	}
	deliver_all();
}

static void send_from(int i, enum msg_type type, json_t *body)
{
	assert_int_equal(channel_send(nodes[i].channel, type, body, NULL), 0);
	json_decref(body);
	deliver();
}

static void connect_as(int i, const char *name)
{
	struct node_double *n = &nodes[i];
	*n = (struct node_double){ .fd = -1 };
	assert_int_equal(net_connect(m.burn_in_address, 10, &n->fd, NULL), 0);
	assert_int_equal(channel_open(AUTH_AGENT, m.burn_in_secret, BURN_IN_GENERATION, &n->channel,
				      NULL),
			 0);
	send_from(i, MSG_HELLO,
		  msg_hello_json(&(struct msg_hello){ .rank = -1,
						      .node = name,
						      .pid = 1,
						      .boot = "",
						      .cpus = "",
						      .version = MSG_VERSION }));
}

static void send_figures(int i, json_t *figures, const char *error)
{
	nodes[i].ordered = false;
	json_t *body =
		msg_burn_in_result_json(&(struct msg_burn_in_result){ .number = nodes[i].number,
								      .figures = figures,
								      .has_error = error,
								      .error = error });
	json_decref(figures);
	send_from(i, MSG_BURN_IN_RESULT, body);
}

static void append(json_t *list, const char *what, double value)
{
	json_array_append_new(list, msg_burn_in_figure_json(&(struct msg_burn_in_figure){
					    .what = what, .value = value }));
}

static void answer_node(int i, double flops)
{
	json_t *list = json_array();
	append(list, "product", flops);
	append(list, "memory", 10e9);
	assert_int_equal(nodes[i].rank, -1);
	send_figures(i, list, NULL);
}

static void answer_link(int i, double rate, const char *error)
{
	json_t *list = json_array();
	append(list, "send", rate);
	append(list, "receive", rate);
	assert_true(nodes[i].rank >= 0);
	send_figures(i, list, error);
}

/* Both nodes answer all orders of a cycle. */
static void answer_cycle(double flops0, double flops1)
{
	assert_true(nodes[0].ordered && nodes[1].ordered);
	answer_node(0, flops0);
	assert_true(nodes[1].ordered);
	answer_node(1, flops1);
	assert_true(nodes[0].ordered && nodes[1].ordered);
	assert_int_equal(nodes[0].rank, 0);
	assert_int_equal(nodes[1].rank, 1);
	assert_int_equal(nodes[0].number, nodes[1].number);
	answer_link(0, 1e9, NULL);
	answer_link(1, 1e9, NULL);
}

static void start_burn_in(const char *word)
{
	for (int i = 0; i < NODES; i++)
		nodes[i] = (struct node_double){ .fd = -1 };
	m.needs = "{}";
	m.check0 = m.check = "ok";
	start_run("launch.preflight=full", word);
	assert_int_equal(m.burn_ins, 0);
	answer_check();
	assert_int_equal(m.burn_ins, 1);
	assert_string_equal(m.burn_in_devices, "1"); /* a device that is lost is noticed */
	assert_int_equal(h.starts, 0);
}

static void connect_both(void)
{
	for (int i = 0; i < NODES; i++)
		connect_as(i, name_of(i));
}

static void end_both(void)
{
	deliver();
	for (int i = 0; i < NODES; i++)
		end_node(i);
}

/* The run starts on node 0 alone, and says so. */
static void assert_left_out(const char *why)
{
	bool last;
	char text[700];
	answer_survey();
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 1);
	snprintf(text, sizeof text, "%s is not used: %s", name_of(1), why);
	assert_int_equal(count_printed(text, &last), 1);
	assert_int_equal(count_events("\"event\":\"node-check\"", why), 1);
	assert_int_equal(count_events("\"event\":\"node-suspected\"", why), 1);
	assert_int_equal(count_events("\"event\":\"burn-in\"", "\"failed\":1"), 1);
	end_both();
}

static void nodes_that_are_alike_start(void **state)
{
	bool last;
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	(void)state;
	start_burn_in(NULL);
	connect_both();
	answer_cycle(30e9, 25e9);
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_printed("2 of 2 passed the burn-in, which took", &last), 1);
	assert_int_equal(count_events("\"event\":\"burn-in\"", "\"failed\":0"), 1);
	assert_int_equal(count_events("\"event\":\"nodes-checked\"", "\"passed\":2,\"failed\":0"),
			 1);
	run_path(path, rundir_path(h.run), RUN_PREFLIGHT);
	assert_int_equal(file_slurp(path, 1 << 20, &text, NULL), 0);
	assert_non_null(strstr(buf_str(&text), "25000000000"));
	buf_fini(&text);
	deliver();
	assert_true(nodes[0].released && nodes[1].released);
	end_both();
}

static void the_ends_of_a_link_learn_each_others_endpoints(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_both();
	answer_node(0, 30e9);
	answer_node(1, 30e9);
	for (int i = 0; i < NODES; i++) {
		json_t *values = json_pack("{s:s}", "from", name_of(i));
		json_t *body = msg_burn_in_card_json(
			&(struct msg_burn_in_card){ .number = nodes[i].number, .values = values });
		json_decref(values);
		send_from(i, MSG_BURN_IN_CARD, body);
	}
	assert_string_equal(nodes[0].card, name_of(1));
	assert_string_equal(nodes[1].card, name_of(0));
	end_both();
}

static void a_slow_node_is_measured_twice_and_left_out(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_both();
	answer_cycle(30e9, 5e9);
	assert_int_equal(h.starts, 0);
	answer_cycle(30e9, 6e9);
	assert_left_out("product rate 6 GFLOP/s, the median of its peers is 30");
}

static void a_disturbance_that_passes_blames_nobody(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_both();
	answer_cycle(30e9, 5e9);
	answer_cycle(8e9, 28e9);
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_events("\"event\":\"burn-in\"", "\"repeated\":true"), 1);
	end_both();
}

static void a_node_that_does_not_connect_is_left_out(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_as(0, name_of(0));
	pass_time(5.2);
	deliver();
	answer_node(0, 30e9);
	assert_left_out("its burn-in has not started");
}

static void a_node_that_does_not_answer_is_left_out(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_both();
	answer_node(0, 30e9);
	pass_time(12.2);
	deliver();
	assert_left_out("its products, its memory or its folder");
}

static void a_node_that_hangs_in_a_link_is_left_out(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_both();
	answer_node(0, 30e9);
	answer_node(1, 30e9);
	answer_link(0, 0, "the link: the other end has not answered for 3 s");
	pass_time(4.2);
	deliver();
	answer_node(0, 30e9); /* once more: a link did not work */
	assert_left_out("it does not answer while its links are measured");
}

/* Nobody knows which end it is. */
static void a_link_of_two_nodes_that_does_not_work_is_printed(void **state)
{
	bool last;
	(void)state;
	start_burn_in(NULL);
	connect_both();
	for (int cycle = 0; cycle < 2; cycle++) {
		answer_node(0, 30e9);
		answer_node(1, 30e9);
		answer_link(0, 0, "the link to x: refused");
		answer_link(1, 0, "the link to y: refused");
	}
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_printed("does not work", &last), 2);
	assert_int_equal(count_events("\"event\":\"burn-in\"", "the link to x: refused"), 1);
	end_both();
}

static void a_node_that_ends_early_is_left_out(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_both();
	end_node(1);
	deliver();
	answer_node(0, 30e9);
	assert_left_out("its burn-in has ended early");
}

static void a_node_that_cannot_be_measured_is_left_out(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_both();
	send_figures(1, json_array(), "device 0: two products of the same matrices differ");
	answer_node(0, 30e9);
	assert_left_out("device 0: two products of the same matrices differ");
}

static void invalid_figures_blame_their_node(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_both();
	send_figures(1, json_pack("[i]", 3), NULL);
	answer_node(0, 30e9);
	assert_left_out("message burn_in_");
}

/* Then the fault is not that of the nodes. */
static void without_any_answer_the_run_starts_unmeasured(void **state)
{
	bool last;
	(void)state;
	start_burn_in(NULL);
	pass_time(NODE_CHECK_SECONDS + 1);
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_printed("no node has connected within", &last), 1);
	end_both();
}

static void a_step_that_cannot_start_says_why(void **state)
{
	bool last;
	(void)state;
	start_burn_in(NULL);
	m.burn_in_ended(m.burn_in_arg, 1 << 8, "srun: error: Unable to contact slurm controller\n");
	deliver_all();
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_printed("Unable to contact slurm controller", &last), 1);
	end_both();
}

static void nodes_that_all_cannot_be_measured_start_anyway(void **state)
{
	bool last;
	(void)state;
	start_burn_in(NULL);
	connect_both();
	send_figures(0, json_array(), "there is no kernel for this processor");
	send_figures(1, json_array(), "there is no kernel for this processor");
	assert_int_equal(h.starts, 1);
	assert_int_equal(h.world, 2);
	assert_int_equal(count_printed("there is no kernel for this processor", &last), 1);
	end_both();
}

static void strangers_are_turned_away(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_as(0, name_of(0));
	connect_as(1, name_of(0)); /* a second one of the same node */
	assert_int_equal(nodes[1].fd, -1);
	connect_as(1, "elsewhere");
	assert_int_equal(nodes[1].fd, -1);
	connect_as(1, name_of(1));
	answer_cycle(30e9, 30e9);
	assert_int_equal(h.world, 2);
	end_both();
}

static void a_run_can_be_stopped_while_its_nodes_are_measured(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_both();
	supervise_stop(h.supervisor, "Terminated", false);
	deliver();
	assert_int_equal(h.starts, 0);
	assert_int_equal(exit_status(), STATUS_STOPPED);
	end_both();
}

static void a_node_that_failed_its_check_is_not_measured(void **state)
{
	(void)state;
	for (int i = 0; i < NODES; i++)
		nodes[i].fd = -1;
	m.needs = "{}";
	m.check0 = "ok";
	m.check = "GPU3: it does not answer";
	start_run("launch.preflight=full", NULL);
	answer_check();
	assert_int_equal(m.burn_ins, 1);
	assert_string_equal(m.burn_in_nodes, name_of(0));
	connect_as(0, name_of(0));
	answer_node(0, 30e9);
	answer_survey();
	assert_int_equal(h.world, 1);
	end_both();
}

/* A check of what doctor checks cannot show that it is fast again. */
static void a_node_that_failed_its_burn_in_is_not_used_again(void **state)
{
	(void)state;
	start_burn_in(NULL);
	connect_both();
	answer_cycle(30e9, 5e9);
	answer_cycle(30e9, 5e9);
	answer_survey();
	end_both();
	train_all();
	for (int64_t step = 1; step < 100; step++) {
		send_step(&h.peers[0], MSG_METRICS, step);
		send_message(&h.peers[0], MSG_PROGRESS, step_json(MSG_PROGRESS, step));
		pass_time(6);
		send_step(&h.peers[0], MSG_CKPT, step);
		if (m.done)
			answer_survey();
	}
	assert_true(m.surveys > 2);
	assert_int_equal(m.checks, 1);
	assert_int_equal(h.world, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(nodes_that_are_alike_start),
		T(the_ends_of_a_link_learn_each_others_endpoints),
		T(a_slow_node_is_measured_twice_and_left_out),
		T(a_disturbance_that_passes_blames_nobody),
		T(a_node_that_does_not_connect_is_left_out),
		T(a_node_that_does_not_answer_is_left_out),
		T(a_node_that_hangs_in_a_link_is_left_out),
		T(a_link_of_two_nodes_that_does_not_work_is_printed),
		T(a_node_that_ends_early_is_left_out),
		T(a_node_that_cannot_be_measured_is_left_out),
		T(invalid_figures_blame_their_node),
		T(without_any_answer_the_run_starts_unmeasured),
		T(a_step_that_cannot_start_says_why),
		T(nodes_that_all_cannot_be_measured_start_anyway),
		T(strangers_are_turned_away),
		T(a_run_can_be_stopped_while_its_nodes_are_measured),
		T(a_node_that_failed_its_check_is_not_measured),
		T(a_node_that_failed_its_burn_in_is_not_used_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
