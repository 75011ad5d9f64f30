/* Where ranks are put: known machines by heart, small ones against every map there is, all against Slurm's order. */
#include "machines.h"

#include "base/philox.h"
#include "plan/place/fold.h"
#include "plan/place/homes.h"
#include "plan/place/place.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORLD_MOST = 512 };

static struct layout grid(int tp, int cp, int dp, int ep, int pp)
{
	return (struct layout){ .tp = tp, .cp = cp, .dp = dp, .ep = ep, .pp = pp, .chunks = 1 };
}

/* A training step's usual proportions: tp moves most, then ep and cp, dp once, pp least. */
static struct traffic usual(void)
{
	struct traffic t = { 0 };
	t.ops[GROUP_TP][0] = (struct traffic_op){ 64e6, 200 };
	t.ops[GROUP_CP][0] = (struct traffic_op){ 16e6, 200 };
	t.ops[GROUP_EP][0] = (struct traffic_op){ 32e6, 200 };
	t.ops[GROUP_DP][0] = (struct traffic_op){ 1e9, 1 };
	t.ops[GROUP_EDP][0] = (struct traffic_op){ 1e9, 1 };
	t.ops[GROUP_PP][0] = (struct traffic_op){ 8e6, 32 };
	t.ops[GROUP_TIE][0] = (struct traffic_op){ 1e8, 1 };
	t.hidden[GROUP_DP] = 0.5;
	return t;
}

struct seating {
	struct cluster_slot slots[WORLD_MOST];
	struct placement p;
};

static void seat(const struct cluster *c, struct layout l, struct seating *s)
{
	struct traffic t = usual();
	struct err e = ERR_INIT;
	assert_true(layout_world(&l) <= WORLD_MOST);
	if (place_ranks(c, &l, &t, false, s->slots, &s->p, &e))
		fail_msg("%s", e.text);
}

/* Every rank has a device, no device two ranks. */
static void must_be_a_map(const struct cluster *c, const struct cluster_slot *slots, int world)
{
	bool *used = calloc((size_t)cluster_devices(c) * (size_t)c->n_nodes + 1, sizeof *used);
	for (int r = 0; r < world; r++) {
		assert_in_range(slots[r].node, 0, c->n_nodes - 1);
		assert_in_range(slots[r].device, 0, cluster_kind(c, slots[r].node)->devices - 1);
		bool *u = &used[slots[r].node * cluster_devices(c) + slots[r].device];
		assert_false(*u);
		*u = true;
	}
	free(used);
}

static void must_be(const struct seating *s, const int (*slots)[2], int world)
{
	for (int r = 0; r < world; r++)
		if (s->slots[r].node != slots[r][0] || s->slots[r].device != slots[r][1])
			fail_msg("rank %d is on node %d, device %d, not on %d, %d", r, s->slots[r].node, s->slots[r].device, slots[r][0], slots[r][1]);
}

static int lanes(const struct cluster *c, struct cluster_slot a, struct cluster_slot b)
{
	return cluster_link(cluster_kind(c, a.node), a.device, b.device).lanes;
}

/* --- Known machines --------------------------------------------------------------------------- */

static void eight_on_a_dgx1_go_round_the_ring_of_double_links(void **state)
{
	struct seating s;
	(void)state;
	struct cluster c = machines_alike(MACHINE_DGX1, 1);
	static const int ring[8][2] = { { 0, 0 }, { 0, 3 }, { 0, 2 }, { 0, 1 }, { 0, 5 }, { 0, 6 }, { 0, 7 }, { 0, 4 } };
	seat(&c, grid(8, 1, 1, 1, 1), &s);
	must_be(&s, ring, 8);
	for (int r = 0; r < 8; r++)
		assert_int_equal(lanes(&c, s.slots[r], s.slots[(r + 1) % 8]), 2);
	assert_true(s.p.block.total > 5 * s.p.cost.total); /* 3 to 4 is no link at all */
	placement_free(&s.p);
	seat(&c, grid(1, 1, 8, 1, 1), &s);
	must_be(&s, ring, 8);
	placement_free(&s.p);
	cluster_free(&c);
}

static void four_on_a_dgx1_are_joined_by_nvlink_and_their_copies_by_two(void **state)
{
	struct seating s;
	(void)state;
	struct cluster c = machines_alike(MACHINE_DGX1, 1);
	seat(&c, grid(4, 1, 2, 1, 1), &s);
	for (int r = 0; r < 8; r++)
		assert_true(lanes(&c, s.slots[r], s.slots[r / 4 * 4 + (r + 1) % 4]) >= 1);
	for (int r = 0; r < 4; r++)
		assert_int_equal(lanes(&c, s.slots[r], s.slots[r + 4]), 2);
	assert_int_equal(s.p.links[GROUP_TP].inside, LINK_NVLINK);
	placement_free(&s.p);
	/* Pairs have the double links. */
	seat(&c, grid(2, 1, 4, 1, 1), &s);
	for (int r = 0; r < 8; r += 2)
		assert_int_equal(lanes(&c, s.slots[r], s.slots[r + 1]), 2);
	placement_free(&s.p);
	/* Of a node that is half used, too. */
	seat(&c, grid(2, 1, 2, 1, 1), &s);
	for (int r = 0; r < 4; r += 2)
		assert_int_equal(lanes(&c, s.slots[r], s.slots[r + 1]), 2);
	placement_free(&s.p);
	cluster_free(&c);
}

static void several_dgx1_are_each_laid_as_one_is(void **state)
{
	struct seating s;
	(void)state;
	struct cluster c = machines_alike(MACHINE_DGX1, 4);
	seat(&c, grid(8, 1, 4, 1, 1), &s);
	for (int r = 0; r < 32; r++) {
		assert_int_equal(s.slots[r].node, r / 8);
		assert_int_equal(lanes(&c, s.slots[r], s.slots[r / 8 * 8 + (r + 1) % 8]), 2);
		assert_int_equal(s.slots[r].device, s.slots[r % 8].device);
	}
	placement_free(&s.p);
	cluster_free(&c);
}

static void a_dead_link_is_gone_round(void **state)
{
	struct seating s;
	(void)state;
	struct cluster c = machines_alike(MACHINE_DGX1_DEAD, 1);
	seat(&c, grid(4, 1, 2, 1, 1), &s);
	for (int r = 0; r < 8; r++)
		assert_true(lanes(&c, s.slots[r], s.slots[r / 4 * 4 + (r + 1) % 4]) >= 1);
	assert_true(s.p.block.total > 2 * s.p.cost.total); /* block order's first ring closes over it */
	placement_free(&s.p);
	cluster_free(&c);
}

static void what_groups_run_over_is_what_their_rings_take(void **state)
{
	struct seating s;
	struct traffic t = usual();
	struct err e = ERR_INIT;
	struct layout l = grid(4, 1, 2, 1, 1);
	(void)state;
	struct cluster c = machines_alike(MACHINE_DGX1_DEAD, 1);
	assert_int_equal(place_ranks(&c, &l, &t, true, s.slots, &s.p, &e), 0);
	assert_int_equal(s.p.links[GROUP_TP].inside, LINK_PHB); /* the ring of 0 to 3 closes over the dead link */
	placement_free(&s.p);
	cluster_free(&c);
	/* Two ranks a node: each goes on to its like on the next, on its own rail. */
	c = machines_alike(MACHINE_H100, 2);
	machines_tree(&c, 2, 1, true);
	l = grid(4, 1, 4, 1, 1);
	assert_int_equal(place_ranks(&c, &l, &t, true, s.slots, &s.p, &e), 0);
	assert_int_equal(s.p.links[GROUP_DP].span.per_node, 2);
	assert_true(s.p.links[GROUP_DP].rails && s.p.links[GROUP_DP].hops == 1);
	assert_int_equal(s.p.links[GROUP_DP].inside, LINK_NVSWITCH);
	placement_free(&s.p);
	cluster_free(&c);
}

static void a_node_with_a_dead_link_stays_free_where_one_may(void **state)
{
	struct seating s;
	(void)state;
	struct cluster c = machines((enum machine[]){ MACHINE_DGX1_DEAD, MACHINE_DGX1 }, (int[]){ 1, 2 }, 2);
	seat(&c, grid(8, 1, 2, 1, 1), &s);
	assert_int_equal(s.p.n_spares, 1);
	assert_int_equal(s.p.spares[0], 0);
	placement_free(&s.p);
	/* Where it is needed, its ranks go round the rest. */
	seat(&c, grid(4, 1, 6, 1, 1), &s);
	for (int r = 0; r < 24; r++)
		assert_true(lanes(&c, s.slots[r], s.slots[r / 4 * 4 + (r + 1) % 4]) >= 1);
	placement_free(&s.p);
	cluster_free(&c);
}

static void a_dgx2_needs_no_order(void **state)
{
	struct seating s;
	(void)state;
	struct cluster c = machines_alike(MACHINE_DGX2, 2);
	seat(&c, grid(16, 1, 2, 1, 1), &s);
	assert_true(s.p.is_block);
	assert_int_equal(s.p.links[GROUP_TP].inside, LINK_NVSWITCH);
	assert_int_equal(s.p.links[GROUP_DP].hops, 1);
	placement_free(&s.p);
	seat(&c, grid(8, 1, 4, 1, 1), &s);
	assert_true(s.p.is_block);
	placement_free(&s.p);
	/* Half of its devices: one of each adapter's two. */
	seat(&c, grid(8, 1, 2, 1, 1), &s);
	if (s.slots[0].node != s.slots[8].node)
		assert_true(s.p.links[GROUP_DP].span.across.bandwidth == 12e9);
	placement_free(&s.p);
	cluster_free(&c);
}

static int leaf_of(const struct cluster *c, const struct seating *s, int rank)
{
	return c->nodes[s->slots[rank].node].leaf;
}

static void sixteen_dgx_h100_on_a_narrow_spine_keep_what_is_heavy_below_a_leaf(void **state)
{
	struct seating s;
	(void)state;
	struct cluster c = machines_alike(MACHINE_H100, 16);
	machines_tree(&c, 4, 2, true);
	/* Experts' all-to-all over four nodes: below one leaf each, the rest beyond. */
	struct layout l = grid(8, 1, 16, 4, 1);
	seat(&c, l, &s);
	for (int r = 0; r < 128; r++) {
		assert_int_equal(s.slots[r].device, r % 8); /* tp inside a node, on its own rail */
		assert_int_equal(s.slots[r].node, s.slots[r / 8 * 8].node);
		assert_int_equal(leaf_of(&c, &s, r), leaf_of(&c, &s, r / 32 * 32)); /* ep 4 × tp 8 */
	}
	assert_int_equal(s.p.links[GROUP_TP].hops, 0);
	assert_int_equal(s.p.links[GROUP_EP].hops, 1);
	assert_int_equal(s.p.links[GROUP_DP].hops, 2);
	assert_true(s.p.links[GROUP_EP].rails && s.p.links[GROUP_DP].rails);
	placement_free(&s.p);
	/* Block order would put the stages' copies, 16 ranks apart, two leaves away: context's heavy rings come closer than replicas. */
	seat(&c, grid(4, 4, 2, 1, 4), &s);
	assert_true(s.p.cost.total < 0.9 * s.p.worst.total);
	for (int r = 0; r < 128; r++)
		assert_int_equal(s.slots[r].node, s.slots[r / 4 * 4].node);
	placement_free(&s.p);
	cluster_free(&c);
}

static void mixed_nodes_give_whole_nodes_to_whole_groups(void **state)
{
	struct seating s;
	(void)state;
	struct cluster c = machines((enum machine[]){ MACHINE_HALF, MACHINE_H100 }, (int[]){ 3, 2 }, 2);
	/* Two groups of eight: the two large nodes, though the small ones come first. */
	seat(&c, grid(8, 1, 2, 1, 1), &s);
	for (int r = 0; r < 16; r++)
		assert_int_equal(s.slots[r].node, 3 + r / 8);
	assert_int_equal(s.p.n_spares, 3);
	assert_int_equal(s.p.links[GROUP_TP].hops, 0);
	assert_true(s.p.block.total > 1.5 * s.p.cost.total);
	placement_free(&s.p);
	/* Seven groups of four fill all. */
	seat(&c, grid(4, 1, 7, 1, 1), &s);
	must_be_a_map(&c, s.slots, 28);
	assert_int_equal(s.p.n_spares, 0);
	assert_int_equal(s.p.links[GROUP_TP].hops, 0);
	placement_free(&s.p);
	cluster_free(&c);
}

static void spare_nodes_are_the_odd_ones(void **state)
{
	struct seating s;
	(void)state;
	/* Leaves of 4, 4 and 2 nodes; eight are needed. */
	struct cluster c = machines_alike(MACHINE_H100, 10);
	machines_tree(&c, 4, 4, false);
	for (int i = 0; i < 10; i++) /* the short leaf first */
		c.nodes[i].leaf = i < 2 ? 2 : (i - 2) / 4;
	seat(&c, grid(8, 1, 8, 4, 1), &s);
	assert_int_equal(s.p.n_spares, 2);
	assert_int_equal(s.p.spares[0], 0);
	assert_int_equal(s.p.spares[1], 1);
	assert_int_equal(s.p.links[GROUP_EP].hops, 1);
	placement_free(&s.p);
	cluster_free(&c);
}

static void a_rest_goes_to_the_leaf_that_it_fills(void **state)
{
	struct seating s;
	(void)state;
	/* Leaves of 4, 4 and 2 nodes; six are needed: all of the first and of the last. */
	struct cluster c = machines_alike(MACHINE_H100, 10);
	machines_tree(&c, 4, 1, false);
	seat(&c, grid(8, 1, 6, 1, 1), &s);
	assert_int_equal(s.p.n_spares, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(s.p.spares[i], 4 + i);
	assert_true(s.p.cost.total == s.p.block.total);
	placement_free(&s.p);
	/* Two alone go to the small one. */
	seat(&c, grid(8, 1, 2, 1, 1), &s);
	assert_int_equal(s.slots[0].node, 8);
	assert_int_equal(s.slots[15].node, 9);
	placement_free(&s.p);
	cluster_free(&c);
}

static void a_fabric_of_trays_holds_what_crosses_trays(void **state)
{
	struct seating s;
	(void)state;
	struct cluster c = machines_alike(MACHINE_TRAY, 36); /* two fabrics of 72 */
	seat(&c, grid(8, 1, 18, 9, 1), &s);
	must_be_a_map(&c, s.slots, 144);
	for (int r = 0; r < 144; r++)
		assert_int_equal(c.nodes[s.slots[r].node].domain, c.nodes[s.slots[r / 72 * 72].node].domain);
	assert_true(s.p.links[GROUP_TP].fabric && !s.p.links[GROUP_TP].hops);
	assert_int_equal(s.p.links[GROUP_EP].hops, 0);
	placement_free(&s.p);
	cluster_free(&c);
}

static struct cluster preset(const char *spec)
{
	struct cluster c;
	struct err e = ERR_INIT;
	if (cluster_open(spec, 0, &c, &e))
		fail_msg("%s", e.text);
	return c;
}

static void the_presets_are_laid_as_the_machines_are(void **state)
{
	struct seating s;
	(void)state;
	struct cluster c = preset("dgx-1");
	seat(&c, grid(8, 1, 1, 1, 1), &s);
	for (int r = 0; r < 8; r++)
		assert_int_equal(lanes(&c, s.slots[r], s.slots[(r + 1) % 8]), 2);
	placement_free(&s.p);
	cluster_free(&c);
	c = preset("dgx-2:2");
	seat(&c, grid(16, 1, 2, 1, 1), &s);
	assert_true(s.p.is_block && s.p.links[GROUP_TP].hops == 0 && s.p.links[GROUP_DP].hops == 1);
	placement_free(&s.p);
	cluster_free(&c);
	c = preset("dgx-h100:16");
	seat(&c, grid(8, 1, 4, 1, 4), &s);
	assert_true(s.p.is_block && s.p.links[GROUP_TP].hops == 0 && s.p.links[GROUP_DP].rails && s.p.links[GROUP_PP].rails);
	assert_true(s.p.worst.total > 2 * s.p.cost.total);
	placement_free(&s.p);
	cluster_free(&c);
	c = preset("gb200-nvl72:36");
	seat(&c, grid(8, 1, 9, 1, 2), &s);
	assert_int_equal(s.p.links[GROUP_DP].hops, 0);
	assert_true(s.p.links[GROUP_DP].fabric && s.p.links[GROUP_PP].hops > 0);
	placement_free(&s.p);
	cluster_free(&c);
	c = preset("pcie-a100");
	seat(&c, grid(2, 1, 2, 1, 1), &s);
	for (int r = 0; r < 4; r += 2)
		assert_int_equal(s.slots[r].device / 2, s.slots[r + 1].device / 2); /* below one socket */
	placement_free(&s.p);
	cluster_free(&c);
}

static void boxes_get_smaller_where_large_ones_have_no_room(void **state)
{
	struct traffic t = usual();
	struct layout l = grid(8, 1, 32, 1, 1);
	struct span_yard *y = malloc(sizeof *y);
	struct fold folds[8];
	struct homes *h;
	struct err e = ERR_INIT;
	bool fits[73] = { false };
	(void)state;
	struct cluster c = machines_alike(MACHINE_TRAY, 66); /* three fabrics of 72 devices, one of 48 */
	assert_int_equal(span_yard_of(&c, y, &e), 0);
	assert_int_equal(homes_open(&c, &h, &e), 0);
	for (int box = 1; box <= 72; box++)
		fits[box] = homes_fit(h, box, 256);
	assert_true(fits[8] && fits[4] && fits[24]);
	assert_false(fits[16] || fits[32] || fits[64] || fits[72]);
	int n = fold_best(y, &l, &t, 72, fits, 8, folds, 0);
	assert_true(n > 0);
	for (int i = 0; i < n; i++)
		assert_int_equal(fold_box(&folds[i].node), 8);
	homes_close(h);
	free(y);
	cluster_free(&c);
}

static void named_devices_keep_their_order(void **state)
{
	struct seating s;
	struct traffic t = usual();
	struct err e = ERR_INIT;
	struct layout l = grid(8, 1, 1, 1, 1);
	(void)state;
	struct cluster c = machines_alike(MACHINE_DGX1, 1);
	assert_int_equal(place_ranks(&c, &l, &t, true, s.slots, &s.p, &e), 0);
	for (int r = 0; r < 8; r++)
		assert_int_equal(s.slots[r].device, r);
	assert_true(s.p.fixed && s.p.is_block && s.p.cost.total == s.p.block.total);
	placement_free(&s.p);
	/* Groups in whole nodes may cost more than block order, and than all else that was tried. */
	l = grid(3, 1, 4, 1, 1);
	t.ops[GROUP_TP][0].times = 0;
	cluster_free(&c);
	c = machines_alike(MACHINE_HALF, 4);
	machines_tree(&c, 3, 64, false); /* the fourth node is beyond a narrow uplink */
	assert_int_equal(place_ranks(&c, &l, &t, true, s.slots, &s.p, &e), 0);
	assert_true(s.p.cost.total > s.p.block.total && s.p.worst.total == s.p.cost.total);
	assert_int_equal(s.p.idle, 4);
	placement_free(&s.p);
	cluster_free(&c);
}

/* --- Machines at random -------------------------------------------------------------------------- */

struct dice {
	uint32_t drawn[4], next;
	uint64_t at;
};

static int roll(struct dice *d, int sides)
{
	if (d->next % 4 == 0)
		philox4(philox_key(1234, PHILOX_TEST, 0), d->at++, d->drawn);
	return (int)(d->drawn[d->next++ % 4] % (uint32_t)sides);
}

/* Of so many devices on a node or two, links of all sorts. */
static struct cluster any_machine(struct dice *d, int devices)
{
	int nodes = devices > 3 && roll(d, 3) == 0 ? 2 : 1, each = devices / nodes;
	struct cluster c = machines_alike(MACHINE_HALF, nodes);
	struct node_kind *k = &c.kinds[0];
	free(k->parts);
	free(k->nics);
	free(k->links);
	k->parts = NULL;
	k->nics = NULL;
	k->n_nics = 0;
	k->devices = each;
	k->numa = 2;
	k->switched = false;
	k->links = calloc((size_t)(each * each), sizeof *k->links);
	static const enum link_kind kinds[] = { LINK_SYS, LINK_PHB, LINK_PIX, LINK_NVLINK, LINK_NVLINK, LINK_NVLINK };
	for (int a = 0; a < each; a++) {
		k->links[a * each + a].kind = LINK_SELF;
		for (int b = 0; b < a; b++) {
			enum link_kind kind = kinds[roll(d, 6)];
			struct topo_link link = { kind, kind == LINK_NVLINK ? 1 + roll(d, 2) : 0, 0, 2e-6 };
			link.bandwidth = link.lanes ? link.lanes * MACHINE_NVLINK : kind == LINK_SYS ? MACHINE_SOCKETS : MACHINE_PCIE;
			k->links[a * each + b] = k->links[b * each + a] = link;
		}
	}
	return c;
}

static struct layout any_layout(struct dice *d, int devices)
{
	for (;;) {
		struct layout l = grid(1 + roll(d, 4), 1 + roll(d, 2), 1 + roll(d, 4), 1, 1 + roll(d, 3));
		if (l.dp % 2 == 0 && roll(d, 2))
			l.ep = 2;
		l.chunks = l.pp > 1 ? 1 + roll(d, 2) : 1;
		int world = layout_world(&l);
		if (world > 1 && world <= devices && (world == devices || roll(d, 4) == 0))
			return l;
	}
}

struct brute {
	const struct cluster *c;
	const struct traffic *t;
	struct weigh *w;
	int world, devices, maps;
	struct cluster_slot all[PLACE_EXACT], now[PLACE_EXACT];
	bool used[PLACE_EXACT];
	struct place_cost best;
};

static void try_all(struct brute *b, int rank)
{
	if (rank == b->world) {
		struct place_cost cost;
		place_weigh(b->w, b->now, b->t, &cost);
		if (!b->maps++ || place_better(&cost, &b->best))
			b->best = cost;
		return;
	}
	for (int i = 0; i < b->devices; i++)
		if (!b->used[i]) {
			b->used[i] = true;
			b->now[rank] = b->all[i];
			try_all(b, rank + 1);
			b->used[i] = false;
		}
}

static void must_be_the_best(const struct cluster *c, const struct layout *l)
{
	struct traffic t = usual();
	struct seating s;
	struct err e = ERR_INIT;
	struct brute b = { .c = c, .t = &t, .world = layout_world(l), .devices = cluster_devices(c) };
	for (int i = 0, node = 0; node < c->n_nodes; node++)
		for (int d = 0; d < cluster_kind(c, node)->devices; d++)
			b.all[i++] = (struct cluster_slot){ node, d };
	assert_int_equal(weigh_open(c, l, &b.w, &e), 0);
	try_all(&b, 0);
	seat(c, *l, &s);
	must_be_a_map(c, s.slots, b.world);
	if (fabs(s.p.cost.total / b.best.total - 1) > 1e-9 || fabs(s.p.cost.mean / b.best.mean - 1) > 1e-9)
		fail_msg("tp %d cp %d dp %d (ep %d) pp %d on %d devices of %d nodes: %.9g s, mean %.9g, of %d maps the best has %.9g s, mean %.9g", l->tp,
			 l->cp, l->dp, l->ep, l->pp, b.devices, c->n_nodes, s.p.cost.total, s.p.cost.mean, b.maps, b.best.total, b.best.mean);
	struct place_cost again;
	assert_int_equal(place_cost_of(c, l, s.slots, &t, &again, &e), 0);
	assert_true(again.total == s.p.cost.total && again.mean == s.p.cost.mean);
	weigh_close(b.w);
	placement_free(&s.p);
}

static void up_to_eight_devices_no_map_is_better(void **state)
{
	struct dice d = { .at = 0 };
	(void)state;
	for (int i = 0; i < 150; i++) {
		int devices = i % 25 == 24 ? 8 : 3 + roll(&d, 4);
		struct cluster c = any_machine(&d, devices);
		struct layout l = any_layout(&d, cluster_devices(&c));
		must_be_the_best(&c, &l);
		cluster_free(&c);
	}
	const enum machine known[] = { MACHINE_DGX1, MACHINE_DGX1_DEAD, MACHINE_PCIE4, MACHINE_PLAIN };
	for (int i = 0; i < 4; i++) {
		struct cluster c = machines_alike(known[i], 1);
		struct layout l = grid(2, 1, 2, 1, cluster_devices(&c) / 4);
		must_be_the_best(&c, &l);
		cluster_free(&c);
	}
}

static void nothing_is_worse_than_slurms_order(void **state)
{
	struct dice d = { .at = 1 << 20 };
	(void)state;
	for (int i = 0; i < 60; i++) {
		struct seating s;
		enum machine kinds[2] = { (enum machine)roll(&d, MACHINES), (enum machine)roll(&d, MACHINES) };
		int nodes[2] = { 1 + roll(&d, 4), 1 + roll(&d, 4) };
		struct cluster c = machines(kinds, nodes, 1 + roll(&d, 2));
		if (roll(&d, 2))
			machines_tree(&c, 1 + roll(&d, 3), 1 + roll(&d, 4), roll(&d, 2));
		struct layout l = grid(1 << roll(&d, 4), 1 << roll(&d, 2), 1 + roll(&d, 6), 1, 1 + roll(&d, 4));
		while (layout_world(&l) > cluster_devices(&c))
			*(l.tp > 1 ? &l.tp : l.dp > 1 ? &l.dp : l.pp > 1 ? &l.pp : &l.cp) = 1;
		seat(&c, l, &s);
		must_be_a_map(&c, s.slots, layout_world(&l));
		assert_true(s.p.cost.total <= s.p.block.total * (1 + 1e-9));
		assert_true(s.p.worst.total >= s.p.block.total * (1 - 1e-9));
		struct seating again;
		seat(&c, l, &again);
		assert_memory_equal(s.slots, again.slots, (size_t)layout_world(&l) * sizeof *s.slots);
		placement_free(&again.p);
		placement_free(&s.p);
		cluster_free(&c);
	}
}

/* The same node with its devices named in another order. */
static void relabel(struct node_kind *k, const int *to)
{
	int n = k->devices;
	struct topo_link *links = calloc((size_t)(n * n), sizeof *links);
	struct topo_device *parts = calloc((size_t)n, sizeof *parts);
	for (int a = 0; a < n; a++) {
		parts[to[a]] = k->parts[a];
		for (int b = 0; b < n; b++)
			links[to[a] * n + to[b]] = k->links[a * n + b];
	}
	memcpy(k->links, links, (size_t)(n * n) * sizeof *links);
	memcpy(k->parts, parts, (size_t)n * sizeof *parts);
	free(parts);
	free(links);
}

static void names_of_devices_do_not_matter(void **state)
{
	struct dice d = { .at = 1 << 21 };
	(void)state;
	for (int i = 0; i < 12; i++) {
		struct seating before, after;
		struct cluster c = machines_alike(i % 2 ? MACHINE_DGX1 : MACHINE_DGX1_DEAD, 1);
		struct layout l = i % 3 == 0 ? grid(4, 1, 2, 1, 1) : i % 3 == 1 ? grid(2, 1, 2, 1, 2) : grid(8, 1, 1, 1, 1);
		int to[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
		for (int k = 7; k > 0; k--) {
			int other = roll(&d, k + 1), keep = to[k];
			to[k] = to[other];
			to[other] = keep;
		}
		seat(&c, l, &before);
		relabel(&c.kinds[0], to);
		seat(&c, l, &after);
		assert_true(fabs(before.p.cost.total / after.p.cost.total - 1) < 1e-9);
		placement_free(&before.p);
		placement_free(&after.p);
		cluster_free(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(eight_on_a_dgx1_go_round_the_ring_of_double_links),
		cmocka_unit_test(four_on_a_dgx1_are_joined_by_nvlink_and_their_copies_by_two),
		cmocka_unit_test(several_dgx1_are_each_laid_as_one_is),
		cmocka_unit_test(a_dead_link_is_gone_round),
		cmocka_unit_test(what_groups_run_over_is_what_their_rings_take),
		cmocka_unit_test(a_node_with_a_dead_link_stays_free_where_one_may),
		cmocka_unit_test(a_dgx2_needs_no_order),
		cmocka_unit_test(sixteen_dgx_h100_on_a_narrow_spine_keep_what_is_heavy_below_a_leaf),
		cmocka_unit_test(mixed_nodes_give_whole_nodes_to_whole_groups),
		cmocka_unit_test(spare_nodes_are_the_odd_ones),
		cmocka_unit_test(a_rest_goes_to_the_leaf_that_it_fills),
		cmocka_unit_test(a_fabric_of_trays_holds_what_crosses_trays),
		cmocka_unit_test(the_presets_are_laid_as_the_machines_are),
		cmocka_unit_test(boxes_get_smaller_where_large_ones_have_no_room),
		cmocka_unit_test(named_devices_keep_their_order),
		cmocka_unit_test(up_to_eight_devices_no_map_is_better),
		cmocka_unit_test(nothing_is_worse_than_slurms_order),
		cmocka_unit_test(names_of_devices_do_not_matter),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
