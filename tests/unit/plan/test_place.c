/* Tests the placement of ranks on known machines. */
#include "placed.h"

#include "plan/place/fold.h"
#include "plan/place/device_order.h"
#include "plan/place/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void must_be(const struct placed_ranks *s, const int (*slots)[2], int world)
{
	for (int r = 0; r < world; r++)
		if (s->slots[r].node != slots[r][0] || s->slots[r].device != slots[r][1])
			fail_msg("rank %d is on node %d, device %d, not on %d, %d", r,
				 s->slots[r].node, s->slots[r].device, slots[r][0], slots[r][1]);
}

static int lanes(const struct cluster *c, struct cluster_slot a, struct cluster_slot b)
{
	return topo_cluster_link(topo_cluster_kind(c, a.node), a.device, b.device).lanes;
}

/* --- Known machines --- */

static void eight_on_a_dgx1_go_round_the_ring_of_double_links(void **state)
{
	struct placed_ranks s;
	(void)state;
	struct cluster c = machines_equal(MACHINE_DGX1, 1);
	static const int ring[8][2] = { { 0, 0 }, { 0, 3 }, { 0, 2 }, { 0, 1 },
					{ 0, 5 }, { 0, 6 }, { 0, 7 }, { 0, 4 } };
	place_by_traffic(&c, placed_layout(8, 1, 1, 1, 1), &s);
	must_be(&s, ring, 8);
	for (int r = 0; r < 8; r++)
		assert_int_equal(lanes(&c, s.slots[r], s.slots[(r + 1) % 8]), 2);
	assert_true(s.p.block.total > 5 * s.p.cost.total); /* 3 and 4 have no direct link */
	place_placement_free(&s.p);
	place_by_traffic(&c, placed_layout(1, 1, 8, 1, 1), &s);
	must_be(&s, ring, 8);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void four_on_a_dgx1_are_joined_by_nvlink_and_their_copies_by_two(void **state)
{
	struct placed_ranks s;
	(void)state;
	struct cluster c = machines_equal(MACHINE_DGX1, 1);
	place_by_traffic(&c, placed_layout(4, 1, 2, 1, 1), &s);
	for (int r = 0; r < 8; r++)
		assert_true(lanes(&c, s.slots[r], s.slots[r / 4 * 4 + (r + 1) % 4]) >= 1);
	for (int r = 0; r < 4; r++)
		assert_int_equal(lanes(&c, s.slots[r], s.slots[r + 4]), 2);
	assert_int_equal(s.p.links[GROUP_TP].inside, LINK_NVLINK);
	place_placement_free(&s.p);
	/* The pairs get the double links. */
	place_by_traffic(&c, placed_layout(2, 1, 4, 1, 1), &s);
	for (int r = 0; r < 8; r += 2)
		assert_int_equal(lanes(&c, s.slots[r], s.slots[r + 1]), 2);
	place_placement_free(&s.p);
	/* The same holds for a node that is half used. */
	place_by_traffic(&c, placed_layout(2, 1, 2, 1, 1), &s);
	for (int r = 0; r < 4; r += 2)
		assert_int_equal(lanes(&c, s.slots[r], s.slots[r + 1]), 2);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void several_dgx1_are_each_mapped_like_one(void **state)
{
	struct placed_ranks s;
	(void)state;
	struct cluster c = machines_equal(MACHINE_DGX1, 4);
	place_by_traffic(&c, placed_layout(8, 1, 4, 1, 1), &s);
	for (int r = 0; r < 32; r++) {
		assert_int_equal(s.slots[r].node, r / 8);
		assert_int_equal(lanes(&c, s.slots[r], s.slots[r / 8 * 8 + (r + 1) % 8]), 2);
		assert_int_equal(s.slots[r].device, s.slots[r % 8].device);
	}
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void a_dead_link_is_avoided(void **state)
{
	struct placed_ranks s;
	(void)state;
	struct cluster c = machines_equal(MACHINE_DGX1_DEAD, 1);
	place_by_traffic(&c, placed_layout(4, 1, 2, 1, 1), &s);
	for (int r = 0; r < 8; r++)
		assert_true(lanes(&c, s.slots[r], s.slots[r / 4 * 4 + (r + 1) % 4]) >= 1);
	/* the first ring of block order closes over it */
	assert_true(s.p.block.total > 2 * s.p.cost.total);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void what_groups_run_over_is_what_their_rings_take(void **state)
{
	struct placed_ranks s;
	struct traffic t = placed_traffic();
	struct err e = ERR_INIT;
	struct layout l = placed_layout(4, 1, 2, 1, 1);
	(void)state;
	struct cluster c = machines_equal(MACHINE_DGX1_DEAD, 1);
	assert_int_equal(place_ranks(&c, &l, &t, true, s.slots, &s.p, &e), 0);
	/* the ring of 0 to 3 closes over the dead link */
	assert_int_equal(s.p.links[GROUP_TP].inside, LINK_PHB);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
	/* Two ranks per node: each sends to the rank with the same device on the next node, on its
	 * own rail. */
	c = machines_equal(MACHINE_H100, 2);
	machines_tree(&c, 2, 1, true);
	l = placed_layout(4, 1, 4, 1, 1);
	assert_int_equal(place_ranks(&c, &l, &t, true, s.slots, &s.p, &e), 0);
	assert_int_equal(s.p.links[GROUP_DP].span.per_node, 2);
	assert_true(s.p.links[GROUP_DP].rails && s.p.links[GROUP_DP].hops == 1);
	assert_int_equal(s.p.links[GROUP_DP].inside, LINK_NVSWITCH);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void a_node_with_a_dead_link_stays_free_where_one_may(void **state)
{
	struct placed_ranks s;
	(void)state;
	struct cluster c = machines((enum machine[]){ MACHINE_DGX1_DEAD, MACHINE_DGX1 },
				    (int[]){ 1, 2 }, 2);
	place_by_traffic(&c, placed_layout(8, 1, 2, 1, 1), &s);
	assert_int_equal(s.p.n_spares, 1);
	assert_int_equal(s.p.spares[0], 0);
	place_placement_free(&s.p);
	/* If the node is needed, its ranks go round the remaining devices. */
	place_by_traffic(&c, placed_layout(4, 1, 6, 1, 1), &s);
	for (int r = 0; r < 24; r++)
		assert_true(lanes(&c, s.slots[r], s.slots[r / 4 * 4 + (r + 1) % 4]) >= 1);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void a_dgx2_needs_no_order(void **state)
{
	struct placed_ranks s;
	(void)state;
	struct cluster c = machines_equal(MACHINE_DGX2, 2);
	place_by_traffic(&c, placed_layout(16, 1, 2, 1, 1), &s);
	assert_true(s.p.is_block);
	assert_int_equal(s.p.links[GROUP_TP].inside, LINK_NVSWITCH);
	assert_int_equal(s.p.links[GROUP_DP].hops, 1);
	place_placement_free(&s.p);
	place_by_traffic(&c, placed_layout(8, 1, 4, 1, 1), &s);
	assert_true(s.p.is_block);
	place_placement_free(&s.p);
	/* It uses half of the node's devices: one of the two on each NIC. */
	place_by_traffic(&c, placed_layout(8, 1, 2, 1, 1), &s);
	if (s.slots[0].node != s.slots[8].node)
		assert_true(s.p.links[GROUP_DP].span.across.bandwidth == 12e9);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static int leaf_of(const struct cluster *c, const struct placed_ranks *s, int rank)
{
	return c->nodes[s->slots[rank].node].leaf;
}

static void sixteen_dgx_h100_on_a_narrow_spine_keep_what_is_heavy_below_a_leaf(void **state)
{
	struct placed_ranks s;
	(void)state;
	struct cluster c = machines_equal(MACHINE_H100, 16);
	machines_tree(&c, 4, 2, true);
	/* The experts' all-to-all spans four nodes: each group is below one leaf, and the remaining
	 * traffic leaves it. */
	struct layout l = placed_layout(8, 1, 16, 4, 1);
	place_by_traffic(&c, l, &s);
	for (int r = 0; r < 128; r++) {
		assert_int_equal(s.slots[r].device, r % 8); /* tp inside a node, on its own rail */
		assert_int_equal(s.slots[r].node, s.slots[r / 8 * 8].node);
		/* ep 4 × tp 8 */
		assert_int_equal(leaf_of(&c, &s, r), leaf_of(&c, &s, r / 32 * 32));
	}
	assert_int_equal(s.p.links[GROUP_TP].hops, 0);
	assert_int_equal(s.p.links[GROUP_EP].hops, 1);
	assert_int_equal(s.p.links[GROUP_DP].hops, 2);
	assert_true(s.p.links[GROUP_EP].rails && s.p.links[GROUP_DP].rails);
	place_placement_free(&s.p);
	/* Block order would put the copies of the stages, 16 ranks apart, two leaves away. The
	 * context groups' rings move more data, so they are placed closer than the replicas. */
	place_by_traffic(&c, placed_layout(4, 4, 2, 1, 4), &s);
	assert_true(s.p.cost.total < 0.9 * s.p.worst.total);
	for (int r = 0; r < 128; r++)
		assert_int_equal(s.slots[r].node, s.slots[r / 4 * 4].node);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void mixed_nodes_give_whole_nodes_to_whole_groups(void **state)
{
	struct placed_ranks s;
	(void)state;
	struct cluster c = machines((enum machine[]){ MACHINE_HALF, MACHINE_H100 }, (int[]){ 3, 2 },
				    2);
	/* Two groups of eight get the two large nodes, although the small nodes come first. */
	place_by_traffic(&c, placed_layout(8, 1, 2, 1, 1), &s);
	for (int r = 0; r < 16; r++)
		assert_int_equal(s.slots[r].node, 3 + r / 8);
	assert_int_equal(s.p.n_spares, 3);
	assert_int_equal(s.p.links[GROUP_TP].hops, 0);
	assert_true(s.p.block.total > 1.5 * s.p.cost.total);
	place_placement_free(&s.p);
	/* Seven groups of four fill all nodes. */
	place_by_traffic(&c, placed_layout(4, 1, 7, 1, 1), &s);
	must_be_a_map(&c, s.slots, 28);
	assert_int_equal(s.p.n_spares, 0);
	assert_int_equal(s.p.links[GROUP_TP].hops, 0);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void spare_nodes_are_the_outliers(void **state)
{
	struct placed_ranks s;
	(void)state;
	/* Leaves of 4, 4 and 2 nodes; the job needs eight. */
	struct cluster c = machines_equal(MACHINE_H100, 10);
	machines_tree(&c, 4, 4, false);
	for (int i = 0; i < 10; i++) /* the short leaf comes first */
		c.nodes[i].leaf = i < 2 ? 2 : (i - 2) / 4;
	place_by_traffic(&c, placed_layout(8, 1, 8, 4, 1), &s);
	assert_int_equal(s.p.n_spares, 2);
	assert_int_equal(s.p.spares[0], 0);
	assert_int_equal(s.p.spares[1], 1);
	assert_int_equal(s.p.links[GROUP_EP].hops, 1);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void the_last_boxes_go_to_the_smallest_leaf_with_room(void **state)
{
	struct placed_ranks s;
	(void)state;
	/* Leaves of 4, 4 and 2 nodes. The job needs six: all of the first leaf and of the last. */
	struct cluster c = machines_equal(MACHINE_H100, 10);
	machines_tree(&c, 4, 1, false);
	place_by_traffic(&c, placed_layout(8, 1, 6, 1, 1), &s);
	assert_int_equal(s.p.n_spares, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(s.p.spares[i], 4 + i);
	assert_true(s.p.cost.total == s.p.block.total);
	place_placement_free(&s.p);
	/* A job of two nodes gets the small leaf. */
	place_by_traffic(&c, placed_layout(8, 1, 2, 1, 1), &s);
	assert_int_equal(s.slots[0].node, 8);
	assert_int_equal(s.slots[15].node, 9);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void a_fabric_of_trays_holds_what_crosses_trays(void **state)
{
	struct placed_ranks s;
	(void)state;
	struct cluster c = machines_equal(MACHINE_TRAY, 36); /* two fabrics of 72 */
	place_by_traffic(&c, placed_layout(8, 1, 18, 9, 1), &s);
	must_be_a_map(&c, s.slots, 144);
	for (int r = 0; r < 144; r++)
		assert_int_equal(c.nodes[s.slots[r].node].domain,
				 c.nodes[s.slots[r / 72 * 72].node].domain);
	assert_true(s.p.links[GROUP_TP].fabric && !s.p.links[GROUP_TP].hops);
	assert_int_equal(s.p.links[GROUP_EP].hops, 0);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static struct cluster preset(const char *spec)
{
	struct cluster c;
	struct err e = ERR_INIT;
	if (topo_cluster_open(spec, 0, &c, &e))
		fail_msg("%s", e.text);
	return c;
}

static void presets_have_the_links_of_the_machines(void **state)
{
	struct placed_ranks s;
	(void)state;
	struct cluster c = preset("dgx-1");
	place_by_traffic(&c, placed_layout(8, 1, 1, 1, 1), &s);
	for (int r = 0; r < 8; r++)
		assert_int_equal(lanes(&c, s.slots[r], s.slots[(r + 1) % 8]), 2);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
	c = preset("dgx-2:2");
	place_by_traffic(&c, placed_layout(16, 1, 2, 1, 1), &s);
	assert_true(s.p.is_block && s.p.links[GROUP_TP].hops == 0 && s.p.links[GROUP_DP].hops == 1);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
	c = preset("dgx-h100:16");
	place_by_traffic(&c, placed_layout(8, 1, 4, 1, 4), &s);
	assert_true(s.p.is_block && s.p.links[GROUP_TP].hops == 0 && s.p.links[GROUP_DP].rails &&
		    s.p.links[GROUP_PP].rails);
	assert_true(s.p.worst.total > 2 * s.p.cost.total);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
	c = preset("gb200-nvl72:36");
	place_by_traffic(&c, placed_layout(8, 1, 9, 1, 2), &s);
	assert_int_equal(s.p.links[GROUP_DP].hops, 0);
	assert_true(s.p.links[GROUP_DP].fabric && s.p.links[GROUP_PP].hops > 0);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
	c = preset("pcie-a100");
	place_by_traffic(&c, placed_layout(2, 1, 2, 1, 1), &s);
	for (int r = 0; r < 4; r += 2)
		/* below one socket */
		assert_int_equal(s.slots[r].device / 2, s.slots[r + 1].device / 2);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

static void boxes_get_smaller_where_large_ones_have_no_room(void **state)
{
	struct traffic t = placed_traffic();
	struct layout l = placed_layout(8, 1, 32, 1, 1);
	struct regular_cluster *y = malloc(sizeof *y);
	struct fold folds[8];
	struct device_order *h;
	struct err e = ERR_INIT;
	bool fits[73] = { false };
	(void)state;
	/* three fabrics of 72 devices, one of 48 */
	struct cluster c = machines_equal(MACHINE_TRAY, 66);
	assert_int_equal(place_regular_cluster_of(&c, y, &e), 0);
	assert_int_equal(place_device_order_open(&c, &h, &e), 0);
	for (int box = 1; box <= 72; box++)
		fits[box] = place_device_order_fits(h, box, 256);
	assert_true(fits[8] && fits[4] && fits[24]);
	assert_false(fits[16] || fits[32] || fits[64] || fits[72]);
	int n = place_fold_best(y, &l, &t, 72, fits, 8, folds, 0);
	assert_true(n > 0);
	for (int i = 0; i < n; i++)
		assert_int_equal(place_box_ranks(&folds[i].node), 8);
	place_device_order_close(h);
	free(y);
	topo_cluster_free(&c);
}

/* The links inside the nodes are unknown, and the network's are known: groups stay inside nodes all the
 * same. */
static void an_unknown_link_inside_a_node_does_not_lose_to_the_network(void **state)
{
	struct placed_ranks s;
	(void)state;
	for (int table = 0; table < 2; table++) {
		struct cluster c = machines_equal(MACHINE_DGX1, 4);
		for (int i = 0; i < c.n_kinds; i++) {
			struct node_kind *k = &c.kinds[i];
			k->link_bandwidth = k->link_latency = 0;
			k->net_bandwidth = 50e9;
			k->net_latency = 1e-6;
			for (int n = 0; n < k->n_nics; n++)
				k->nics[n].bandwidth = 200e9;
			for (int l = 0; l < k->devices * k->devices; l++)
				if (k->links[l].kind != LINK_SELF)
					k->links[l] = (struct topo_link){
						.kind = table ? LINK_UNKNOWN : LINK_PHB
					};
		}
		place_by_traffic(&c, placed_layout(4, 1, 8, 1, 1), &s);
		for (int r = 0; r < 32; r++)
			assert_int_equal(s.slots[r].node, s.slots[r / 4 * 4].node);
		assert_int_equal(s.p.links[GROUP_TP].span.nodes, 1);
		assert_true(s.p.links[GROUP_TP].span.inside.bandwidth >= 50e9 / 4);
		place_placement_free(&s.p);
		topo_cluster_free(&c);
	}
}

static void named_devices_keep_their_order(void **state)
{
	struct placed_ranks s;
	struct traffic t = placed_traffic();
	struct err e = ERR_INIT;
	struct layout l = placed_layout(8, 1, 1, 1, 1);
	(void)state;
	struct cluster c = machines_equal(MACHINE_DGX1, 1);
	assert_int_equal(place_ranks(&c, &l, &t, true, s.slots, &s.p, &e), 0);
	for (int r = 0; r < 8; r++)
		assert_int_equal(s.slots[r].device, r);
	assert_true(s.p.fixed && s.p.is_block && s.p.cost.total == s.p.block.total);
	place_placement_free(&s.p);
	/* Groups in whole nodes may cost more than block order and than every other candidate. */
	l = placed_layout(3, 1, 4, 1, 1);
	t.ops[GROUP_TP][0].times = 0;
	topo_cluster_free(&c);
	c = machines_equal(MACHINE_HALF, 4);
	machines_tree(&c, 3, 64, false); /* the fourth node is beyond a slow uplink */
	assert_int_equal(place_ranks(&c, &l, &t, true, s.slots, &s.p, &e), 0);
	assert_true(s.p.cost.total > s.p.block.total && s.p.worst.total == s.p.cost.total);
	assert_int_equal(s.p.idle, 4);
	place_placement_free(&s.p);
	topo_cluster_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(eight_on_a_dgx1_go_round_the_ring_of_double_links),
		cmocka_unit_test(four_on_a_dgx1_are_joined_by_nvlink_and_their_copies_by_two),
		cmocka_unit_test(several_dgx1_are_each_mapped_like_one),
		cmocka_unit_test(a_dead_link_is_avoided),
		cmocka_unit_test(what_groups_run_over_is_what_their_rings_take),
		cmocka_unit_test(a_node_with_a_dead_link_stays_free_where_one_may),
		cmocka_unit_test(a_dgx2_needs_no_order),
		cmocka_unit_test(
			sixteen_dgx_h100_on_a_narrow_spine_keep_what_is_heavy_below_a_leaf),
		cmocka_unit_test(mixed_nodes_give_whole_nodes_to_whole_groups),
		cmocka_unit_test(spare_nodes_are_the_outliers),
		cmocka_unit_test(the_last_boxes_go_to_the_smallest_leaf_with_room),
		cmocka_unit_test(a_fabric_of_trays_holds_what_crosses_trays),
		cmocka_unit_test(presets_have_the_links_of_the_machines),
		cmocka_unit_test(an_unknown_link_inside_a_node_does_not_lose_to_the_network),
		cmocka_unit_test(boxes_get_smaller_where_large_ones_have_no_room),
		cmocka_unit_test(named_devices_keep_their_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
