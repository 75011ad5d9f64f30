/* What the helpers of nodes and the supervisor tell each other: parts of data, the start message, and
 * the relay's nodes. Wrong messages are refused, and change nothing. */
#include "base/parts.h"
#include "launcher/helper/cores.h"
#include "launcher/helper/start.h"
#include "launcher/slurm/relay_nodes.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void fill(struct buf *b, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++) {
		char c = (char)((i + seed) * 2654435761u >> 13);
		buf_add(b, &c, 1);
	}
	assert_false(buf_failed(b));
}

/* Sends the data in parts, as over the network, and compares what arrives. */
static void travels(size_t n)
{
	struct buf sent = BUF_INIT;
	struct parts got = { .fence = 0 };
	struct err e = ERR_INIT;
	fill(&sent, n, (unsigned)n);
	int parts = parts_count(n), rc = 0;
	assert_true(parts >= 1);
	for (int i = 0; i < parts; i++) {
		struct msg_helper_part m;
		json_t *body = parts_json(0, &sent, i);
		assert_non_null(body);
		assert_int_equal(msg_helper_part_read(body, &m, &e), 0);
		assert_int_equal(rc, 0);
		rc = parts_add(&got, &m, &e);
		json_decref(body);
	}
	assert_int_equal(rc, 1);
	assert_int_equal(got.data.len, n);
	assert_memory_equal(got.data.data, sent.data, n);
	parts_renew(&got);
	assert_int_equal(got.fence, 1);
	assert_int_equal(got.data.len, 0);
	parts_fini(&got);
	buf_fini(&sent);
}

static void data_of_any_length_travels_in_parts(void **state)
{
	(void)state;
	travels(1);
	travels(PARTS_BYTES - 1);
	travels(PARTS_BYTES);
	travels(PARTS_BYTES + 1);
	travels(3 * PARTS_BYTES + 7);
	assert_int_equal(parts_count(0), 1);
	assert_int_equal(parts_count((size_t)PARTS_BYTES * PARTS_MOST), PARTS_MOST);
	assert_int_equal(parts_count((size_t)PARTS_BYTES * PARTS_MOST + 1), -1);
}

static void wrong_parts_are_refused(void **state)
{
	(void)state;
	static const struct msg_helper_part wrong[] = {
		{ .fence = 1, .part = 0, .parts = 1, .data = "YWJj" },
		{ .fence = 0, .part = 1, .parts = 2, .data = "YWJj" },
		{ .fence = 0, .part = 0, .parts = 0, .data = "YWJj" },
		{ .fence = 0, .part = 0, .parts = PARTS_MOST + 1, .data = "YWJj" },
		{ .fence = 0, .part = -1, .parts = 1, .data = "YWJj" },
		{ .fence = 0, .part = 0, .parts = 1, .data = "no base64" },
		{ .fence = 0,
		  .part = 0,
		  .parts = 2,
		  .data = "YWJj" }, /* only the last one is short */
	};
	struct parts p = { .fence = 0 };
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(parts_add(&p, &wrong[i], &e), -1);
		assert_int_equal(e.code, ERR_PROTO);
		assert_int_equal(p.next, 0);
		assert_int_equal(p.data.len, 0);
	}
	struct err e = ERR_INIT;
	const struct msg_helper_part right = { .fence = 0, .part = 0, .parts = 1, .data = "YWJj" };
	assert_int_equal(parts_add(&p, &right, &e), 1);
	assert_memory_equal(p.data.data, "abc", 3);
	parts_fini(&p);
}

/* Ranks 0, 1 and 3 on node "b", rank 2 on node "d"; "a" and "c" have none. */
static int open_nodes(struct relay_nodes *all)
{
	static struct cluster_node nodes[] = {
		{ .name = "a" }, { .name = "b" }, { .name = "c" }, { .name = "d" }
	};
	static const struct cluster cluster = { .nodes = nodes, .n_nodes = 4 };
	static struct plan_rank ranks[] = { { .node = 1, .threads = 2 },
					    { .node = 1, .threads = 2 },
					    { .node = 3, .threads = 5 },
					    { .node = 1, .threads = 3 } };
	static const struct plan plan = { .world = 4, .threads = 2, .ranks = ranks };
	const struct launch_request r = { .cluster = &cluster, .plan = &plan };
	struct err e = ERR_INIT;
	return slurm_relay_nodes_open(all, &r, &e);
}

static json_t *start_body(const struct relay_nodes *all, int node)
{
	json_t *map = slurm_relay_nodes_map(all), *none = json_array();
	json_t *start = msg_helper_start_json(&(struct msg_helper_start){ .nspace = "muster-1-x",
									  .node_of = map,
									  .threads = none,
									  .bind = "core",
									  .agent = "/opt/agent",
									  .run = "/runs/x",
									  .address = "h:1",
									  .secret = "5ec4e7",
									  .auth = "secret" });
	json_t *body = slurm_relay_nodes_start(all, node, start);
	json_decref(map);
	json_decref(none);
	json_decref(start);
	assert_non_null(body);
	return body;
}

static void each_node_is_told_its_own_ranks(void **state)
{
	(void)state;
	struct relay_nodes all;
	struct helper_start s;
	struct err e = ERR_INIT;
	assert_int_equal(open_nodes(&all), 0);
	assert_int_equal(all.n, 2);
	assert_int_equal(slurm_relay_nodes_find(&all, "b"), 0);
	assert_int_equal(slurm_relay_nodes_find(&all, "d"), 1);
	assert_int_equal(slurm_relay_nodes_find(&all, "a"), -1);
	assert_int_equal(all.list[0].left, 3);
	json_t *body = start_body(&all, 0);
	assert_int_equal(helper_start_read(body, &s, &e), 0);
	assert_int_equal(s.world, 4);
	assert_int_equal(s.n, 3);
	assert_int_equal(s.ranks[0], 0);
	assert_int_equal(s.ranks[1], 1);
	assert_int_equal(s.ranks[2], 3);
	assert_int_equal(s.threads[2], 3);
	assert_int_equal(s.bind, BIND_CORE);
	assert_string_equal(s.m.secret, "5ec4e7");
	helper_start_fini(&s);
	json_decref(body);
	body = start_body(&all, 1);
	assert_int_equal(helper_start_read(body, &s, &e), 0);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.ranks[0], 2);
	assert_int_equal(s.threads[0], 5);
	helper_start_fini(&s);
	json_decref(body);
	slurm_relay_nodes_close(&all);
}

static void wrong_start_messages_are_refused(void **state)
{
	(void)state;
	static const struct {
		const char *key, *value;
	} wrong[] = {
		{ "node_of", "[]" },
		{ "node_of", "{}" },
		{ "node_of", "[0, 0, 1, 9]" },
		{ "node_of", "[0, 0, 1, -1]" },
		{ "node_of", "[0, 0, 1, \"0\"]" },
		{ "node", "7" }, /* it has no rank */
		{ "node", "-1" },
		{ "threads", "[2, 2]" },
		{ "threads", "[2, 2, 0]" },
		{ "threads", "[2, 2, 5000]" },
		{ "bind", "\"often\"" },
		{ "secret", "null" },
	};
	struct relay_nodes all;
	assert_int_equal(open_nodes(&all), 0);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct helper_start s;
		struct err e = ERR_INIT;
		json_t *body = start_body(&all, 0);
		json_object_set_new(body, wrong[i].key,
				    json_loads(wrong[i].value, JSON_DECODE_ANY, NULL));
		if (!helper_start_read(body, &s, &e))
			fail_msg("%s: %s", wrong[i].key, wrong[i].value);
		assert_int_equal(e.code, ERR_PROTO);
		helper_start_fini(&s);
		json_decref(body);
	}
	slurm_relay_nodes_close(&all);
}

/* Puts one short word for a node. */
static int put_word(struct relay_nodes *all, int node, int64_t fence, const char *base64)
{
	struct err e = ERR_INIT;
	const struct msg_helper_part m = { .fence = fence, .part = 0, .parts = 1, .data = base64 };
	return slurm_relay_nodes_put(all, &all->list[node], &m, &e);
}

static void a_fence_is_complete_once_every_node_has_entered_it(void **state)
{
	(void)state;
	struct relay_nodes all;
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	assert_int_equal(open_nodes(&all), 0);
	assert_int_equal(put_word(&all, 1, 0, "ZGRk"), 0);
	assert_int_equal(put_word(&all, 1, 0, "ZGRk"), -1); /* it has entered this one already */
	assert_int_equal(put_word(&all, 0, 1, "YmJi"), -1); /* not the next one */
	assert_int_equal(put_word(&all, 0, 0, "YmJi"), 1);
	assert_int_equal(slurm_relay_nodes_collect(&all, &out, &e), 0);
	assert_string_equal(buf_str(&out), "bbbddd");       /* in the order of the nodes */
	assert_int_equal(put_word(&all, 0, 0, "YmJi"), -1); /* that fence is over */
	assert_int_equal(put_word(&all, 0, 1, "YmJi"), 0);
	assert_int_equal(put_word(&all, 1, 1, "ZGRk"), 1);
	buf_fini(&out);
	slurm_relay_nodes_close(&all);
}

/* As if Slurm had bound the helper to one core. The topology is read once per process, so this test
 * is the only one that chooses cores. */
static void agents_are_bound_within_what_slurm_gave(void **state)
{
	(void)state;
	char cpus[64];
	cpu_set_t all, one;
	struct err e = ERR_INIT;
	int first = 0;
	assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
	while (!CPU_ISSET(first, &all))
		first++;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
	assert_int_equal(helper_cores_choose(BIND_AUTO, 1, 0, 1, cpus, sizeof cpus, &e), 0);
	assert_int_equal(atoi(cpus), first);
	assert_true(*cpus);
	assert_int_equal(helper_cores_choose(BIND_NONE, 1, 0, 1, cpus, sizeof cpus, &e), 0);
	assert_string_equal(cpus, "");
	/* two agents, one core */
	assert_int_equal(helper_cores_choose(BIND_AUTO, 2, 1, 1, cpus, sizeof cpus, &e), 0);
	assert_string_equal(cpus, "");
	assert_int_equal(helper_cores_choose(BIND_CORE, 2, 1, 1, cpus, sizeof cpus, &e), -1);
	assert_int_equal(e.code, ERR_NOFIT);
	assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
	if (CPU_COUNT(&all) == sysconf(_SC_NPROCESSORS_ONLN)) { /* Slurm has bound nothing */
		assert_int_equal(helper_cores_choose(BIND_AUTO, 1, 0, 1, cpus, sizeof cpus, &e), 0);
		assert_string_equal(cpus, "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_of_any_length_travels_in_parts),
		cmocka_unit_test(wrong_parts_are_refused),
		cmocka_unit_test(each_node_is_told_its_own_ranks),
		cmocka_unit_test(wrong_start_messages_are_refused),
		cmocka_unit_test(a_fence_is_complete_once_every_node_has_entered_it),
		cmocka_unit_test(agents_are_bound_within_what_slurm_gave),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
