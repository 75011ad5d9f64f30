#include "boxes.h"
#include "topo/draw/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_box_is_a_card_with_its_parts_and_links(void **state)
{
	(void)state;
	static const char golden[] =
		"boxes: 1 node, 4 devices\n"
		"\n"
		"four  1 node of 4 × A100-PCIe-80GB\n"
		"  device    80 GiB of memory, 1.9 TB/s, 312 TFLOP/s\n"
		"  links     2 NVLinks, direct: 50.0 GB/s, 2.00 µs; over the interconnect of the "
		"sockets: 10.0 GB/s, 10.0 µs\n"
		"  network   12.5 GB/s per device, 5.00 µs, 2 adapters\n"
		"  host      2 packages, 64 cores, 2 NUMA domains, memory 512 GiB, 2 last-level "
		"caches of 32 MiB\n"
		"  missing   all that was not asked\n"
		"    ├─ NUMA 0  cores 0-31\n"
		"    │  ├─ GPU0  0000:21:00.0  ── PIX ── mlx5_0\n"
		"    │  ├─ GPU1  0000:41:00.0  ── NODE ── mlx5_0\n"
		"    │  └─ mlx5_0 25.0 GB/s\n"
		"    └─ NUMA 1  cores 32-63\n"
		"       ├─ GPU2  0000:61:00.0  ── PIX ── mlx5_1\n"
		"       ├─ GPU3  0000:81:00.0  ── NODE ── mlx5_1\n"
		"       └─ mlx5_1 25.0 GB/s\n"
		"\n"
		"           GPU0  GPU1  GPU2  GPU3  NUMA  cores            adapter\n"
		"    GPU0      X   NV2   SYS   SYS     0  0-31             mlx5_0 (PIX)\n"
		"    GPU1    NV2     X   SYS   SYS     0  0-31             mlx5_0 (NODE)\n"
		"    GPU2    SYS   SYS     X   NV2     1  32-63            mlx5_1 (PIX)\n"
		"    GPU3    SYS   SYS   NV2     X     1  32-63            mlx5_1 (NODE)\n"
		"    NV2   2 NVLinks, direct, 50.0 GB/s each way\n"
		"    SYS   over the interconnect of the sockets, 10.0 GB/s each way\n";
	struct cluster c;
	struct buf text = BUF_INIT;
	boxes(1, 1, &c);
	snprintf(c.kinds[0].unsaid, sizeof c.kinds[0].unsaid, "all that was not asked");
	topo_draw_cluster(&c, false, &text);
	assert_string_equal(buf_str(&text), golden);
	buf_fini(&text);
	topo_cluster_free(&c);
}

static void draw_tree(const struct cluster *c, char *out, size_t size)
{
	struct buf text = BUF_INIT;
	topo_draw_cluster(c, false, &text);
	const char *begin = strstr(buf_str(&text), "\n\n"),
		   *end = begin ? strstr(begin + 2, "\n\n") : NULL;
	assert_non_null(end);
	snprintf(out, size, "%.*s", (int)(end - begin - 1), begin + 2);
	buf_fini(&text);
}

static void a_hundred_thousand_devices_are_a_page(void **state)
{
	(void)state;
	struct cluster c;
	char tree[4096];
	boxes(1, 25000, &c);
	three_levels(&c, 32);
	draw_tree(&c, tree, sizeof tree);
	assert_string_equal(tree,
			    "└─ core  25000 nodes, 100000 devices\n"
			    "   ├─ spine[0-23]  24 of these, each  1024 nodes, 4096 devices\n"
			    "   │  └─ leaf[0-31], …  32 of these, each  32 nodes, 128 devices\n"
			    "   │     └─ n[1-32], …  32 × four 4 × A100-PCIe-80GB\n"
			    "   └─ spine24  424 nodes, 1696 devices\n"
			    "      ├─ leaf[768-780]  13 of these, each  32 nodes, 128 devices\n"
			    "      │  └─ n[24577-24608], …  32 × four 4 × A100-PCIe-80GB\n"
			    "      └─ leaf781  8 nodes, 32 devices\n"
			    "         └─ n[24993-25000]  8 × four 4 × A100-PCIe-80GB\n");
	topo_cluster_free(&c);
}

static void nvlink_domains_hold_their_nodes(void **state)
{
	(void)state;
	struct cluster c;
	char tree[4096];
	boxes(2, 7, &c);
	for (int i = 0; i < 6; i++)
		c.nodes[i].domain = i / 3;
	snprintf(c.kinds[1].name, TOPO_NAME, "other");
	c.nodes[4].kind = 1;
	draw_tree(&c, tree, sizeof tree);
	assert_string_equal(tree, "├─ NVLink domain 0  3 nodes, 12 devices\n"
				  "│  └─ n[1-3]  3 × four 4 × A100-PCIe-80GB\n"
				  "├─ NVLink domain 1  3 nodes, 12 devices\n"
				  "│  ├─ n[4,6]  2 × four 4 × A100-PCIe-80GB\n"
				  "│  └─ n5  other 4 × A100-PCIe-80GB\n"
				  "└─ n7  four 4 × A100-PCIe-80GB\n");
	topo_cluster_free(&c);
}

static void drop_device(struct node_kind *k, int device)
{
	int n = k->devices;
	struct topo_link *links = calloc((size_t)(n - 1) * (size_t)(n - 1), sizeof *links);
	for (int i = 0, at = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			if (i != device && j != device)
				links[at++] = k->links[i * n + j];
	free(k->links);
	k->links = links;
	memmove(k->parts + device, k->parts + device + 1,
		(size_t)(n - 1 - device) * sizeof *k->parts);
	k->devices--;
}

static void weaken(struct node_kind *k)
{
	k->links[1].lanes = k->links[4].lanes = 1;
}

static void lose_gpu(struct node_kind *k)
{
	drop_device(k, 1);
}

static void lose_adapter(struct node_kind *k)
{
	k->n_nics = 1;
}

static void slow_adapter(struct node_kind *k)
{
	k->nics[1].bandwidth = 12.5e9;
}

static void lose_memory(struct node_kind *k)
{
	k->memory /= 2;
}

static void fall_to_pcie(struct node_kind *k)
{
	k->links[1] = k->links[4] = (struct topo_link){ LINK_NODE, 0, 20e9, 8e-6 };
}

static void tell_port(struct node_kind *k)
{
	k->parts[1].pcie = 4;
	k->parts[1].pcie_width = 8;
}

static void lose_driver(struct node_kind *k)
{
	snprintf(k->device, sizeof k->device, "cpu");
	free(k->parts);
	free(k->links);
	k->parts = NULL;
	k->links = NULL;
	k->devices = 64;
}

static void outliers_are_named_with_the_difference(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		void (*change)(struct node_kind *k);
		const char *line;
	} rows[] = {
		{ lose_gpu, "n3: 3 GPUs where 15 similar nodes have 4: GPU at 0000:41:00.0 is missing\n" },
		{ weaken, "n3: NVLink GPU0-GPU1 has 1 lane where others have 2\n" },
		{ fall_to_pcie, "n3: GPU0-GPU1 is NODE where others have NV2\n" },
		{ lose_adapter, "n3: 1 adapter where others have 2: mlx5_1 is missing\n" },
		{ slow_adapter, "n3: mlx5_1 runs at 12.5 GB/s where others have 25.0 GB/s\n" },
		{ lose_memory, "n3: host memory of 256 GiB where others have 512 GiB\n" },
		{ tell_port, "n3: GPU1 has PCIe 4.0 × 8 where others have an unknown port\n" },
		{ lose_driver, "n3: no GPU where 15 similar nodes have 4\n" },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct cluster c;
		struct buf text = BUF_INIT;
		boxes(2, 16, &c);
		c.nodes[2].kind = 1;
		rows[i].change(&c.kinds[1]);
		topo_draw_outliers(&c, &text);
		assert_string_equal(buf_str(&text), rows[i].line);
		buf_fini(&text);
		topo_cluster_free(&c);
	}
}

static void equal_halves_are_no_outliers(void **state)
{
	(void)state;
	struct cluster c;
	struct buf text = BUF_INIT;
	boxes(2, 4, &c);
	lose_memory(&c.kinds[1]);
	c.nodes[1].kind = c.nodes[2].kind = 1;
	topo_draw_outliers(&c, &text);
	assert_int_equal(text.len, 0);
	c.nodes[2].kind = 0;
	snprintf(c.kinds[1].device, TOPO_NAME, "another model");
	topo_draw_outliers(&c, &text);
	assert_int_equal(text.len, 0);
	topo_cluster_free(&c);
	/* Three of seven are the largest group, but no majority. */
	boxes(3, 7, &c);
	lose_memory(&c.kinds[1]);
	weaken(&c.kinds[2]);
	c.nodes[0].kind = c.nodes[1].kind = 1;
	c.nodes[2].kind = c.nodes[3].kind = 2;
	topo_draw_outliers(&c, &text);
	assert_int_equal(text.len, 0);
	buf_fini(&text);
	topo_cluster_free(&c);
}

static void names_fold_as_slurm_writes_them(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *names, *folded;
	} rows[] = {
		{ "n1 n2 n3", "n[1-3]" },       { "n1 n3 n4 login", "n[1,3-4],login" }, { "n08 n09 n10 n11", "n[08-11]" },
		{ "n9 n10", "n[9-10]" },        { "n09 n010", "n[09,010]" },            { "a1 b2", "a1,b2" },
		{ "rack1-n7", "rack1-n7" },     { "x x", "x,x" },                       { "n1 n1", "n[1,1]" },
		{ "12 13", "[12-13]" },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct cluster_node nodes[8];
		struct cluster c = { .nodes = nodes };
		char copy[64], *save, *at = strcpy(copy, rows[i].names);
		int order[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
		struct buf text = BUF_INIT;
		for (char *w = strtok_r(at, " ", &save); w; w = strtok_r(NULL, " ", &save))
			snprintf(nodes[c.n_nodes++].name, TOPO_NAME, "%s", w);
		topo_names_fold(&c, topo_node_name, order, c.n_nodes, 100, &text);
		assert_string_equal(buf_str(&text), rows[i].folded);
		buf_fini(&text);
	}
}

/* Names with terminal escape sequences, indices out of range, and empty clusters. */
static void hostile_clusters_are_drawn_harmlessly(void **state)
{
	(void)state;
	struct cluster c;
	struct buf text = BUF_INIT;
	boxes(1, 3, &c);
	three_levels(&c, 2);
	strcpy(c.name, "\033[31mred");
	strcpy(c.nodes[0].name, "a\033]0;title\007b");
	strcpy(c.kinds[0].parts[1].name, "\033[2J");
	strcpy(c.kinds[0].nics[0].name, "\n\n\n");
	c.kinds[0].parts[0].nic = 1000;
	c.kinds[0].parts[3].numa = -7;
	c.nodes[1].leaf = 1000;
	c.switches[2].parent = 2;
	topo_draw_cluster(&c, false, &text);
	assert_null(memchr(buf_str(&text), '\033', text.len));
	assert_null(memchr(buf_str(&text), '\007', text.len));
	assert_null(strstr(buf_str(&text), "\n\n\n"));
	buf_clear(&text);
	topo_draw_cluster(&c, true, &text);
	assert_null(strstr(buf_str(&text), "\033[31m"));
	assert_non_null(strstr(buf_str(&text), "\033[1m"));
	topo_cluster_free(&c);
	struct cluster nothing = { .name = "" };
	buf_clear(&text);
	topo_draw_cluster(&nothing, false, &text);
	assert_string_equal(buf_str(&text), ": 0 nodes, 0 devices\n");
	buf_fini(&text);
}

/* Counts `what` in the text. Every '<' of a name is escaped, so all tags are the drawing's own, and
 * they are closed. */
static int count(const char *text, const char *what)
{
	int n = 0;
	for (const char *at = text; (at = strstr(at, what)); at++)
		n++;
	return n;
}

static void a_picture_holds_every_part(void **state)
{
	(void)state;
	struct cluster c;
	struct buf text = BUF_INIT;
	boxes(1, 1, &c);
	topo_draw_cluster_svg(&c, &text);
	const char *svg = buf_str(&text);
	assert_int_equal(count(svg, ">GPU"), 4);
	assert_int_equal(count(svg, ">mlx5_"), 2);
	assert_int_equal(count(svg, "2 lanes, 50.0 GB/s"), 2);
	assert_int_equal(count(svg, "NUMA 1, cores 32-63"), 1);
	assert_int_equal(count(svg, ">NVSwitch"), 0);
	assert_int_equal(count(svg, "2 NVLinks, direct: 50.0 GB/s, 2.00 µs"), 1);
	c.kinds[0].switched = true;
	buf_clear(&text);
	topo_draw_cluster_svg(&c, &text);
	svg = buf_str(&text);
	assert_int_equal(count(svg, ">NVSwitch"), 1);
	assert_int_equal(count(svg, ">GPU"), 4);
	buf_fini(&text);
	topo_cluster_free(&c);
}

/* Two pairs, each on its own switch; their devices alternate or not. */
static void every_fabric_of_switches_is_a_bar(void **state)
{
	(void)state;
	for (int apart = 1; apart <= 2; apart++) {
		struct cluster c;
		struct buf out = BUF_INIT;
		int bars = 0, ports = 0;
		boxes(1, 1, &c);
		for (int i = 0; i < 16; i++) {
			int x = i / 4, y = i % 4;
			bool one = apart == 2 ? x / 2 == y / 2 : x % 2 == y % 2;
			c.kinds[0].links[i] = (struct topo_link){ .kind = x == y ? LINK_SELF
									  : one  ? LINK_NVSWITCH
										 : LINK_SYS,
								  .lanes = one && x != y ? 18 : 0,
								  .bandwidth = one ? 450e9 : 16e9 };
		}
		topo_draw_cluster_svg(&c, &out);
		for (const char *at = buf_str(&out); (at = strstr(at, ">NVSwitch: ")); at++)
			bars++;
		for (const char *at = buf_str(&out); (at = strstr(at, "× 18<")); at++)
			ports++;
		assert_int_equal(bars, 2);
		assert_int_equal(ports, 4);
		buf_fini(&out);
		topo_cluster_free(&c);
	}
}

static void pictures_of_hostile_names_stay_xml(void **state)
{
	(void)state;
	struct cluster c;
	struct buf text = BUF_INIT;
	boxes(1, 40, &c);
	three_levels(&c, 3);
	strcpy(c.name, "<script>&\"'\033\001\377");
	strcpy(c.kinds[0].name, "</text></svg>");
	strcpy(c.kinds[0].device, "<a&b>");
	strcpy(c.kinds[0].parts[1].name, "<g>");
	strcpy(c.kinds[0].nics[1].name, "<g/>");
	strcpy(c.nodes[0].name, "<n>");
	strcpy(c.switches[0].name, "<s>");
	snprintf(c.kinds[0].unsaid, sizeof c.kinds[0].unsaid, "]]><!-- ");
	topo_draw_cluster_svg(&c, &text);
	const char *svg = buf_str(&text);
	assert_int_equal(count(svg, "<svg"), 1);
	assert_int_equal(count(svg, "</svg>"), 1);
	assert_int_equal(count(svg, "<text"), count(svg, "</text>"));
	assert_int_equal(count(svg, "<g>"), count(svg, "</g>"));
	assert_int_equal(count(svg, "<title>"), count(svg, "</title>"));
	static const char *const absent[] = { "<script", "<n>",  "<s>",  "<a&", "<!--",
					      "\033",    "\001", "\377", "nan", "inf" };
	for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
		if (strstr(svg, absent[i]))
			fail_msg("%s", absent[i]);
	buf_fini(&text);
	topo_cluster_free(&c);
}

/* Each leaf has a different number of nodes of the minority kind, so no leaf equals its
 * neighbour. */
static void a_list_of_many_outliers_is_cut(void **state)
{
	(void)state;
	struct cluster c;
	struct buf text = BUF_INIT;
	boxes(12, 4000, &c);
	three_levels(&c, 20);
	for (int i = 0; i < c.n_nodes; i++)
		c.nodes[i].kind = i % 20 < i / 20 % 11 ? i % 12 : 11;
	topo_draw_cluster(&c, false, &text);
	assert_int_equal(count(buf_str(&text), "… and so on"), 1);
	assert_non_null(strstr(buf_str(&text), "4 more kinds of node; --json lists all"));
	assert_true(count(buf_str(&text), "\n") < 400);
	buf_clear(&text);
	topo_draw_cluster_svg(&c, &text);
	assert_int_equal(count(buf_str(&text), "too many shapes to draw"), 1);
	assert_int_equal(count(buf_str(&text), "width=\"-"), 0);
	assert_int_equal(count(buf_str(&text), "6 more kinds of node"), 1);
	buf_fini(&text);
	topo_cluster_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_box_is_a_card_with_its_parts_and_links),
		cmocka_unit_test(a_hundred_thousand_devices_are_a_page),
		cmocka_unit_test(nvlink_domains_hold_their_nodes),
		cmocka_unit_test(outliers_are_named_with_the_difference),
		cmocka_unit_test(equal_halves_are_no_outliers),
		cmocka_unit_test(names_fold_as_slurm_writes_them),
		cmocka_unit_test(hostile_clusters_are_drawn_harmlessly),
		cmocka_unit_test(a_picture_holds_every_part),
		cmocka_unit_test(a_list_of_many_outliers_is_cut),
		cmocka_unit_test(every_fabric_of_switches_is_a_bar),
		cmocka_unit_test(pictures_of_hostile_names_stay_xml),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
