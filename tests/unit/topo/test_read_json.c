/* Clusters as JSON: written, read back, and written by hand. */
#include "tests/unit/topo/taken.h"

#include "topo/json.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void json_is_read_back_as_it_was_written(void **state)
{
	(void)state;
	static const char *const specs[] = { "dgx-1",
					     "dgx-h100:40+dgx-a100:2",
					     "gb200-nvl72:37",
					     "pcie-l40s:3",
					     "mi300x",
					     "local",
					     "tests/machines/hwloc-3.xml:3",
					     "tests/machines/nccl-trays.xml", /* no adapters */
					     "tests/machines/smi-dead.txt",
					     "tests/machines/cluster.json" };
	for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
		struct cluster c = opened(specs[i]), back;
		struct buf text = BUF_INIT, again = BUF_INIT;
		struct err e = ERR_INIT;
		if (topo_json_write(&c, &text, &e) ||
		    topo_json_read("it", text.data, text.len, &back, &e) ||
		    topo_json_write(&back, &again, &e))
			fail_msg("%s: %s", specs[i], e.text);
		assert_string_equal(buf_str(&text), buf_str(&again));
		assert_int_equal(!c.kinds[0].n_nics && c.kinds[0].parts,
				 strstr(buf_str(&text), "\"nics\": []") != NULL);
		assert_int_equal(back.n_nodes, c.n_nodes);
		assert_int_equal(back.rails, c.rails);
		assert_memory_equal(back.nodes, c.nodes, (size_t)c.n_nodes * sizeof *c.nodes);
		for (int k = 0; k < c.n_kinds; k++) {
			size_t n = (size_t)c.kinds[k].devices;
			if (c.kinds[k].links)
				assert_memory_equal(back.kinds[k].links, c.kinds[k].links,
						    n * n * sizeof *c.kinds[k].links);
			if (c.kinds[k].parts)
				assert_memory_equal(back.kinds[k].parts, c.kinds[k].parts,
						    n * sizeof *c.kinds[k].parts);
			assert_true(back.kinds[k].net_bandwidth == c.kinds[k].net_bandwidth &&
				    back.kinds[k].memory == c.kinds[k].memory);
		}
		buf_fini(&text);
		buf_fini(&again);
		topo_cluster_free(&c);
		topo_cluster_free(&back);
	}
}

static void json_of_many_nodes_is_short(void **state)
{
	(void)state;
	struct cluster c = opened("dgx-h100:12500"), back;
	struct buf text = BUF_INIT;
	assert_int_equal(topo_json_write(&c, &text, NULL), 0);
	assert_true(text.len < 120000); /* 391 leaves, one line of nodes each */
	assert_non_null(strstr(buf_str(&text), "\"node[12480-12499]\""));
	assert_int_equal(topo_json_read("it", text.data, text.len, &back, NULL), 0);
	assert_int_equal(topo_cluster_devices(&back), 100000);
	buf_fini(&text);
	topo_cluster_free(&c);
	topo_cluster_free(&back);
}

static void json_by_hand_is_read(void **state)
{
	(void)state;
	struct cluster c = opened("tests/machines/cluster.json");
	assert_int_equal(c.n_nodes, 7);
	assert_int_equal(topo_cluster_devices(&c), 5 * 4 + 2 * 2);
	assert_string_equal(c.nodes[3].name, "a11");
	assert_string_equal(c.nodes[4].name, "login");
	assert_int_equal(topo_cluster_hops(&c, 0, 4), 1);
	assert_int_equal(topo_cluster_hops(&c, 0, 5), 2);
	assert_true(topo_cluster_share_nvlink(&c, 5, 6));
	assert_int_equal(c.kinds[0].parts[0].numa, -1);
	assert_int_equal(c.kinds[0].parts[3].nic, -1);
	assert_float_equal(c.switches[1].up, 1e11, 1);
	/* The values of an L40S are known and need not be given. */
	assert_float_equal(c.kinds[0].device_flops, 362e12, 1e12);
	assert_true(c.kinds[0].device_memory > 40e9 && c.kinds[0].device_bandwidth > 8e11 &&
		    c.kinds[1].device_flops <= 0);
	assert_float_equal(c.kinds[1].link_bandwidth, 4.5e11, 1);
	topo_cluster_free(&c);
}

static void what_json_need_not_say_has_a_default(void **state)
{
	(void)state;
	struct cluster c = taken("{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"k\", "
				 "\"devices\": 2}], \"nodes\": [{\"names\": \"n\"}]}");
	assert_string_equal(c.name, "it");
	assert_string_equal(c.kinds[0].device, "device");
	assert_int_equal(c.nodes[0].kind, 0);
	assert_int_equal(c.nodes[0].leaf, -1);
	assert_int_equal(c.nodes[0].domain, -1);
	topo_cluster_free(&c);
	c = taken("\xef\xbb\xbf{\"format\": \"muster cluster 1\", \"kinds\": [{\"name\": \"k\", "
		  "\"devices\": 2}], \"nodes\": [{\"names\": \"n\"}]}");
	assert_int_equal(topo_cluster_devices(&c), 2);
	topo_cluster_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_is_read_back_as_it_was_written),
		cmocka_unit_test(json_of_many_nodes_is_short),
		cmocka_unit_test(json_by_hand_is_read),
		cmocka_unit_test(what_json_need_not_say_has_a_default),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
