/* The search for the best map on random small clusters: it finds the map that a search through all
 * maps finds, and its bounds and symmetries hold. MUSTER_PLACE_SEED is the first cluster. */
#include "placed.h"

#include "base/random.h"
#include "plan/place/exact.h"
#include "plan/place/least.h"
#include "plan/place/symmetry.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CLUSTERS = 400, MAPS = 20 };

/* --- Random clusters ----------------------------------------------------------- */

struct scene {
	uint64_t seed;
	struct random_stream dice;
	struct cluster c;
	struct layout l;
	struct traffic t;
	struct group_costs *w;
	struct cluster_slot all[PLACE_EXACT];
	int devices, world;
};

static int roll(struct scene *s, int sides)
{
	return random_below(&s->dice, sides);
}

static void add_links(struct scene *s, struct node_kind *k)
{
	static const enum link_kind kinds[] = { LINK_SYS,    LINK_PHB,      LINK_PIX,
						LINK_NVLINK, LINK_NVSWITCH, LINK_NVLINK };
	int equal = roll(s, 3), n = k->devices; /* 0: all links are of one kind */
	enum link_kind all = kinds[roll(s, 6)];
	for (int a = 0; a < n; a++) {
		k->links[a * n + a].kind = LINK_SELF;
		for (int b = 0; b < a; b++) {
			enum link_kind kind = equal ? kinds[roll(s, 6)] : all;
			struct topo_link link = { kind, kind == LINK_NVLINK ? 1 + roll(s, 2) : 0, 0,
						  (1 + roll(s, 2)) * 2e-6 };
			link.bandwidth = link.lanes         ? link.lanes * MACHINE_NVLINK
					 : kind == LINK_SYS ? MACHINE_SOCKETS
							    : MACHINE_PCIE;
			k->links[a * n + b] = k->links[b * n + a] = link;
		}
	}
}

/* Nodes with so many devices each, and up to so many adapters. */
static struct cluster any_cluster(struct scene *s, int nodes, int each)
{
	struct cluster c = machines_equal(MACHINE_H100, nodes);
	struct node_kind *k = &c.kinds[0];
	k->devices = each;
	k->numa = 2;
	k->switched = false;
	k->n_nics = 1 + roll(s, each);
	for (int a = 0; a < each; a++) {
		k->parts[a].numa = a * 2 / each;
		k->parts[a].nic = a % k->n_nics;
	}
	for (int i = 0; i < k->n_nics; i++)
		k->nics[i].bandwidth = (1 + roll(s, 2)) * 6e9;
	add_links(s, k);
	if (nodes > 1 && roll(s, 3) == 0)
		machines_tree(&c, 1 + roll(s, 2), 1 + roll(s, 3), roll(s, 2));
	for (int i = 0, fabric = roll(s, 4) == 0; i < nodes; i++)
		c.nodes[i].domain = fabric ? i / 2 : -1;
	return c;
}

/* Without some of its devices, after which each node has a kind of its own. */
static struct cluster with_losses(struct scene *s, struct cluster c)
{
	struct cluster left;
	struct err e = ERR_INIT;
	struct cluster_slot gone[2 * PLACE_EXACT];
	int n = 0;
	for (int i = 0; i < c.n_nodes; i++)
		gone[n++] = (struct cluster_slot){ i, roll(s, 2) ? 0 : c.kinds[0].devices - 1 };
	if (roll(s, 3) || topo_cluster_without(&c, gone, n, &left, &e))
		return c;
	topo_cluster_free(&c);
	return left;
}

static struct layout any_layout(struct scene *s)
{
	for (;;) {
		int pp = 1 + roll(s, 4), dp = 1 + roll(s, 4);
		struct layout l = placed_layout(1 + roll(s, 3), 1 + roll(s, 3), dp, 1 + roll(s, dp),
						pp);
		int world = layout_world(&l);
		if (l.dp % l.ep || world < 2 || world > s->devices ||
		    (world < s->devices && roll(s, 4)))
			continue;
		l.chunks = pp > 1 ? 1 + roll(s, 2) : 1;
		l.vee = l.chunks == 2 && roll(s, 2);
		return l;
	}
}

static void scene_open(struct scene *s, uint64_t seed)
{
	struct err e = ERR_INIT;
	*s = (struct scene){ .seed = seed };
	random_init(&s->dice, seed, 0);
	do { /* the search through all maps of 8 devices takes long */
		int nodes = 1 + roll(s, 3), each = 2 + roll(s, seed % 16 ? 4 : 7);
		topo_cluster_free(&s->c);
		s->c = with_losses(s, any_cluster(s, nodes, each));
		s->devices = topo_cluster_devices(&s->c);
	} while (s->devices < 2 || s->devices > (seed % 16 ? 6 : PLACE_EXACT));
	s->l = any_layout(s);
	s->world = layout_world(&s->l);
	s->t = placed_traffic();
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		if (roll(s, 3) == 0) /* latency counts, or it has no traffic */
			s->t.ops[kind][0].bytes *= roll(s, 2) ? 1e-3 : 0;
	for (int i = 0, node = 0; node < s->c.n_nodes; node++)
		for (int d = 0; d < topo_cluster_kind(&s->c, node)->devices; d++)
			s->all[i++] = (struct cluster_slot){ node, d };
	assert_int_equal(place_group_costs_open(&s->c, &s->l, &s->w, &e), 0);
}

static void scene_close(struct scene *s)
{
	place_group_costs_close(s->w);
	topo_cluster_free(&s->c);
}

static void fail_scene(const struct scene *s, const char *why)
{
	fail_msg("MUSTER_PLACE_SEED=%llu: tp %d cp %d dp %d (ep %d) pp %d on %d devices of %d "
		 "nodes: %s",
		 (unsigned long long)s->seed, s->l.tp, s->l.cp, s->l.dp, s->l.ep, s->l.pp,
		 s->devices, s->c.n_nodes, why);
}

static uint64_t first_seed(void)
{
	const char *seed = getenv("MUSTER_PLACE_SEED");
	uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
	print_message("%d clusters from seed %llu on\n", CLUSTERS, (unsigned long long)first);
	return first;
}

/* A random map; at: the index of each rank's device. */
static void any_map(struct scene *s, int *at, struct cluster_slot *slots)
{
	int free[PLACE_EXACT];
	for (int i = 0; i < s->devices; i++)
		free[i] = i;
	for (int r = 0; r < s->world; r++) {
		int other = r + roll(s, s->devices - r), keep = free[other];
		free[other] = free[r];
		at[r] = free[r] = keep;
		slots[r] = s->all[keep];
	}
}

/* --- All maps ------------------------------------------------------------------ */

struct brute {
	struct scene *s;
	struct cluster_slot now[PLACE_EXACT], best[PLACE_EXACT];
	bool used[PLACE_EXACT];
	struct place_cost cost;
};

static void try_all(struct brute *b, int rank)
{
	struct scene *s = b->s;
	struct place_cost cost;
	if (rank == s->world) {
		place_map_cost(s->w, b->now, &s->t, &cost);
		if (place_better(&cost, &b->cost)) {
			b->cost = cost;
			memcpy(b->best, b->now, sizeof b->best);
		}
		return;
	}
	for (int i = 0; i < s->devices; i++)
		if (!b->used[i]) {
			b->used[i] = true;
			b->now[rank] = s->all[i];
			try_all(b, rank + 1);
			b->used[i] = false;
		}
}

static void it_finds_the_map_that_all_maps_give(void **state)
{
	(void)state;
	uint64_t first = first_seed();
	for (uint64_t seed = first; seed < first + CLUSTERS; seed++) {
		struct scene s;
		struct err e = ERR_INIT;
		int at[PLACE_EXACT];
		int64_t bounds;
		scene_open(&s, seed);
		struct brute b = { .s = &s };
		struct cluster_slot found[PLACE_EXACT] = { 0 };
		any_map(&s, at, found);
		memcpy(b.best, found, sizeof found);
		place_map_cost(s.w, found, &s.t, &b.cost);
		struct place_cost cost = b.cost;
		try_all(&b, 0);
		assert_int_equal(place_exact_best(&s.c, &s.l, &s.t, s.w, found, &cost, &bounds, &e),
				 0);
		if (cost.total != b.cost.total || cost.mean != b.cost.mean)
			fail_scene(&s, "another map costs less");
		if (memcmp(found, b.best, (size_t)s.world * sizeof *found))
			fail_scene(&s, "an equal map comes earlier");
		scene_close(&s);
	}
}

/* --- Bounds and symmetries ------------------------------------------------------ */

/* Each group alone takes at least what its units and its flows say. */
static void check_groups(struct scene *s, const struct least *l, enum group_kind kind,
			 const int *at, const struct cluster_slot *slots)
{
	int size = place_group_size(&s->l, kind), ranks[PLACE_EXACT];
	for (int lead = 0; lead < s->world; lead++) {
		struct cluster_slot alone[PLACE_EXACT];
		struct group_links span;
		struct group_cost_sum sum;
		unsigned units = 0;
		if (!place_group_leads(&s->l, kind, lead))
			continue;
		for (int r = 0; r < s->world; r++)
			alone[r] = (struct cluster_slot){ -1, 0 };
		place_group_ranks(&s->l, kind, lead, ranks);
		for (int i = 0; i < size; i++) {
			alone[ranks[i]] = slots[ranks[i]];
			units |= 1u << l->unit[at[ranks[i]]];
		}
		place_group_costs_of_kind(s->w, alone, kind, &s->t, &span, &sum);
		if (sum.worst < l->on[kind][__builtin_popcount(units)] * (1 - 1e-12))
			fail_scene(s, "a group takes less time than any can on so many units");
		for (int i = 0; i + 1 < size; i++)
			if (sum.worst < l->flow[kind][at[ranks[i]]][at[ranks[i + 1]]] * (1 - 1e-12))
				fail_scene(s, "a group takes less time than one of its flows");
	}
}

static void least_times_are_least(void **state)
{
	(void)state;
	uint64_t first = first_seed();
	for (uint64_t seed = first; seed < first + CLUSTERS; seed++) {
		struct scene s;
		struct link_load *load;
		struct least l;
		struct err e = ERR_INIT;
		scene_open(&s, seed);
		assert_int_equal(place_load_open(&s.c, &load, &e), 0);
		place_least_of(load, s.all, s.devices, &s.l, &s.t, &l);
		for (int i = 0; i < MAPS; i++) {
			int at[PLACE_EXACT];
			struct cluster_slot slots[PLACE_EXACT];
			any_map(&s, at, slots);
			for (int kind = 0; kind < GROUP_KINDS; kind++)
				if (place_group_size(&s.l, kind) > 1 &&
				    place_traffic_bytes(&s.t, kind) > 0)
					check_groups(&s, &l, kind, at, slots);
		}
		place_load_close(load);
		scene_close(&s);
	}
}

static bool in_one_unit(const struct scene *s)
{
	for (int i = 1; i < s->c.n_nodes; i++)
		if (s->c.nodes[i].domain < 0 || s->c.nodes[i].domain != s->c.nodes[0].domain)
			return false;
	return true;
}

static bool equal_costs(const struct place_cost *a, const struct place_cost *b)
{
	return fabs(a->total - b->total) <= 1e-12 * a->total &&
	       fabs(a->mean - b->mean) <= 1e-12 * a->mean;
}

static void symmetries_of_ranks_keep_the_cost(void **state)
{
	(void)state;
	uint64_t first = first_seed();
	int symmetries = 0;
	for (uint64_t seed = first; seed < first + CLUSTERS; seed++) {
		struct scene s;
		scene_open(&s, seed);
		for (int r = 1; r < s.world; r++) {
			struct coords by = layout_coords(&s.l, r);
			if (!place_symmetry_of_ranks(&s.l, &s.t, in_one_unit(&s), r))
				continue;
			symmetries++;
			for (int i = 0; i < MAPS; i++) {
				int at[PLACE_EXACT];
				struct cluster_slot slots[PLACE_EXACT], shifted[PLACE_EXACT];
				struct place_cost a, b;
				any_map(&s, at, slots);
				for (int k = 0; k < s.world; k++) {
					struct coords to = layout_coords(&s.l, k);
					to.tp = (to.tp + by.tp) % s.l.tp;
					to.cp = (to.cp + by.cp) % s.l.cp;
					to.dp = (to.dp + by.dp) % s.l.dp;
					shifted[k] = slots[layout_rank(&s.l, to)];
				}
				place_map_cost(s.w, slots, &s.t, &a);
				place_map_cost(s.w, shifted, &s.t, &b);
				if (!equal_costs(&a, &b))
					fail_scene(&s, "a symmetry of ranks changes the cost");
			}
		}
		scene_close(&s);
	}
	assert_true(symmetries > CLUSTERS / 4);
}

static bool maps(enum machine kind, int a, int b, int fixed)
{
	struct cluster c = machines_equal(kind, 1);
	struct link_load *load;
	struct symmetry *s;
	struct err e = ERR_INIT;
	struct cluster_slot all[PLACE_EXACT];
	for (int i = 0; i < c.kinds[0].devices; i++)
		all[i] = (struct cluster_slot){ 0, i };
	assert_int_equal(place_load_open(&c, &load, &e), 0);
	assert_int_equal(place_symmetry_open(load, all, c.kinds[0].devices, &s, &e), 0);
	bool found = place_symmetry_exists(s, &fixed, fixed >= 0, a, b);
	assert_true(found == place_symmetry_exists(s, &fixed, fixed >= 0, a, b));
	place_symmetry_close(s);
	place_load_close(load);
	topo_cluster_free(&c);
	return found;
}

static void known_machines_have_their_symmetries(void **state)
{
	(void)state;
	for (int i = 1; i < 8; i++)
		assert_true(maps(MACHINE_H100, 0, i, -1));
	assert_true(maps(MACHINE_H100, 3, 5, 0));
	assert_true(maps(MACHINE_DGX1, 0, 4, -1)); /* its sockets are equal */
	assert_false(maps(MACHINE_DGX1_DEAD, 0, 4, -1));
	assert_true(maps(MACHINE_PCIE4, 0, 1, -1));
	assert_true(maps(MACHINE_PCIE4, 0, 2, -1));
	assert_false(maps(MACHINE_PCIE4, 1, 2, 0)); /* GPU 1 shares the bridge with GPU 0 */
}

/* --- The effort ------------------------------------------------------------------ */

static int64_t most_bounds(const struct cluster *c)
{
	int n = topo_cluster_devices(c);
	int64_t most = 0;
	for (int tp = 1; tp <= n; tp *= 2)
		for (int pp = 1; tp * pp <= n; pp *= 2) {
			struct placed_ranks s;
			place_by_traffic(c, placed_layout(tp, 1, n / tp / pp, 1, pp), &s);
			assert_true(s.p.proven);
			most = s.p.bounds > most ? s.p.bounds : most;
			place_placement_free(&s.p);
		}
	return most;
}

static void equal_devices_are_placed_at_once(void **state)
{
	(void)state;
	struct cluster c = machines_equal(MACHINE_H100, 1);
	c.rails = true;
	assert_int_equal(most_bounds(&c), 0);
	topo_cluster_free(&c);
}

static void unequal_devices_take_few_bounds(void **state)
{
	(void)state;
	static const struct {
		enum machine kind;
		int nodes, left; /* left: devices of a node */
		int64_t most;
	} cases[] = {
		{ MACHINE_DGX1, 1, 8, 5000 }, { MACHINE_DGX1_DEAD, 1, 8, 6000 },
		{ MACHINE_H100, 2, 4, 1500 }, { MACHINE_H100, 4, 2, 1000 },
		{ MACHINE_H100, 8, 1, 400 },  { MACHINE_PCIE4, 2, 4, 1000 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct cluster whole = machines_equal(cases[i].kind, cases[i].nodes), c;
		struct cluster_slot gone[8 * PLACE_EXACT];
		struct err e = ERR_INIT;
		int n = 0;
		machines_tree(&whole, 2, 1, true);
		for (int node = 0; node < cases[i].nodes; node++)
			for (int d = cases[i].left; d < whole.kinds[0].devices; d++)
				gone[n++] = (struct cluster_slot){ node, d };
		assert_int_equal(topo_cluster_without(&whole, gone, n, &c, &e), 0);
		int64_t took = most_bounds(&c);
		if (took > cases[i].most)
			fail_msg("%s: %lld bounds", c.name, (long long)took);
		topo_cluster_free(&c);
		topo_cluster_free(&whole);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_finds_the_map_that_all_maps_give),
		cmocka_unit_test(least_times_are_least),
		cmocka_unit_test(symmetries_of_ranks_keep_the_cost),
		cmocka_unit_test(known_machines_have_their_symmetries),
		cmocka_unit_test(equal_devices_are_placed_at_once),
		cmocka_unit_test(unequal_devices_take_few_bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
