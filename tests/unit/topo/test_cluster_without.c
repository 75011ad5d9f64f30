/* The part of a cluster that is left when nodes or devices are gone. */
#include "topo/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void open_cluster(const char *spec, struct cluster *c)
{
	struct err e = ERR_INIT;
	if (topo_cluster_open(spec, 0, c, &e))
		fail_msg("%s: %s", spec, e.text);
}

static void remove_slots(const struct cluster *all, const struct cluster_slot *gone, int n,
			 struct cluster *out)
{
	struct err e = ERR_INIT;
	if (topo_cluster_without(all, gone, n, out, &e))
		fail_msg("%s", e.text);
}

static void without_losses_everything_stays(void **state)
{
	(void)state;
	struct cluster all, left;
	open_cluster("dgx-h100:4", &all);
	remove_slots(&all, NULL, 0, &left);
	assert_int_equal(left.n_nodes, 4);
	assert_int_equal(left.n_kinds, 1);
	assert_int_equal(topo_cluster_devices(&left), 32);
	assert_int_equal(left.n_switches, all.n_switches);
	for (int i = 0; i < 4; i++)
		assert_string_equal(left.nodes[i].name, all.nodes[i].name);
	topo_cluster_free(&left);
	topo_cluster_free(&all);
}

static void a_node_that_is_gone_is_left_out(void **state)
{
	(void)state;
	struct cluster all, left;
	open_cluster("dgx-h100:2+dgx-a100:2", &all);
	const struct cluster_slot gone[] = { { 0, -1 }, { 1, -1 } };
	remove_slots(&all, gone, 2, &left);
	assert_int_equal(left.n_nodes, 2);
	assert_int_equal(left.n_kinds, 1);
	assert_string_equal(left.nodes[0].name, all.nodes[2].name);
	assert_string_equal(left.kinds[0].name, "dgx-a100");
	topo_cluster_free(&left);
	topo_cluster_free(&all);
}

static void a_node_that_lost_a_device_gets_its_own_kind(void **state)
{
	(void)state;
	struct cluster all, left;
	open_cluster("dgx-h100:3", &all);
	const struct cluster_slot gone = { 1, 2 };
	remove_slots(&all, &gone, 1, &left);
	assert_int_equal(left.n_kinds, 2);
	assert_int_equal(topo_cluster_devices(&left), 23);
	const struct node_kind *before = topo_cluster_kind(&all, 1),
			       *k = topo_cluster_kind(&left, 1);
	assert_int_equal(k->devices, 7);
	assert_int_equal(left.nodes[0].kind, left.nodes[2].kind);
	for (int i = 0; i < 7 && before->parts; i++)
		assert_string_equal(k->parts[i].name, before->parts[i + (i >= 2)].name);
	for (int a = 0; a < 7 && before->links; a++)
		for (int b = 0; b < 7; b++)
			assert_memory_equal(&k->links[a * 7 + b],
					    &before->links[(a + (a >= 2)) * 8 + b + (b >= 2)],
					    sizeof *k->links);
	topo_cluster_free(&left);
	topo_cluster_free(&all);
}

static void the_last_device_takes_its_node_along(void **state)
{
	(void)state;
	struct cluster all, left;
	open_cluster("dgx-h100:2", &all);
	struct cluster_slot gone[8];
	for (int d = 0; d < 8; d++)
		gone[d] = (struct cluster_slot){ 0, d };
	remove_slots(&all, gone, 8, &left);
	assert_int_equal(left.n_nodes, 1);
	assert_string_equal(left.nodes[0].name, all.nodes[1].name);
	topo_cluster_free(&left);
	topo_cluster_free(&all);
}

static void an_empty_cluster_is_refused(void **state)
{
	(void)state;
	struct cluster all, left = { 0 };
	struct err e = ERR_INIT;
	open_cluster("dgx-h100:1", &all);
	const struct cluster_slot gone = { 0, -1 };
	assert_int_equal(topo_cluster_without(&all, &gone, 1, &left, &e), -1);
	assert_int_equal(e.code, ERR_NOFIT);
	assert_non_null(strstr(e.text, "left"));
	assert_null(left.nodes);
	topo_cluster_free(&all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_losses_everything_stays),
		cmocka_unit_test(a_node_that_is_gone_is_left_out),
		cmocka_unit_test(a_node_that_lost_a_device_gets_its_own_kind),
		cmocka_unit_test(the_last_device_takes_its_node_along),
		cmocka_unit_test(an_empty_cluster_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
