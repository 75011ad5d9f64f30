/* How the figures of a burn-in are compared, and which nodes measure a link with each other. */
#include "launcher/supervise/burn_in_judge.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { NODES = 8 };

static struct burn_in_table table;
static struct burn_in_findings found;
static int kinds[NODES];
static const char *const names[NODES] = { "n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7" };

static int set_up(void **state)
{
	(void)state;
	memset(kinds, 0, sizeof kinds);
	return supervise_burn_in_table_init(&table, NODES, NULL);
}

static int tear_down(void **state)
{
	(void)state;
	supervise_burn_in_table_fini(&table);
	supervise_burn_in_findings_fini(&found);
	return 0;
}

static void add(int node, int peer, enum burn_in_what what, int device, double value, double own)
{
	const struct burn_in_figure f = { .node = node,
					  .peer = peer,
					  .what = what,
					  .device = device,
					  .value = value,
					  .own = own };
	assert_int_equal(supervise_burn_in_add(&table, &f, NULL), 0);
}

static void add_all(enum burn_in_what what, int n, const double *values)
{
	for (int i = 0; i < n; i++)
		add(i, -1, what, 0, values[i], 0);
}

/* A link of two nodes: each sends and receives at this rate. */
static void add_link(int a, int b, double rate)
{
	for (int end = 0; end < 2; end++) {
		add(end ? a : b, end ? b : a, BURN_IN_SEND, 0, rate, 0);
		add(end ? a : b, end ? b : a, BURN_IN_RECEIVE, 0, rate, 0);
	}
}

static void judge(double factor)
{
	assert_int_equal(supervise_burn_in_judge(&table, kinds, NODES, factor, &found, NULL), 0);
}

static void assert_described(int i, const char *text)
{
	struct buf b = BUF_INIT;
	supervise_burn_in_describe(&found.of[i], names, &b);
	assert_string_equal(buf_str(&b), text);
	buf_fini(&b);
}

static void a_node_below_half_of_its_peers_is_bad(void **state)
{
	(void)state;
	add_all(BURN_IN_PRODUCT, 4, (double[]){ 30e9, 14e9, 29e9, 31e9 });
	judge(2);
	assert_int_equal(found.n, 1);
	assert_int_equal(found.of[0].fault, BURN_IN_PEERS);
	assert_int_equal(found.of[0].figure.node, 1);
	assert_described(0, "product rate 14 GFLOP/s, the median of its peers is 30");
	judge(2.2);
	assert_int_equal(found.n, 0);
}

static void of_two_nodes_the_slower_one_is_bad(void **state)
{
	(void)state;
	add_all(BURN_IN_MEMORY, 2, (double[]){ 4e9, 10e9 });
	judge(2);
	assert_int_equal(found.n, 1);
	assert_int_equal(found.of[0].figure.node, 0);
}

/* Of two peers the slower one is the reference: a node is not bad because one peer is fast. */
static void one_fast_node_makes_no_other_one_bad(void **state)
{
	(void)state;
	add_all(BURN_IN_PRODUCT, 3, (double[]){ 10e9, 11e9, 30e9 });
	judge(2);
	assert_int_equal(found.n, 0);
}

static void nodes_of_other_kinds_are_no_peers(void **state)
{
	(void)state;
	kinds[2] = kinds[3] = 1;
	add_all(BURN_IN_PRODUCT, 4, (double[]){ 10e9, 10e9, 90e9, 90e9 });
	judge(2);
	assert_int_equal(found.n, 0);
	kinds[3] = 2;
	judge(2);
	assert_int_equal(found.n, 0);
	kinds[3] = 0;
	judge(2);
	assert_int_equal(found.n, 0); /* a fast one among slow ones */
	kinds[2] = 0;
	judge(2);
	assert_int_equal(found.n, 2);
}

static void a_slow_device_is_named(void **state)
{
	(void)state;
	for (int node = 0; node < 2; node++)
		for (int device = 0; device < 4; device++)
			add(node, -1, BURN_IN_PRODUCT, device,
			    node == 1 && device == 3 ? 100e12 : 600e12, 0);
	judge(2);
	assert_int_equal(found.n, 1);
	assert_described(0,
			 "device 3: product rate 1e+05 GFLOP/s, the median of its peers is 6e+05");
}

static void the_better_of_two_measurements_counts(void **state)
{
	(void)state;
	add_all(BURN_IN_PRODUCT, 3, (double[]){ 5e9, 30e9, 30e9 });
	add_all(BURN_IN_DISK_SYNC, 3, (double[]){ 9, 0.2, 0.2 });
	judge(2);
	assert_int_equal(found.n, 2);
	add_all(BURN_IN_PRODUCT, 3, (double[]){ 28e9, 1e9, 1e9 });
	add_all(BURN_IN_DISK_SYNC, 3, (double[]){ 0.3, 7, 7 });
	assert_int_equal(table.n, 6);
	assert_true(table.rows[0].value == 28e9 && table.rows[1].value == 30e9);
	assert_true(table.rows[3].value == 0.3 && table.rows[4].value == 0.2);
	judge(2);
	assert_int_equal(found.n, 0);
}

static void a_shared_folder_may_differ_more_and_a_fast_one_is_never_bad(void **state)
{
	(void)state;
	add_all(BURN_IN_DISK_WRITE, 3, (double[]){ 30e6, 100e6, 100e6 });
	add_all(BURN_IN_DISK_READ, 3, (double[]){ 510e6, 9e9, 9e9 });
	add_all(BURN_IN_DISK_SYNC, 3, (double[]){ 0.09, 1e-3, 1e-3 });
	judge(2);
	assert_int_equal(found.n, 0);
	add(3, -1, BURN_IN_DISK_WRITE, 0, 20e6, 0);
	add(3, -1, BURN_IN_DISK_SYNC, 0, 0.5, 0);
	judge(2);
	assert_int_equal(found.n, 2);
	assert_described(
		0, "time of an fsync of the checkpoints 500 ms, the median of its peers is 1");
	assert_described(1,
			 "write rate of the checkpoints 20 MB/s, the median of its peers is 100");
}

static void one_slow_link_blames_no_node(void **state)
{
	(void)state;
	add_link(0, 1, 1e9);
	add_link(1, 2, 1e7);
	add_link(2, 3, 1e9);
	add_link(3, 0, 1e9);
	judge(2);
	assert_true(found.n > 0);
	for (int i = 0; i < found.n; i++)
		assert_int_equal(found.of[i].fault, BURN_IN_LINK);
	assert_described(0,
			 "the link from n1 to n2 is slow: 0.01 GB/s, the median of all links is 1");
}

static void a_node_is_bad_if_all_its_links_are_slow(void **state)
{
	(void)state;
	add_link(0, 1, 1e9);
	add_link(1, 2, 1e7);
	add_link(2, 3, 2e7);
	add_link(3, 0, 1e9);
	judge(2);
	assert_int_equal(found.n, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(found.of[i].fault, BURN_IN_PEERS);
		assert_int_equal(found.of[i].figure.node, 2);
	}
	assert_described(0, "rate of sending 0.02 GB/s, the median of its peers is 1");
}

/* It may be the fault of either, so neither is blamed. */
static void a_link_of_two_nodes_that_does_not_work_is_reported(void **state)
{
	(void)state;
	add_link(0, 1, 0);
	judge(2);
	assert_int_equal(found.n, 4);
	assert_int_equal(found.of[0].fault, BURN_IN_LINK);
	assert_described(0, "the link from n0 to n1 does not work");
}

static void a_node_worse_than_its_calibration_is_reported_but_not_blamed(void **state)
{
	(void)state;
	add(0, -1, BURN_IN_PRODUCT, 0, 10e9, 50e9);
	add(1, -1, BURN_IN_PRODUCT, 0, 30e9, 50e9);
	judge(4);
	assert_int_equal(found.n, 1);
	assert_int_equal(found.of[0].fault, BURN_IN_OWN);
	assert_described(0, "n0: product rate 10 GFLOP/s, its calibration is 50");
}

static void the_worst_figure_comes_first(void **state)
{
	(void)state;
	add_all(BURN_IN_PRODUCT, 3, (double[]){ 10e9, 30e9, 30e9 });
	add_all(BURN_IN_MEMORY, 3, (double[]){ 1e9, 30e9, 30e9 });
	judge(2);
	assert_int_equal(found.n, 2);
	assert_int_equal(found.of[0].figure.what, BURN_IN_MEMORY);
}

static void many_nodes_are_compared_with_one_median(void **state)
{
	enum { MANY = 600 };
	static int same[MANY];
	struct burn_in_table all;
	(void)state;
	assert_int_equal(supervise_burn_in_table_init(&all, MANY, NULL), 0);
	for (int i = 0; i < MANY; i++)
		supervise_burn_in_add(&all,
				      &(struct burn_in_figure){ .node = i,
								.peer = -1,
								.what = BURN_IN_PRODUCT,
								.value = i == 77 ? 4e9 : 10e9 },
				      NULL);
	assert_int_equal(supervise_burn_in_judge(&all, same, MANY, 2, &found, NULL), 0);
	assert_int_equal(found.n, 1);
	assert_int_equal(found.of[0].figure.node, 77);
	assert_true(supervise_burn_in_median(&all, BURN_IN_PRODUCT) == 10e9);
	assert_true(supervise_burn_in_median(&all, BURN_IN_MEMORY) == 0);
	supervise_burn_in_table_fini(&all);
}

static int read_text(const char *text, int peer)
{
	json_t *o = json_loads(text, JSON_DECODE_ANY, NULL);
	struct err e = ERR_INIT;
	int rc = supervise_burn_in_read(&table, 1, peer, o, &e);
	json_decref(o);
	assert_true(!rc || (e.code == ERR_PROTO && *e.text));
	return rc;
}

static void figures_of_a_node_are_checked(void **state)
{
	static const char *const wrong[] = {
		"{}",
		"[7]",
		"[{}]",
		"[{\"what\": \"product\", \"device\": 0}]",
		"[{\"what\": \"speed\", \"device\": 0, \"value\": 1}]",
		"[{\"what\": \"send\", \"device\": 0, \"value\": 1}]",
		"[{\"what\": \"product\", \"device\": -1, \"value\": 1}]",
		"[{\"what\": \"product\", \"device\": 99999, \"value\": 1}]",
		"[{\"what\": \"product\", \"device\": 0, \"value\": -1}]",
		"[{\"what\": \"product\", \"device\": 0, \"value\": null}]",
		"[{\"what\": \"product\", \"device\": 0, \"value\": 1e300}]",
	};
	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(read_text(wrong[i], -1), -1);
	assert_int_equal(table.n, 0);
	assert_int_equal(read_text("[{\"what\": \"product\", \"device\": 0, \"value\": 1}]", 2),
			 -1);
	assert_int_equal(read_text("[{\"what\": \"send\", \"device\": 0, \"value\": 0}]", 2), 0);
	assert_int_equal(read_text("[{\"what\": \"product\", \"device\": 3, \"value\": 5, "
				   "\"own\": null}]",
				   -1),
			 0);
	assert_int_equal(table.n, 2);
	assert_int_equal(table.rows[1].device, 3);
	assert_true(table.rows[1].own == 0);
}

static void check_pairs(int n)
{
	int partners[40 * BURN_IN_ROUNDS], rounds = supervise_burn_in_pairs(n, partners);
	assert_true(rounds <= BURN_IN_ROUNDS);
	for (int i = 0; i < n; i++) {
		int links = 0, first = -1, other = 0;
		for (int r = 0; r < BURN_IN_ROUNDS; r++) {
			int p = partners[i * BURN_IN_ROUNDS + r];
			if (p < 0)
				continue;
			assert_true(r < rounds && p < n && p != i);
			assert_int_equal(partners[p * BURN_IN_ROUNDS + r], i);
			links++;
			other += first >= 0 && p != first;
			first = first < 0 ? p : first;
		}
		assert_true(links >= (n > 2 ? 2 : n - 1));
		assert_true(n < 3 || other > 0);
	}
}

static void every_node_has_two_partners(void **state)
{
	(void)state;
	for (int n = 1; n <= 40; n++)
		check_pairs(n);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_node_below_half_of_its_peers_is_bad),
		T(of_two_nodes_the_slower_one_is_bad),
		T(one_fast_node_makes_no_other_one_bad),
		T(nodes_of_other_kinds_are_no_peers),
		T(a_slow_device_is_named),
		T(the_better_of_two_measurements_counts),
		T(a_shared_folder_may_differ_more_and_a_fast_one_is_never_bad),
		T(one_slow_link_blames_no_node),
		T(a_node_is_bad_if_all_its_links_are_slow),
		T(a_link_of_two_nodes_that_does_not_work_is_reported),
		T(a_node_worse_than_its_calibration_is_reported_but_not_blamed),
		T(the_worst_figure_comes_first),
		T(many_nodes_are_compared_with_one_median),
		T(figures_of_a_node_are_checked),
		T(every_node_has_two_partners),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
