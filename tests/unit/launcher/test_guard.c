/* The supervisor's side of the guard, with a clock that the test sets, a double of the backend, and
 * guards that the test plays over the real control channel. */
#include "base/net.h"
#include "launcher/child.h"
#include "launcher/supervise/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES = 4 };

static struct {
	uv_loop_t loop;
	struct supervise_guard *guard;
	double now;
	const char *own; /* the supervisor's node */
	int started;     /* guards */
	char node[TOPO_NAME], address[NET_ADDR_MAX], secret[AUTH_SECRET_HEX];
	struct child *step; /* of the last guard */
	bool fails;
	char report[256];
} t;

static struct cluster_node nodes[NODES] = {
	{ .name = "n1" }, { .name = "n2" }, { .name = "n3" }, { .name = "n4" }
};
static struct cluster cluster = { .nodes = nodes, .n_nodes = NODES };
static struct plan_rank ranks[] = { { .node = 0 }, { .node = 1 }, { .node = 2 }, { .node = 3 } };

static const char *own_node(void)
{
	return t.own;
}

static int start_guard(uv_loop_t *loop, const struct guard_request *r,
		       void (*ended)(void *, int, const char *), void *arg, struct child **out,
		       struct err *e)
{
	static char *argv[] = { "sleep", "1000", NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	t.started++;
	snprintf(t.node, sizeof t.node, "%s", r->node);
	snprintf(t.address, sizeof t.address, "%s", r->address);
	snprintf(t.secret, sizeof t.secret, "%s", r->secret);
	assert_int_equal(r->number, t.started);
	if (t.fails)
		return err_set(e, ERR_NOTFOUND, "srun: cannot be executed");
	int rc = launcher_child_watch(loop, &c, ended, arg, out, e);
	t.step = *out;
	return rc;
}

static double read_clock(void)
{
	return t.now;
}

static void on_report(void *arg, const char *node, const char *text)
{
	(void)arg;
	snprintf(t.report, sizeof t.report, "%s: %s", node, text);
}

static const struct launch_ops ops = { .own_node = own_node, .guard = start_guard };
static const struct launch_ops no_guard = { .name = "local" };

static void open_guard(const struct launch_ops *with)
{
	static struct job job;
	const struct supervise_guard_options o = {
		.loop = &t.loop,
		.ops = with,
		.job = &job,
		.run_dir = "/nonexistent",
		.address = "127.0.0.1:1",
		.auth = "secret",
		.now = read_clock,
		.report = on_report,
	};
	assert_int_equal(supervise_guard_open(&o, &t.guard, NULL), 0);
}

/* A run on the first n_ranks nodes. up: NULL if all nodes are. */
static void set_nodes(int n_ranks, const bool *up)
{
	static struct deployment used;
	struct pool pool;
	used.cluster = cluster;
	used.plan.world = n_ranks;
	used.plan.ranks = ranks;
	assert_int_equal(supervise_pool_open(&pool, &cluster, 0, NULL), 0);
	for (int i = 0; i < cluster.n_nodes; i++)
		pool.nodes[i].state = !up || up[i] ? NODE_UP : NODE_DOWN;
	supervise_guard_nodes(t.guard, &pool, &used);
	supervise_pool_close(&pool);
}

static int setup(void **state)
{
	(void)state;
	memset(&t, 0, sizeof t);
	t.now = 1000;
	t.own = "n1";
	return uv_loop_init(&t.loop);
}

static void on_timer(uv_timer_t *timer)
{
	(void)timer;
}

static void count_handle(uv_handle_t *handle, void *n)
{
	(void)handle;
	++*(int *)n;
}

static int teardown(void **state)
{
	(void)state;
	if (t.step)
		launcher_child_signal(t.step, SIGKILL);
	supervise_guard_close(t.guard);
	/* The loop does not wait for steps that the guard has forgotten, so a timer keeps it
	 * going until they have ended. */
	uv_timer_t keep;
	uv_timer_init(&t.loop, &keep);
	uv_timer_start(&keep, on_timer, 1, 1);
	for (int handles = 2; handles > 1;) {
		uv_run(&t.loop, UV_RUN_ONCE);
		handles = 0;
		uv_walk(&t.loop, count_handle, &handles);
	}
	uv_close((uv_handle_t *)&keep, NULL);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	return uv_loop_close(&t.loop);
}

/* Ticks until `at`, twice per second. */
static void pass_time(double seconds)
{
	for (double end = t.now + seconds; t.now < end; t.now += 0.5) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		supervise_guard_tick(t.guard, true);
	}
}

/* The guard's srun ends. */
static void end_step(void)
{
	int before = t.started;
	launcher_child_signal(t.step, SIGKILL);
	while (t.started == before) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		t.now += 0.1;
		supervise_guard_tick(t.guard, true);
	}
}

struct line {
	int fd;
	struct channel *channel;
};

/* A guard connects and says its number. */
static struct line connect_guard(int number)
{
	struct line l;
	unsigned char secret[AUTH_SECRET_BYTES];
	json_t *hello = msg_guard_hello_json(&(struct msg_guard_hello){
		.number = number, .node = "x", .pid = 1, .version = MSG_VERSION });
	assert_int_equal(auth_secret_parse(t.secret, secret, NULL), 0);
	assert_int_equal(net_connect(t.address, 5, &l.fd, NULL), 0);
	assert_int_equal(channel_open(AUTH_AGENT, secret, GUARD_GENERATION, &l.channel, NULL), 0);
	assert_int_equal(channel_send(l.channel, MSG_GUARD_HELLO, hello, NULL), 0);
	json_decref(hello);
	return l;
}

/* Takes turns with the supervisor until it sends a message: returns its type, or MSG_NONE when it
 * has closed the connection. */
static enum msg_type receive(struct line *l)
{
	for (;;) {
		char data[4096];
		struct msg m;
		struct buf *out = channel_out(l->channel);
		if (out->len && send(l->fd, out->data, out->len, MSG_NOSIGNAL) > 0)
			buf_clear(out);
		if (channel_next(l->channel, &m, NULL) == 1) {
			enum msg_type type = m.type;
			msg_fini(&m);
			return type;
		}
		uv_run(&t.loop, UV_RUN_NOWAIT);
		ssize_t n = recv(l->fd, data, sizeof data, MSG_DONTWAIT);
		if (n == 0)
			return MSG_NONE;
		if (n > 0)
			assert_int_equal(channel_feed(l->channel, data, (size_t)n, NULL), 0);
	}
}

static void close_line(struct line *l)
{
	close(l->fd);
	channel_close(l->channel);
}

static void a_local_run_has_no_guard(void **state)
{
	(void)state;
	open_guard(&no_guard);
	assert_null(t.guard);
	set_nodes(4, NULL);
	supervise_guard_tick(t.guard, true);
}

static void a_supervisor_outside_the_nodes_has_no_guard(void **state)
{
	(void)state;
	t.own = NULL;
	open_guard(&ops);
	assert_null(t.guard);
}

static void an_allocation_of_one_node_has_no_guard(void **state)
{
	(void)state;
	open_guard(&ops);
	cluster.n_nodes = 1;
	set_nodes(1, NULL);
	cluster.n_nodes = NODES;
	pass_time(100);
	assert_int_equal(t.started, 0);
}

static void the_first_guard_waits_for_the_first_step_or_10_s(void **state)
{
	(void)state;
	open_guard(&ops);
	set_nodes(4, NULL);
	for (; t.now < 1010; t.now += 0.5)
		supervise_guard_tick(t.guard, false);
	assert_int_equal(t.started, 0);
	supervise_guard_tick(t.guard, false);
	assert_int_equal(t.started, 1);
}

static void the_last_node_gets_it_if_all_have_ranks(void **state)
{
	(void)state;
	open_guard(&ops);
	set_nodes(4, NULL);
	supervise_guard_tick(t.guard, true);
	assert_string_equal(t.node, "n4");
}

static void a_spare_gets_it_first(void **state)
{
	(void)state;
	const bool up[NODES] = { true, true, true, true };
	ranks[2].node = 3; /* n3 is the spare */
	open_guard(&ops);
	set_nodes(3, up);
	ranks[2].node = 2;
	supervise_guard_tick(t.guard, true);
	assert_string_equal(t.node, "n3");
}

static void it_never_runs_on_the_supervisors_node(void **state)
{
	(void)state;
	t.own = "n4";
	open_guard(&ops);
	set_nodes(4, NULL);
	for (const char *next[] = { "n3", "n2", "n1", "n3" }, **at = next; at < next + 4; at++) {
		if (t.started)
			end_step();
		else
			supervise_guard_tick(t.guard, true);
		assert_string_equal(t.node, *at);
	}
}

static void a_guard_whose_node_is_lost_is_replaced(void **state)
{
	(void)state;
	const bool up[NODES] = { true, true, true, false };
	open_guard(&ops);
	set_nodes(4, NULL);
	supervise_guard_tick(t.guard, true);
	set_nodes(3, up);
	assert_string_equal(t.report, "n4: the node of the guard is lost; another guard follows");
	pass_time(2);
	assert_int_equal(t.started, 2);
	assert_string_equal(t.node, "n3");
}

static void attempts_that_fail_become_rarer(void **state)
{
	(void)state;
	t.fails = true;
	open_guard(&ops);
	set_nodes(4, NULL);
	pass_time(64);
	assert_in_range(t.started, 5, 8);
	pass_time(600);
	assert_in_range(t.started, 12, 18);
	assert_non_null(strstr(t.report, "srun: cannot be executed"));
}

static void a_guard_that_does_not_connect_is_replaced_after_a_minute(void **state)
{
	(void)state;
	open_guard(&ops);
	set_nodes(4, NULL);
	pass_time(59);
	assert_int_equal(t.started, 1);
	pass_time(5);
	assert_int_equal(t.started, 2);
}

static void it_gets_a_sign_of_life_every_second_and_is_released(void **state)
{
	(void)state;
	open_guard(&ops);
	set_nodes(4, NULL);
	supervise_guard_tick(t.guard, true);
	struct line l = connect_guard(1);
	assert_int_equal(receive(&l), MSG_ALIVE);
	assert_string_equal(t.report, "n4: the guard is connected");
	for (int i = 0; i < 5; i++) {
		t.now += 1;
		supervise_guard_tick(t.guard, true);
		assert_int_equal(receive(&l), MSG_ALIVE);
		assert_int_equal(channel_send(l.channel, MSG_ALIVE, NULL, NULL), 0);
	}
	supervise_guard_close(t.guard);
	t.guard = NULL;
	assert_int_equal(receive(&l), MSG_RELEASE);
	assert_int_equal(receive(&l), MSG_NONE);
	close_line(&l);
}

static void a_silent_guard_is_replaced_after_15_s(void **state)
{
	(void)state;
	open_guard(&ops);
	set_nodes(4, NULL);
	supervise_guard_tick(t.guard, true);
	struct line l = connect_guard(1);
	assert_int_equal(receive(&l), MSG_ALIVE);
	pass_time(14);
	assert_int_equal(t.started, 1);
	pass_time(5);
	assert_int_equal(t.started, 2);
	assert_string_equal(t.node, "n3");
	close_line(&l);
}

static void a_pause_of_the_supervisor_is_not_blamed_on_the_guard(void **state)
{
	(void)state;
	open_guard(&ops);
	set_nodes(4, NULL);
	supervise_guard_tick(t.guard, true);
	struct line l = connect_guard(1);
	assert_int_equal(receive(&l), MSG_ALIVE);
	t.now += 3600;
	supervise_guard_tick(t.guard, true);
	assert_int_equal(t.started, 1);
	close_line(&l);
}

static void a_guard_may_connect_again(void **state)
{
	(void)state;
	open_guard(&ops);
	set_nodes(4, NULL);
	supervise_guard_tick(t.guard, true);
	struct line l = connect_guard(1);
	assert_int_equal(receive(&l), MSG_ALIVE);
	close_line(&l);
	pass_time(10);
	l = connect_guard(1);
	assert_int_equal(receive(&l), MSG_ALIVE);
	pass_time(10);
	assert_int_equal(t.started, 1);
	close_line(&l);
}

static void a_guard_that_was_replaced_is_released(void **state)
{
	(void)state;
	open_guard(&ops);
	set_nodes(4, NULL);
	supervise_guard_tick(t.guard, true);
	end_step();
	struct line l = connect_guard(1);
	assert_int_equal(receive(&l), MSG_RELEASE);
	assert_int_equal(receive(&l), MSG_NONE);
	close_line(&l);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_local_run_has_no_guard),
		T(a_supervisor_outside_the_nodes_has_no_guard),
		T(an_allocation_of_one_node_has_no_guard),
		T(the_first_guard_waits_for_the_first_step_or_10_s),
		T(the_last_node_gets_it_if_all_have_ranks),
		T(a_spare_gets_it_first),
		T(it_never_runs_on_the_supervisors_node),
		T(a_guard_whose_node_is_lost_is_replaced),
		T(attempts_that_fail_become_rarer),
		T(a_guard_that_does_not_connect_is_replaced_after_a_minute),
		T(it_gets_a_sign_of_life_every_second_and_is_released),
		T(a_silent_guard_is_replaced_after_15_s),
		T(a_pause_of_the_supervisor_is_not_blamed_on_the_guard),
		T(a_guard_may_connect_again),
		T(a_guard_that_was_replaced_is_released),
	};
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
