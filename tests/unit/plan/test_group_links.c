/* The links that groups use: contention computed by hand, and the closed form compared with the
 * exact form. */
#include "machines.h"

#include "plan/place/group_links.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { WORLD_MAX = 512 };

static void block(const struct cluster *c, int world, struct cluster_slot *slots)
{
	for (int r = 0, node = 0, device = 0; r < world; r++) {
		if (device == topo_cluster_kind(c, node)->devices) {
			node++;
			device = 0;
		}
		slots[r] = (struct cluster_slot){ node, device++ };
	}
}

static void group_links(const struct cluster *c, const struct layout *l,
			const struct cluster_slot *slots, struct group_links out[GROUP_KINDS])
{
	struct err e = ERR_INIT;
	if (place_group_links_of(c, l, slots, out, &e))
		fail_msg("%s", e.text);
}

static void spans_block(const struct cluster *c, const struct layout *l,
			struct group_links out[GROUP_KINDS])
{
	struct cluster_slot slots[WORLD_MAX];
	block(c, layout_world(l), slots);
	group_links(c, l, slots, out);
}

#define near_to(a, b) assert_true(fabs((a) / (b)-1) < 1e-9)

static const struct layout tp8_dp4 = { .tp = 8, .cp = 1, .dp = 4, .pp = 1, .ep = 1, .chunks = 1 };

static void a_group_inside_a_node_has_its_links(void **state)
{
	struct group_links s[GROUP_KINDS];
	(void)state;
	struct cluster c = machines_equal(MACHINE_H100, 4);
	spans_block(&c, &tp8_dp4, s);
	assert_int_equal(s[GROUP_TP].nodes, 1);
	near_to(s[GROUP_TP].inside.bandwidth, MACHINE_SWITCH);
	assert_true(s[GROUP_TP].across.bandwidth == 0);
	assert_int_equal(s[GROUP_DP].nodes, 4);
	assert_int_equal(s[GROUP_DP].per_node, 1);
	near_to(s[GROUP_DP].across.bandwidth, MACHINE_NET);
	assert_int_equal(s[GROUP_PP].ranks, 1);
	topo_cluster_free(&c);
}

static void devices_share_an_adapter(void **state)
{
	struct group_links s[GROUP_KINDS];
	(void)state;
	struct cluster c = machines_equal(MACHINE_DGX2, 2);
	struct layout l = { .tp = 16, .cp = 1, .dp = 2, .pp = 1, .ep = 1, .chunks = 1 };
	spans_block(&c, &l, s);
	near_to(s[GROUP_DP].across.bandwidth, 6e9); /* two devices share a NIC of 12 */
	/* The layout has one rank of each pair, so each rank has a NIC of its own. */
	l = (struct layout){ .tp = 8, .cp = 1, .dp = 2, .pp = 1, .ep = 1, .chunks = 1 };
	struct cluster_slot slots[16];
	for (int r = 0; r < 16; r++)
		slots[r] = (struct cluster_slot){ r / 8, r % 8 * 2 };
	group_links(&c, &l, slots, s);
	near_to(s[GROUP_DP].across.bandwidth, 12e9);
	topo_cluster_free(&c);
}

static void leaves_share_their_uplinks(void **state)
{
	struct group_links s[GROUP_KINDS];
	(void)state;
	struct cluster c = machines_equal(MACHINE_H100, 4);
	machines_tree(&c, 2, 2, false);
	spans_block(&c, &tp8_dp4, s);
	/* Eight rings cross once in each direction, over 2 × 8 × 50 / 2 GB/s. */
	near_to(s[GROUP_DP].across.bandwidth, MACHINE_NET);
	struct layout l = { .tp = 8, .cp = 1, .dp = 2, .pp = 2, .ep = 1, .chunks = 1 };
	struct cluster_slot slots[32];
	block(&c, 32, slots);
	group_links(&c, &l, slots, s);
	near_to(s[GROUP_DP].across.bandwidth, MACHINE_NET);     /* inside the leaves */
	near_to(s[GROUP_PP].across.bandwidth, MACHINE_NET / 2); /* 16 chains over them */
	/* Sixteen pairs share links that are made for eight. */
	for (int r = 0; r < 32; r++)
		slots[r].node = (int[]){ 0, 2, 1, 3 }[slots[r].node];
	group_links(&c, &l, slots, s);
	near_to(s[GROUP_DP].across.bandwidth, MACHINE_NET / 2);
	near_to(s[GROUP_PP].across.bandwidth, MACHINE_NET);
	topo_cluster_free(&c);
}

/* Two chains of switches meet in one top switch. They are as deep as Slurm's may be here. The last
 * uplink is the slow one. */
static void high_trees_bound_to_their_top(void **state)
{
	enum { HIGH = 60 };
	struct group_links s[GROUP_KINDS];
	struct layout l = { .tp = 8, .cp = 1, .dp = 2, .pp = 1, .ep = 1, .chunks = 1 };
	(void)state;
	struct cluster c = machines_equal(MACHINE_H100, 2);
	c.n_switches = 2 * HIGH + 1;
	c.switches = calloc((size_t)c.n_switches, sizeof *c.switches);
	assert_non_null(c.switches);
	for (int i = 0; i < 2 * HIGH; i++)
		c.switches[i] = (struct cluster_switch){ .parent = i + 2 < 2 * HIGH ? i + 2
										    : 2 * HIGH,
							 .up = i + 2 < 2 * HIGH ? 0 : 8e9 };
	c.switches[2 * HIGH].parent = -1;
	c.nodes[0].leaf = 0;
	c.nodes[1].leaf = 1;
	spans_block(&c, &l, s);
	near_to(s[GROUP_DP].across.bandwidth, 1e9); /* eight rings' flows over it */
	topo_cluster_free(&c);
}

static void other_rails_meet_above_the_leaf(void **state)
{
	struct group_links s[GROUP_KINDS];
	struct cluster_slot slots[16];
	struct layout l = { .tp = 8, .cp = 1, .dp = 2, .pp = 1, .ep = 1, .chunks = 1 };
	(void)state;
	struct cluster c = machines_equal(MACHINE_H100, 2);
	machines_tree(&c, 2, 4, true);
	spans_block(&c, &l, s);
	near_to(s[GROUP_DP].across.bandwidth, MACHINE_NET);
	block(&c, 16, slots);
	for (int r = 8; r < 16; r++)
		slots[r].device = (slots[r].device + 1) % 8;
	group_links(&c, &l, slots, s);
	/* 16 flows share the leaf's 200 GB/s. */
	near_to(s[GROUP_DP].across.bandwidth, 200e9 / 16);
	c.rails = false;
	group_links(&c, &l, slots, s);
	near_to(s[GROUP_DP].across.bandwidth, MACHINE_NET);
	topo_cluster_free(&c);
}

static void nodes_of_a_fabric_are_one(void **state)
{
	struct group_links s[GROUP_KINDS];
	(void)state;
	struct cluster c = machines_equal(MACHINE_TRAY, 36);
	struct layout l = { .tp = 8, .cp = 1, .dp = 9, .pp = 2, .ep = 1, .chunks = 1 };
	spans_block(&c, &l, s);
	assert_int_equal(s[GROUP_TP].nodes, 1);
	assert_int_equal(s[GROUP_DP].nodes, 1);
	assert_int_equal(s[GROUP_PP].nodes, 2);
	near_to(s[GROUP_DP].inside.bandwidth, 900e9);
	topo_cluster_free(&c);
}

static void paths_through_the_cpu_are_shared(void **state)
{
	struct group_links s[GROUP_KINDS];
	(void)state;
	struct cluster c = machines_equal(MACHINE_PCIE4, 1);
	struct layout l = { .tp = 4, .cp = 1, .dp = 1, .pp = 1, .ep = 1, .chunks = 1 };
	spans_block(&c, &l, s);
	near_to(s[GROUP_TP].inside.bandwidth, MACHINE_SOCKETS); /* a ring crosses once each way */
	l = (struct layout){ .tp = 2, .cp = 1, .dp = 2, .pp = 1, .ep = 1, .chunks = 1 };
	spans_block(&c, &l, s);
	near_to(s[GROUP_TP].inside.bandwidth, MACHINE_PCIE);
	near_to(s[GROUP_DP].inside.bandwidth, MACHINE_SOCKETS / 2); /* two pairs cross it */
	l.dp = 4, l.tp = 1, l.ep = 4;
	spans_block(&c, &l, s);
	/* a quarter from each of two devices to each of two */
	near_to(s[GROUP_EP].inside.bandwidth, MACHINE_SOCKETS * 3 / 4);
	topo_cluster_free(&c);
}

static void direct_links_of_an_all_to_all_run_side_by_side(void **state)
{
	struct group_links s[GROUP_KINDS];
	struct layout l = { .tp = 1, .cp = 1, .dp = 4, .pp = 1, .ep = 4, .chunks = 1 };
	(void)state;
	struct cluster c = machines_equal(MACHINE_DGX1, 1);
	spans_block(&c, &l, s);
	/* the single links are the bound */
	near_to(s[GROUP_EP].inside.bandwidth, 3 * MACHINE_NVLINK);
	near_to(s[GROUP_DP].inside.bandwidth, MACHINE_NVLINK);
	l.ep = 1;
	const struct cluster_slot ring[] = { { 0, 0 }, { 0, 3 }, { 0, 2 }, { 0, 1 } };
	group_links(&c, &l, ring, s);
	/* the single link between 0 and 1 closes the ring */
	near_to(s[GROUP_DP].inside.bandwidth, MACHINE_NVLINK);
	topo_cluster_free(&c);
}

static void rings_visit_each_node_once_whatever_the_order(void **state)
{
	struct group_links s[GROUP_KINDS];
	struct layout l = { .tp = 1, .cp = 1, .dp = 8, .pp = 1, .ep = 1, .chunks = 1 };
	struct cluster_slot slots[8];
	(void)state;
	struct cluster c = machines_equal(MACHINE_H100, 2);
	for (int r = 0; r < 8; r++)
		slots[r] = (struct cluster_slot){ r % 2, r / 2 };
	group_links(&c, &l, slots, s);
	assert_int_equal(s[GROUP_DP].nodes, 2);
	assert_int_equal(s[GROUP_DP].per_node, 4);
	near_to(s[GROUP_DP].across.bandwidth, MACHINE_NET);
	l.dp = 1, l.cp = 8; /* a ring of hops keeps its order */
	group_links(&c, &l, slots, s);
	assert_int_equal(s[GROUP_CP].per_node, 1);
	topo_cluster_free(&c);
}

static void same_link(const char *what, const struct layout *l, const struct link_speed *a,
		      const struct link_speed *b)
{
	bool same = a->bandwidth == b->bandwidth || fabs(a->bandwidth / b->bandwidth - 1) < 1e-9;
	if (!same || a->latency != b->latency)
		fail_msg("%s, tp %d cp %d dp %d (ep %d) pp %d: %g GB/s, %g µs; in constant time %g "
			 "GB/s, %g µs",
			 what, l->tp, l->cp, l->dp, l->ep, l->pp, a->bandwidth / 1e9,
			 a->latency * 1e6, b->bandwidth / 1e9, b->latency * 1e6);
}

static void compare(const struct cluster *c, const struct regular_cluster *y,
		    const struct layout *l)
{
	struct group_links exact[GROUP_KINDS], closed[GROUP_KINDS];
	struct rank_box f = place_block_box(y, l);
	spans_block(c, l, exact);
	place_group_links_regular(y, l, &f, closed);
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		assert_int_equal(exact[kind].ranks, closed[kind].ranks);
		if (exact[kind].ranks < 2 ||
		    (kind == GROUP_EDP && y->table && l->cp > 1 && l->ep > 1))
			continue;
		if (exact[kind].nodes != closed[kind].nodes ||
		    exact[kind].per_node != closed[kind].per_node)
			fail_msg("%s, tp %d cp %d dp %d (ep %d) pp %d: %d nodes of %d; in constant "
				 "time %d of %d",
				 place_group_word(kind), l->tp, l->cp, l->dp, l->ep, l->pp,
				 exact[kind].nodes, exact[kind].per_node, closed[kind].nodes,
				 closed[kind].per_node);
		same_link(place_group_word(kind), l, &exact[kind].inside, &closed[kind].inside);
		same_link(place_group_word(kind), l, &exact[kind].across, &closed[kind].across);
	}
}

/* Compares all layouts of powers of two, and all ep. */
static int compare_all(const struct cluster *c)
{
	struct regular_cluster y;
	struct err e = ERR_INIT;
	int world = topo_cluster_devices(c), n = 0;
	if (place_regular_cluster_of(c, &y, &e))
		fail_msg("%s", e.text);
	for (int tp = 1; tp <= world; tp *= 2)
		for (int cp = 1; tp * cp <= world; cp *= 2)
			for (int dp = 1; tp * cp * dp <= world; dp *= 2)
				for (int ep = 1; ep <= dp; ep *= 2, n++)
					compare(c, &y,
						&(struct layout){ .tp = tp,
								  .cp = cp,
								  .dp = dp,
								  .pp = world / (tp * cp * dp),
								  .ep = ep,
								  .chunks = 2 });
	return n;
}

static void the_closed_form_agrees_if_nodes_are_equal(void **state)
{
	static const struct {
		enum machine kind;
		int nodes, leaf;
		double over;
	} rows[] = {
		{ MACHINE_SWITCHED, 1, 0, 0 }, { MACHINE_SWITCHED, 8, 0, 0 },
		{ MACHINE_H100, 16, 4, 2 },    { MACHINE_H100, 8, 2, 8 },
		{ MACHINE_DGX2, 4, 2, 1 },     { MACHINE_PCIE4, 1, 0, 0 },
		{ MACHINE_DGX1, 1, 0, 0 },     { MACHINE_DGX1_DEAD, 1, 0, 0 },
	};
	int n = 0;
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct cluster c = machines_equal(rows[i].kind, rows[i].nodes);
		if (rows[i].leaf)
			machines_tree(&c, rows[i].leaf, rows[i].over, false);
		n += compare_all(&c);
		topo_cluster_free(&c);
	}
	assert_true(n > 500);
}

/* --- Seconds --- */

/* A piece that goes round the ring passes each link. With two nodes of eight, two links are between
 * nodes and the others inside. */
static void a_rings_latency_is_its_links(void **state)
{
	struct group_links s = { .ranks = 16,
				 .nodes = 2,
				 .per_node = 8,
				 .inside = { 200e9, 1e-6 },
				 .across = { 50e9, 9e-6 } };
	(void)state;
	near_to(place_seconds_gather(&s, 0), 15 * (2 * 9e-6 + 14 * 1e-6) / 16);
	/* eight NICs side by side are faster than the port */
	near_to(place_seconds_gather(&s, 16e9), 15e9 / 200e9 + place_seconds_gather(&s, 0));
}

/* With thousands of nodes, small sums go up a tree and down again. Large sums, and gathers, go
 * round the ring. */
static void small_sums_of_many_nodes_go_by_a_tree(void **state)
{
	struct group_links s = {
		.ranks = 12500, .nodes = 12500, .per_node = 1, .across = { 40e9, 5e-6 }
	};
	(void)state;
	near_to(place_seconds_all_reduce(&s, 4e6), 2 * (4e6 / (0.92 * 40e9) + 14 * 5e-6));
	near_to(place_seconds_all_reduce(&s, 1e12), 2 * place_seconds_gather(&s, 1e12));
	near_to(place_seconds_gather(&s, 4e6), 12499 * (4e6 / 12500 / 40e9 + 5e-6));
	s = (struct group_links){
		.ranks = 8, .nodes = 1, .per_node = 8, .inside = { 200e9, 3e-6 }
	};
	/* inside a node, the ring is always used */
	near_to(place_seconds_all_reduce(&s, 4e6), 2 * place_seconds_gather(&s, 4e6));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_inside_a_node_has_its_links),
		cmocka_unit_test(devices_share_an_adapter),
		cmocka_unit_test(leaves_share_their_uplinks),
		cmocka_unit_test(high_trees_bound_to_their_top),
		cmocka_unit_test(other_rails_meet_above_the_leaf),
		cmocka_unit_test(nodes_of_a_fabric_are_one),
		cmocka_unit_test(paths_through_the_cpu_are_shared),
		cmocka_unit_test(direct_links_of_an_all_to_all_run_side_by_side),
		cmocka_unit_test(rings_visit_each_node_once_whatever_the_order),
		cmocka_unit_test(the_closed_form_agrees_if_nodes_are_equal),
		cmocka_unit_test(a_rings_latency_is_its_links),
		cmocka_unit_test(small_sums_of_many_nodes_go_by_a_tree),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
