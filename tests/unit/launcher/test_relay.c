/* The relay with helpers of this process: real sockets and channels, but no agents. */
#include "base/clock.h"
#include "base/net.h"
#include "base/parts.h"
#include "launcher/helper/line.h"
#include "launcher/slurm/relay.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES = 3, RANKS = 2, WORLD = NODES * RANKS, MANY = 256, GENERATION = 4 };

/* The helper of a node. */
struct fake {
	struct line *line;
	json_t *start; /* the body of helper_start */
	int aborts;
	bool lost;
	struct parts parts;
	int complete; /* fences whose data has come */
	size_t bytes; /* of the last one */
	char head[16];
};

static struct {
	uv_loop_t loop;
	char dir[256];
	int nodes;
	double patience;
	struct cluster_node *names;
	struct plan_rank *ranks;
	struct relay *relay;
	struct fake *fakes;
	int status[MANY * RANKS], exits, notes;
	char noted[TOPO_NAME];
} t;

static void on_exited(void *arg, int rank, int status)
{
	(void)arg;
	assert_int_equal(t.status[rank], -1);
	t.status[rank] = status;
	t.exits++;
}

static void on_noted(void *arg, enum launch_note what, const char *node, const char *text)
{
	(void)arg;
	assert_int_equal(what, LAUNCH_NOTE_HELPER_LOST);
	assert_true(*text);
	snprintf(t.noted, sizeof t.noted, "%s", node);
	t.notes++;
}

static void open_relay_for(int nodes, double patience)
{
	static struct job job;
	static struct cluster cluster;
	static struct plan plan;
	struct err e = ERR_INIT;
	memset(&t, 0, sizeof t);
	t.patience = patience;
	uv_loop_init(&t.loop);
	assert_non_null(tmpdir_make(t.dir, sizeof t.dir));
	t.nodes = nodes;
	t.names = calloc((size_t)nodes, sizeof *t.names);
	t.ranks = calloc((size_t)nodes * RANKS, sizeof *t.ranks);
	t.fakes = calloc((size_t)nodes, sizeof *t.fakes);
	for (int i = 0; i < nodes; i++)
		snprintf(t.names[i].name, sizeof t.names[i].name, "n%d", i);
	for (int r = 0; r < nodes * RANKS; r++) {
		t.ranks[r] = (struct plan_rank){ .node = r / RANKS, .threads = 1 };
		t.status[r] = -1;
	}
	cluster = (struct cluster){ .nodes = t.names, .n_nodes = nodes };
	plan = (struct plan){ .world = nodes * RANKS, .threads = 1, .ranks = t.ranks };
	const struct launch_request r = { .job = &job,
					  .cluster = &cluster,
					  .plan = &plan,
					  .generation = GENERATION,
					  .address = "127.0.0.1:4711",
					  .secret = "5ec4e7",
					  .run_dir = t.dir,
					  .agent = "/opt/agent",
					  .auth = "secret" };
	const struct launch_events ev = { .exited = on_exited, .noted = on_noted };
	const struct relay_options o = {
		.loop = &t.loop, .request = &r, .events = &ev, .patience = t.patience
	};
	if (slurm_relay_open(&o, &t.relay, &e))
		fail_msg("%s", e.text);
}

static void open_relay(int nodes)
{
	open_relay_for(nodes, 1000);
}

static void on_message(void *arg, const struct msg *m)
{
	struct fake *f = arg;
	struct msg_helper_part part;
	struct err e = ERR_INIT;
	if (m->type == MSG_HELPER_START)
		f->start = json_incref(m->body);
	f->aborts += m->type == MSG_ABORT;
	if (m->type != MSG_HELPER_PART)
		return;
	assert_int_equal(msg_helper_part_read(m->body, &part, &e), 0);
	int got = parts_add(&f->parts, &part, &e);
	assert_true(got >= 0);
	helper_line_send(f->line, MSG_HELPER_NEXT,
			 msg_helper_next_json(&(struct msg_helper_next){ part.fence, part.part }));
	if (!got)
		return;
	f->bytes = f->parts.data.len;
	snprintf(f->head, sizeof f->head, "%.12s", buf_str(&f->parts.data));
	f->complete++;
	parts_renew(&f->parts);
}

static void on_lost(void *arg, const struct err *why)
{
	struct fake *f = arg;
	(void)why;
	f->lost = true;
}

static void connect_fake(struct fake *f, const char *secret)
{
	const struct line_options o = { .loop = &t.loop,
					.address = slurm_relay_address(t.relay),
					.secret = secret,
					.generation = GENERATION,
					.message = on_message,
					.lost = on_lost,
					.arg = f };
	struct err e = ERR_INIT;
	if (helper_line_open(&o, &f->line, &e))
		fail_msg("%s", e.text);
}

static void say_hello(struct fake *f, const char *node, int version)
{
	helper_line_send(f->line, MSG_HELPER_HELLO,
			 msg_helper_hello_json(&(struct msg_helper_hello){ node, 1, version }));
}

static void run_until(bool (*done)(void))
{
	for (double end = clock_s() + 60; !done(); uv_run(&t.loop, UV_RUN_ONCE))
		assert_true(clock_s() < end);
}

static bool all_started(void)
{
	for (int i = 0; i < t.nodes; i++)
		if (!t.fakes[i].start)
			return false;
	return true;
}

static void connect_all(void)
{
	for (int i = 0; i < t.nodes; i++) {
		connect_fake(&t.fakes[i], slurm_relay_secret(t.relay));
		say_hello(&t.fakes[i], t.names[i].name, MSG_VERSION);
	}
	run_until(all_started);
}

static void close_relay(void)
{
	slurm_relay_close(t.relay);
	for (int i = 0; i < t.nodes; i++) {
		helper_line_close(t.fakes[i].line);
		json_decref(t.fakes[i].start);
		parts_fini(&t.fakes[i].parts);
	}
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&t.loop), 0);
	free(t.names);
	free(t.ranks);
	free(t.fakes);
	assert_int_equal(rmdir(t.dir), 0);
}

static void report_exit(int node, int rank, int status)
{
	helper_line_send(t.fakes[node].line, MSG_HELPER_EXITED,
			 msg_helper_exited_json(&(struct msg_helper_exited){ rank, status }));
}

static bool all_exited(void)
{
	return t.exits == t.nodes * RANKS;
}

static void ends_of_agents_are_reported(void **state)
{
	(void)state;
	open_relay(NODES);
	connect_all();
	struct msg_helper_start m;
	struct err e = ERR_INIT;
	assert_int_equal(msg_helper_start_read(t.fakes[2].start, &m, &e), 0);
	assert_int_equal(m.node, 2);
	assert_string_equal(m.secret, "5ec4e7");
	assert_string_equal(m.address, "127.0.0.1:4711");
	assert_false(slurm_relay_is_over(t.relay));
	for (int r = 0; r < WORLD; r++)
		report_exit(r / RANKS, r, r << 8);
	run_until(all_exited);
	for (int r = 0; r < WORLD; r++)
		assert_int_equal(t.status[r], r << 8);
	assert_true(slurm_relay_is_over(t.relay));
	assert_int_equal(t.notes, 0);
	close_relay();
}

static bool one_note(void)
{
	return t.notes == 1 && t.exits == RANKS;
}

static void agents_end_with_their_helper(void **state)
{
	(void)state;
	open_relay(NODES);
	connect_all();
	helper_line_close(t.fakes[1].line);
	t.fakes[1].line = NULL;
	run_until(one_note);
	assert_string_equal(t.noted, "n1");
	assert_int_equal(t.status[2], SIGKILL);
	assert_int_equal(t.status[3], SIGKILL);
	close_relay();
}

static bool all_aborted(void)
{
	for (int i = 0; i < t.nodes; i++)
		if (t.fakes[i].aborts != 1)
			return false;
	return true;
}

static void a_helper_that_does_not_connect_is_lost(void **state)
{
	(void)state;
	open_relay_for(NODES, 0.2);
	t.nodes = 2;
	connect_all();
	run_until(one_note);
	assert_string_equal(t.noted, "n2");
	assert_int_equal(t.status[4], SIGKILL);
	assert_int_equal(t.status[0], -1);
	connect_fake(&t.fakes[2], slurm_relay_secret(t.relay)); /* too late */
	t.nodes = NODES;
	slurm_relay_kill(t.relay);
	say_hello(&t.fakes[2], "n2", MSG_VERSION);
	run_until(all_aborted);
	close_relay();
}

static void every_helper_is_told_to_kill_also_a_late_one(void **state)
{
	(void)state;
	open_relay(NODES);
	connect_fake(&t.fakes[0], slurm_relay_secret(t.relay));
	say_hello(&t.fakes[0], "n0", MSG_VERSION);
	t.nodes = 1;
	run_until(all_started);
	slurm_relay_kill(t.relay);
	slurm_relay_kill(t.relay);
	t.nodes = NODES;
	for (int i = 1; i < NODES; i++) {
		connect_fake(&t.fakes[i], slurm_relay_secret(t.relay));
		say_hello(&t.fakes[i], t.names[i].name, MSG_VERSION);
	}
	run_until(all_aborted);
	assert_null(t.fakes[1].start);
	close_relay();
}

static bool first_is_lost(void)
{
	return t.fakes[0].lost;
}

/* Connects node 0 by `go`, and expects that the relay closes the connection. */
static void is_refused(void (*go)(struct fake *f))
{
	open_relay(NODES);
	t.nodes = 1;
	go(&t.fakes[0]);
	run_until(first_is_lost);
	close_relay();
}

static void with_other_secret(struct fake *f)
{
	connect_fake(f, "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
	say_hello(f, "n0", MSG_VERSION);
}

static void as_foreign_node(struct fake *f)
{
	connect_fake(f, slurm_relay_secret(t.relay));
	say_hello(f, "n77", MSG_VERSION);
}

static void as_other_version(struct fake *f)
{
	connect_fake(f, slurm_relay_secret(t.relay));
	say_hello(f, "n0", MSG_VERSION + 1);
}

static void without_hello(struct fake *f)
{
	connect_fake(f, slurm_relay_secret(t.relay));
	helper_line_send(f->line, MSG_HELPER_EXITED,
			 msg_helper_exited_json(&(struct msg_helper_exited){ 0, 0 }));
}

static void with_rank_of_another_node(struct fake *f)
{
	connect_fake(f, slurm_relay_secret(t.relay));
	say_hello(f, "n0", MSG_VERSION);
	report_exit(0, RANKS, 0);
}

static void with_one_end_twice(struct fake *f)
{
	connect_fake(f, slurm_relay_secret(t.relay));
	say_hello(f, "n0", MSG_VERSION);
	report_exit(0, 0, 0);
	report_exit(0, 0, 0);
}

static void with_a_message_of_an_agent(struct fake *f)
{
	connect_fake(f, slurm_relay_secret(t.relay));
	say_hello(f, "n0", MSG_VERSION);
	helper_line_send(f->line, MSG_SIGNAL, msg_signal_json(&(struct msg_signal){ 15 }));
}

static void with_an_early_acknowledgement(struct fake *f)
{
	connect_fake(f, slurm_relay_secret(t.relay));
	say_hello(f, "n0", MSG_VERSION);
	helper_line_send(f->line, MSG_HELPER_NEXT,
			 msg_helper_next_json(&(struct msg_helper_next){ 0, 0 }));
}

static void helpers_that_lie_are_refused(void **state)
{
	(void)state;
	static void (*const lies[])(struct fake *) = {
		with_other_secret,          as_foreign_node,
		as_other_version,           without_hello,
		with_rank_of_another_node,  with_one_end_twice,
		with_a_message_of_an_agent, with_an_early_acknowledgement,
	};
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
		is_refused(lies[i]);
}

static void send_put(int node, int64_t fence, size_t bytes)
{
	struct buf put = BUF_INIT;
	buf_printf(&put, "%03d.", node);
	while (put.len < bytes)
		buf_puts(&put, "x");
	for (int i = 0; i < parts_count(put.len); i++)
		helper_line_send(t.fakes[node].line, MSG_HELPER_PART, parts_json(fence, &put, i));
	buf_fini(&put);
}

static int fences;

static bool all_complete(void)
{
	for (int i = 0; i < t.nodes; i++)
		if (t.fakes[i].complete != fences)
			return false;
	return true;
}

/* Several fences of data that needs several parts; the nodes enter them in various orders. */
static void every_node_gets_what_all_have_put(void **state)
{
	(void)state;
	enum { BYTES = 200 * 1024, FENCES = 3 };
	open_relay(NODES);
	connect_all();
	for (fences = 1; fences <= FENCES; fences++) {
		for (int i = 0; i < NODES; i++)
			send_put((i + fences) % NODES, fences - 1, BYTES);
		run_until(all_complete);
		for (int i = 0; i < NODES; i++) {
			assert_int_equal(t.fakes[i].bytes, NODES * BYTES);
			assert_memory_equal(t.fakes[i].head, "000.xxxxxxxx", 12);
		}
	}
	close_relay();
}

/* Eight agents of 1 KiB on each of 64 nodes. NODES=N in the environment changes the number. */
static void many_nodes_meet_in_one_fence(void **state)
{
	(void)state;
	enum { PUT = 8 * 1024 };
	const char *word = getenv("NODES");
	int n = word && atoi(word) > 0 && atoi(word) <= MANY ? atoi(word) : 64;
	open_relay(n);
	double from = clock_s();
	connect_all();
	double met = clock_s();
	for (int i = 0; i < n; i++)
		send_put(i, 0, PUT);
	fences = 1;
	run_until(all_complete);
	printf("# figure: relay: %d helpers connected in %.2f s, fence of %d x 8 KiB in %.2f s\n",
	       n, met - from, n, clock_s() - met);
	assert_int_equal(t.fakes[n - 1].bytes, n * PUT);
	close_relay();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ends_of_agents_are_reported),
		cmocka_unit_test(agents_end_with_their_helper),
		cmocka_unit_test(a_helper_that_does_not_connect_is_lost),
		cmocka_unit_test(every_helper_is_told_to_kill_also_a_late_one),
		cmocka_unit_test(helpers_that_lie_are_refused),
		cmocka_unit_test(every_node_gets_what_all_have_put),
		cmocka_unit_test(many_nodes_meet_in_one_fence),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
