#include "topo/gpus.h"
#include "topo/internal.h"
#include "topo/presets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct cluster opened(const char *spec)
{
	struct cluster c;
	struct err e = ERR_INIT;
	if (topo_cluster_open(spec, 0, &c, &e))
		fail_msg("%s: %s", spec, e.text);
	return c;
}

/* Checks what must hold for the parts of any kind, whatever their source. */
static void parts_agree_with_totals(const struct node_kind *k)
{
	int n = k->devices;
	double best = 0;
	for (int i = 0; i < n; i++) {
		assert_in_range(k->parts[i].numa, 0, k->numa - 1);
		assert_in_range(k->parts[i].nic, 0, k->n_nics - 1);
		assert_true(k->parts[i].cpus[0] && k->parts[i].nic_link != LINK_UNKNOWN);
		for (int j = 0; j < n; j++) {
			struct topo_link l = k->links[i * n + j], back = k->links[j * n + i];
			assert_int_equal(l.kind == LINK_SELF, i == j);
			assert_int_equal(l.kind, back.kind);
			assert_int_equal(l.lanes, back.lanes);
			assert_true(i == j || l.bandwidth > 0);
			assert_int_equal(l.kind == LINK_NVSWITCH, k->switched && i != j);
			best = l.bandwidth > best ? l.bandwidth : best;
		}
	}
	assert_float_equal(best, k->link_bandwidth, 1);
	double net = 0;
	for (int i = 0; i < k->n_nics; i++) {
		assert_true(k->nics[i].name[0] && k->nics[i].bandwidth > 0);
		net += k->nics[i].bandwidth;
	}
	assert_float_equal(net / n, k->net_bandwidth, 1);
}

static void every_preset_has_parts_that_agree_with_its_totals(void **state)
{
	(void)state;
	int n = 0;
	for (const struct topo_preset *b; (b = topo_preset_at(n)) != NULL; n++) {
		struct cluster c = opened(b->name);
		const struct gpu_model *m = topo_gpu_of_name(c.kinds[0].device);
		assert_non_null(m);
		assert_float_equal(c.kinds[0].device_flops, m->flops, 1);
		parts_agree_with_totals(&c.kinds[0]);
		topo_cluster_free(&c);
	}
	assert_true(n >= 12);
}

static void a_dgx1_is_a_hybrid_cube_mesh(void **state)
{
	(void)state;
	struct cluster c = opened("dgx-1");
	const struct node_kind *k = &c.kinds[0];
	for (int i = 0; i < 8; i++) {
		int lanes = 0, sys = 0;
		for (int j = 0; j < 8; j++) {
			lanes += k->links[i * 8 + j].lanes;
			sys += k->links[i * 8 + j].kind == LINK_SYS;
			/* Inside a quad, every pair is joined. Across quads, only a device and its
			 * opposite are. */
			assert_int_equal(i != j && (i / 4 == j / 4 || i % 4 == j % 4),
					 k->links[i * 8 + j].lanes > 0);
		}
		assert_int_equal(lanes, 6);
		assert_int_equal(sys, 3);
	}
	assert_int_equal(k->links[3].lanes, 2);
	assert_float_equal(k->links[3].bandwidth, 50e9, 1);
	assert_int_equal(k->parts[5].nic, 2);
	assert_string_equal(k->parts[7].cpus, "20-39,60-79");
	topo_cluster_free(&c);
}

static void switched_boxes_give_every_pair_the_whole_port(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *name;
		int devices;
		double port;
		const char *cpus; /* of the last device */
	} rows[] = {
		{ "dgx-2", 16, 150e9, "24-47,72-95" }, { "dgx-a100", 8, 300e9, "80-95,208-223" }, { "dgx-h100", 8, 450e9, "56-111,168-223" },
		{ "dgx-h200", 8, 450e9, "56-111,168-223" }, { "dgx-b200", 8, 900e9, "56-111,168-223" }, { "gb200-nvl72", 4, 900e9, "72-143" },
		{ "p4d", 8, 300e9, "24-47,72-95" },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct cluster c = opened(rows[i].name);
		int n = c.kinds[0].devices;
		assert_int_equal(n, rows[i].devices);
		assert_true(c.kinds[0].switched);
		assert_float_equal(topo_cluster_link(&c.kinds[0], 0, n - 1).bandwidth, rows[i].port,
				   1);
		assert_string_equal(c.kinds[0].parts[n - 1].cpus, rows[i].cpus);
		topo_cluster_free(&c);
	}
}

static void scalable_units_hang_on_leaves_below_spines(void **state)
{
	(void)state;
	struct cluster c = opened("dgx-h100:128"); /* 4 units of 32 */
	assert_int_equal(c.n_switches, 5);
	assert_true(c.rails);
	assert_int_equal(topo_cluster_hops(&c, 0, 31), 1);
	assert_int_equal(topo_cluster_hops(&c, 31, 32), 2);
	assert_int_equal(topo_cluster_hops(&c, 0, 127), 2);
	topo_cluster_free(&c);
	c = opened("dgx-h100:512"); /* 16 units: two spines below a core */
	assert_int_equal(c.n_switches, 1 + 2 + 16);
	assert_int_equal(topo_cluster_hops(&c, 0, 255), 2);
	assert_int_equal(topo_cluster_hops(&c, 255, 256), 3);
	topo_cluster_free(&c);
	c = opened("dgx-h100");
	assert_int_equal(c.n_switches, 2);
	topo_cluster_free(&c);
	c = opened("pcie-a100:4");
	assert_null(c.switches);
	topo_cluster_free(&c);
}

static void trays_of_a_rack_share_one_fabric(void **state)
{
	(void)state;
	struct cluster c = opened("gb200-nvl72:36");
	assert_int_equal(topo_cluster_devices(&c), 144);
	assert_true(topo_cluster_share_nvlink(&c, 0, 17));
	assert_false(topo_cluster_share_nvlink(&c, 17, 18));
	assert_true(topo_cluster_share_nvlink(&c, 18, 35));
	topo_cluster_free(&c);
	c = opened("gb200-nvl72:18+dgx-a100:1+gb200-nvl72:1");
	assert_int_equal(c.n_kinds, 2);
	assert_int_equal(c.nodes[18].domain, 1); /* equal terms are merged: 19 trays side by side */
	assert_int_equal(c.nodes[19].domain, -1);
	topo_cluster_free(&c);
}

static void sums_have_the_nodes_of_their_terms(void **state)
{
	(void)state;
	struct cluster c = opened("dgx-h100:33+dgx-a100:2+pcie-l40s");
	assert_int_equal(c.n_nodes, 36);
	assert_int_equal(c.n_kinds, 3);
	assert_string_equal(c.name, "dgx-h100:33+dgx-a100:2+pcie-l40s");
	assert_string_equal(topo_cluster_kind(&c, 32)->name, "dgx-h100");
	assert_string_equal(topo_cluster_kind(&c, 33)->name, "dgx-a100");
	assert_string_equal(topo_cluster_kind(&c, 35)->name, "pcie-l40s");
	assert_string_equal(c.nodes[35].name, "node35");
	assert_false(c.rails);
	assert_int_equal(topo_cluster_hops(&c, 0, 31), 1);
	assert_int_equal(topo_cluster_hops(&c, 0, 32), 2);
	assert_int_equal(topo_cluster_hops(&c, 0, 33), 3);
	assert_int_equal(topo_cluster_hops(&c, 33, 34), 1);
	for (int i = 0; i < c.n_switches; i++) /* parents come first, so there are no cycles */
		assert_true(c.switches[i].parent < i && c.switches[i].name[0]);
	topo_cluster_free(&c);
}

static void a_hundred_thousand_devices_open(void **state)
{
	(void)state;
	struct cluster c = opened("dgx-h100:12500+gb200-nvl72:5000");
	assert_int_equal(topo_cluster_devices(&c), 120000);
	assert_string_equal(c.nodes[17499].name, "node17499");
	topo_cluster_free(&c);
	c = opened("dgx-h100:65536");
	assert_int_equal(c.n_nodes, NODES_MAX);
	topo_cluster_free(&c);
}

static void broken_sums_are_refused(void **state)
{
	(void)state;
	static const char *const specs[] = { "dgx-h100:4+",          "+dgx-h100",
					     "dgx-h100:4++dgx-a100", "dgx-h100:65536+dgx-a100:1",
					     "dgx-h100:4+dgx-a1000", "dgx-h100:4+dgx-a100:",
					     "dgx-h100:65537",       "dgx-h100+dgx-a100:0x2" };
	for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
		struct cluster c;
		struct err e = ERR_INIT;
		if (!topo_cluster_open(specs[i], 0, &c, &e))
			fail_msg("\"%s\" was taken", specs[i]);
		assert_int_equal(e.code, ERR_USAGE);
		assert_non_null(strstr(e.text, specs[i]));
	}
	struct err e = ERR_INIT;
	struct cluster c;
	assert_int_equal(topo_cluster_open("dgx-h10", 0, &c, &e), -1);
	for (int i = 0; topo_preset_at(i); i++)
		assert_non_null(strstr(e.text, topo_preset_at(i)->name));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_preset_has_parts_that_agree_with_its_totals),
		cmocka_unit_test(a_dgx1_is_a_hybrid_cube_mesh),
		cmocka_unit_test(switched_boxes_give_every_pair_the_whole_port),
		cmocka_unit_test(scalable_units_hang_on_leaves_below_spines),
		cmocka_unit_test(trays_of_a_rack_share_one_fabric),
		cmocka_unit_test(sums_have_the_nodes_of_their_terms),
		cmocka_unit_test(a_hundred_thousand_devices_open),
		cmocka_unit_test(broken_sums_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
