/* Placement on random machines: small ones are compared with every possible map, all of them with
 * Slurm's order. */
#include "placed.h"

#include "base/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

/* A machine with this many devices on one or two nodes, and links of all kinds. */
static struct cluster any_machine(struct dice *d, int devices)
{
	int nodes = devices > 3 && roll(d, 3) == 0 ? 2 : 1, each = devices / nodes;
	struct cluster c = machines_equal(MACHINE_HALF, nodes);
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
	static const enum link_kind kinds[] = { LINK_SYS,    LINK_PHB,    LINK_PIX,
						LINK_NVLINK, LINK_NVLINK, LINK_NVLINK };
	for (int a = 0; a < each; a++) {
		k->links[a * each + a].kind = LINK_SELF;
		for (int b = 0; b < a; b++) {
			enum link_kind kind = kinds[roll(d, 6)];
			struct topo_link link = { kind, kind == LINK_NVLINK ? 1 + roll(d, 2) : 0, 0,
						  2e-6 };
			link.bandwidth = link.lanes         ? link.lanes * MACHINE_NVLINK
					 : kind == LINK_SYS ? MACHINE_SOCKETS
							    : MACHINE_PCIE;
			k->links[a * each + b] = k->links[b * each + a] = link;
		}
	}
	return c;
}

static struct layout any_layout(struct dice *d, int devices)
{
	for (;;) {
		struct layout l = placed_layout(1 + roll(d, 4), 1 + roll(d, 2), 1 + roll(d, 4), 1,
						1 + roll(d, 3));
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
	struct group_costs *w;
	int world, devices, maps;
	struct cluster_slot all[PLACE_EXACT], now[PLACE_EXACT];
	bool used[PLACE_EXACT];
	struct place_cost best;
};

static void try_all(struct brute *b, int rank)
{
	if (rank == b->world) {
		struct place_cost cost;
		place_map_cost(b->w, b->now, b->t, &cost);
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
	struct traffic t = placed_traffic();
	struct placed_ranks s;
	struct err e = ERR_INIT;
	struct brute b = {
		.c = c, .t = &t, .world = layout_world(l), .devices = topo_cluster_devices(c)
	};
	for (int i = 0, node = 0; node < c->n_nodes; node++)
		for (int d = 0; d < topo_cluster_kind(c, node)->devices; d++)
			b.all[i++] = (struct cluster_slot){ node, d };
	assert_int_equal(place_group_costs_open(c, l, &b.w, &e), 0);
	try_all(&b, 0);
	place_by_traffic(c, *l, &s);
	must_be_a_map(c, s.slots, b.world);
	if (fabs(s.p.cost.total / b.best.total - 1) > 1e-9 ||
	    fabs(s.p.cost.mean / b.best.mean - 1) > 1e-9)
		fail_msg("tp %d cp %d dp %d (ep %d) pp %d on %d devices of %d nodes: %.9g s, mean "
			 "%.9g, of %d maps the best has %.9g s, mean %.9g",
			 l->tp, l->cp, l->dp, l->ep, l->pp, b.devices, c->n_nodes, s.p.cost.total,
			 s.p.cost.mean, b.maps, b.best.total, b.best.mean);
	struct place_cost again;
	assert_int_equal(place_cost_of(c, l, s.slots, &t, &again, &e), 0);
	assert_true(again.total == s.p.cost.total && again.mean == s.p.cost.mean);
	place_group_costs_close(b.w);
	place_placement_free(&s.p);
}

static void up_to_eight_devices_no_map_is_better(void **state)
{
	struct dice d = { .at = 0 };
	(void)state;
	for (int i = 0; i < 150; i++) {
		int devices = i % 25 == 24 ? 8 : 3 + roll(&d, 4);
		struct cluster c = any_machine(&d, devices);
		struct layout l = any_layout(&d, topo_cluster_devices(&c));
		must_be_the_best(&c, &l);
		topo_cluster_free(&c);
	}
	const enum machine known[] = { MACHINE_DGX1, MACHINE_DGX1_DEAD, MACHINE_PCIE4,
				       MACHINE_SWITCHED };
	for (int i = 0; i < 4; i++) {
		struct cluster c = machines_equal(known[i], 1);
		struct layout l = placed_layout(2, 1, 2, 1, topo_cluster_devices(&c) / 4);
		must_be_the_best(&c, &l);
		topo_cluster_free(&c);
	}
}

static void nothing_is_worse_than_slurms_order(void **state)
{
	struct dice d = { .at = 1 << 20 };
	(void)state;
	for (int i = 0; i < 60; i++) {
		struct placed_ranks s;
		enum machine kinds[2] = { (enum machine)roll(&d, MACHINES),
					  (enum machine)roll(&d, MACHINES) };
		int nodes[2] = { 1 + roll(&d, 4), 1 + roll(&d, 4) };
		struct cluster c = machines(kinds, nodes, 1 + roll(&d, 2));
		if (roll(&d, 2))
			machines_tree(&c, 1 + roll(&d, 3), 1 + roll(&d, 4), roll(&d, 2));
		struct layout l = placed_layout(1 << roll(&d, 4), 1 << roll(&d, 2), 1 + roll(&d, 6),
						1, 1 + roll(&d, 4));
		while (layout_world(&l) > topo_cluster_devices(&c))
			*(l.tp > 1 ? &l.tp : l.dp > 1 ? &l.dp : l.pp > 1 ? &l.pp : &l.cp) = 1;
		place_by_traffic(&c, l, &s);
		must_be_a_map(&c, s.slots, layout_world(&l));
		assert_true(s.p.cost.total <= s.p.block.total * (1 + 1e-9));
		assert_true(s.p.worst.total >= s.p.block.total * (1 - 1e-9));
		struct placed_ranks again;
		place_by_traffic(&c, l, &again);
		assert_memory_equal(s.slots, again.slots,
				    (size_t)layout_world(&l) * sizeof *s.slots);
		place_placement_free(&again.p);
		place_placement_free(&s.p);
		topo_cluster_free(&c);
	}
}

/* Renumbers the devices of a node. */
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
		struct placed_ranks before, after;
		struct cluster c = machines_equal(i % 2 ? MACHINE_DGX1 : MACHINE_DGX1_DEAD, 1);
		struct layout l = i % 3 == 0   ? placed_layout(4, 1, 2, 1, 1)
				  : i % 3 == 1 ? placed_layout(2, 1, 2, 1, 2)
					       : placed_layout(8, 1, 1, 1, 1);
		int to[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
		for (int k = 7; k > 0; k--) {
			int other = roll(&d, k + 1), keep = to[k];
			to[k] = to[other];
			to[other] = keep;
		}
		place_by_traffic(&c, l, &before);
		relabel(&c.kinds[0], to);
		place_by_traffic(&c, l, &after);
		assert_true(fabs(before.p.cost.total / after.p.cost.total - 1) < 1e-9);
		place_placement_free(&before.p);
		place_placement_free(&after.p);
		topo_cluster_free(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(up_to_eight_devices_no_map_is_better),
		cmocka_unit_test(nothing_is_worse_than_slurms_order),
		cmocka_unit_test(names_of_devices_do_not_matter),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
