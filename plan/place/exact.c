#include "plan/place/exact.h"

#include "plan/place/least.h"
#include "plan/place/link_load.h"
#include "plan/place/symmetry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The group of a kind that a rank is in. */
struct membership {
	int group;    /* -1: none */
	int position; /* in the group's order */
};

/* The costs of all-to-alls. In one unit they depend on the devices of each group only, so the same
 * ones come again and again, in other orders. */
enum { KNOWN = 1 << 12 }; /* all ways to choose groups are fewer */

struct known_cost {
	uint64_t groups; /* the set of devices of each, a byte, in order; 0: an unused row */
	struct group_cost_sum sum;
};

struct exact_search {
	struct layout layout;
	const struct traffic *t;
	struct group_costs *w;
	struct symmetry *symmetry;
	struct least least;
	struct cluster_slot devices[PLACE_EXACT];
	bool used[PLACE_EXACT];
	int at[PLACE_EXACT];   /* the devices of the ranks placed so far */
	int free[PLACE_EXACT]; /* devices of each unit */
	int n, world;
	int size[GROUP_KINDS], groups[GROUP_KINDS];       /* groups: 0 if the kind costs nothing */
	int ranks[GROUP_KINDS][PLACE_EXACT][PLACE_EXACT]; /* of each group */
	struct membership in[GROUP_KINDS][PLACE_EXACT];
	struct known_cost *known; /* [KNOWN]; NULL: there are several units, or no all-to-all */
	bool behind[PLACE_EXACT]; /* a symmetry maps rank 0 to this rank: its device comes later */
	struct place_cost best;
	struct cluster_slot *now, *found;
	int64_t bounds;
};

/* --- Lower bounds --- */

/* Lower bounds for all maps that begin with the ranks placed so far. */
struct bound {
	struct place_cost cost;
	struct {
		int whole;                 /* groups that are complete */
		double seconds;            /* their sum */
		double least[PLACE_EXACT]; /* of each group that is not; 0: it is complete */
	} of[GROUP_KINDS];
};

/* The bound of a group that is not complete, from where its ranks are. */
static double group_bound(const struct exact_search *s, enum group_kind kind, int group, int placed)
{
	const struct least *l = &s->least;
	int units = 0, missing = 0, room = 0;
	bool seen[PLACE_EXACT] = { false };
	for (int i = 0; i < s->size[kind]; i++) {
		int rank = s->ranks[kind][group][i];
		if (rank >= placed) {
			missing++;
			continue;
		}
		int unit = l->unit[s->at[rank]];
		if (!seen[unit]) {
			seen[unit] = true;
			room += s->free[unit];
			units++;
		}
	}
	return l->on[kind][units + (missing > room)];
}

/* The bound from the flows of a group between this rank and its neighbours. */
static double flow_bound(const struct exact_search *s, enum group_kind kind, int rank)
{
	const struct layout *l = &s->layout;
	const struct membership *in = &s->in[kind][rank];
	const int *ranks = s->ranks[kind][in->group], n = s->size[kind];
	bool open = kind == GROUP_PP && (l->chunks == 1 || l->vee);
	int before = in->position > 0 || !open ? ranks[(in->position + n - 1) % n] : s->world,
	    after = in->position + 1 < n || !open ? ranks[(in->position + 1) % n] : s->world;
	double least = 0;
	if (before < rank)
		least = fmax(least, s->least.flow[kind][s->at[before]][s->at[rank]]);
	if (after < rank)
		least = fmax(least, s->least.flow[kind][s->at[rank]][s->at[after]]);
	return least;
}

/* Raises the bound of the rank's group by what is known without weighing it. */
static void raise_group(const struct exact_search *s, enum group_kind kind, int rank,
			struct bound *b)
{
	int group = s->in[kind][rank].group;
	double *least = &b->of[kind].least[group];
	*least = fmax(*least,
		      fmax(group_bound(s, kind, group, rank + 1), flow_bound(s, kind, rank)));
	b->cost.seconds[kind] = fmax(b->cost.seconds[kind], *least);
}

/* The devices of the groups that are complete. */
static uint64_t name_groups(const struct exact_search *s, enum group_kind kind, int rank)
{
	unsigned char sets[sizeof(uint64_t)] = { 0 };
	uint64_t name = 0;
	for (int g = 0; g < s->groups[kind]; g++) {
		unsigned char set = 0;
		for (int i = 0; i < s->size[kind] && s->ranks[kind][g][s->size[kind] - 1] <= rank;
		     i++)
			set |= (unsigned char)(1 << s->at[s->ranks[kind][g][i]]);
		int at = g;
		for (; at > 0 && sets[at - 1] < set; at--)
			sets[at] = sets[at - 1];
		sets[at] = set;
	}
	for (int g = 0; g < s->groups[kind]; g++)
		name = name << 8 | sets[g];
	return name;
}

static void weigh_kind(struct exact_search *s, enum group_kind kind, int rank,
		       struct group_cost_sum *sum)
{
	struct group_links span;
	if (kind != GROUP_EP || !s->known) {
		place_group_costs_of_kind(s->w, s->now, kind, s->t, &span, sum);
		return;
	}
	uint64_t name = name_groups(s, kind, rank);
	uint64_t row = name * 0x9E3779B97F4A7C15u >> 52;
	while (s->known[row % KNOWN].groups && s->known[row % KNOWN].groups != name)
		row++;
	struct known_cost *k = &s->known[row % KNOWN];
	if (!k->groups) {
		place_group_costs_of_kind(s->w, s->now, kind, s->t, &span, &k->sum);
		k->groups = name;
	}
	*sum = k->sum;
}

static void weigh_groups(struct exact_search *s, enum group_kind kind, int rank, struct bound *b)
{
	struct group_cost_sum sum;
	weigh_kind(s, kind, rank, &sum);
	b->of[kind].least[s->in[kind][rank].group] = 0;
	b->of[kind].seconds = ++b->of[kind].whole * sum.mean;
	b->cost.seconds[kind] = fmax(b->cost.seconds[kind], sum.worst);
}

/* Whether the rank is the last one of its group. */
static bool completes(const struct exact_search *s, enum group_kind kind, int rank)
{
	return rank == s->ranks[kind][s->in[kind][rank].group][s->size[kind] - 1];
}

/* Sums the kinds up. */
static void sum_bound(const struct exact_search *s, struct bound *b)
{
	b->cost.total = b->cost.mean = 0;
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		double sum = b->of[kind].seconds;
		if (!s->groups[kind])
			continue;
		for (int g = 0; g < s->groups[kind]; g++)
			sum += b->of[kind].least[g];
		b->cost.total += (1 - s->t->hidden[kind]) * b->cost.seconds[kind];
		b->cost.mean += (1 - s->t->hidden[kind]) * sum / s->groups[kind];
	}
}

/* The bound after this rank got its device. Returns whether a better map may follow. */
static bool bound(struct exact_search *s, int rank, const struct bound *before, struct bound *out)
{
	bool promising;
	s->bounds++;
	*out = *before;
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		if (s->groups[kind] && s->in[kind][rank].group >= 0)
			raise_group(s, kind, rank, out);
	sum_bound(s, out);
	promising = place_better(&out->cost, &s->best);
	for (int kind = 0; kind < GROUP_KINDS && promising; kind++) {
		if (!s->groups[kind] || s->in[kind][rank].group < 0 || !completes(s, kind, rank))
			continue;
		weigh_groups(s, kind, rank, out);
		sum_bound(s, out);
		promising = place_better(&out->cost, &s->best);
	}
	return promising;
}

/* The bound of all maps. */
static void bound_all(const struct exact_search *s, struct bound *out)
{
	*out = (struct bound){ 0 };
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		for (int g = 0; g < s->groups[kind]; g++)
			out->of[kind].least[g] = s->least.on[kind][1];
		out->cost.seconds[kind] = s->groups[kind] ? s->least.on[kind][1] : 0;
	}
	sum_bound(s, out);
}

/* --- The search --- */

/* Sets the devices on which the next rank is tried: of those that a symmetry maps to one another,
 * and that keeps the ranks placed so far where they are, only the first. Returns whether there are
 * such. */
static bool choose_devices(struct exact_search *s, int rank, bool symmetric, bool *tried)
{
	bool repeats = false;
	for (int i = 0; i < s->n; i++) {
		tried[i] = !s->used[i];
		for (int k = 0; k < i && symmetric && tried[i]; k++)
			if (tried[k] && place_symmetry_exists(s->symmetry, s->at, rank, i, k)) {
				tried[i] = false;
				repeats = true;
			}
	}
	for (int i = 0; i < s->n && s->behind[rank]; i++)
		tried[i] &= i > s->at[0];
	return repeats;
}

static void keep_map(struct exact_search *s)
{
	struct place_cost cost;
	place_map_cost(s->w, s->now, s->t, &cost);
	if (place_better(&cost, &s->best)) {
		s->best = cost;
		memcpy(s->found, s->now, (size_t)s->world * sizeof *s->now);
	}
}

/* symmetric: some permutation of devices may keep the ranks placed so far where they are. */
static void descend(struct exact_search *s, int rank, bool symmetric, const struct bound *before)
{
	bool tried[PLACE_EXACT];
	struct bound here;
	if (rank == s->world) {
		keep_map(s);
		return;
	}
	symmetric = choose_devices(s, rank, symmetric, tried);
	for (int i = 0; i < s->n; i++) {
		if (!tried[i])
			continue;
		s->used[i] = true;
		s->free[s->least.unit[i]]--;
		s->at[rank] = i;
		s->now[rank] = s->devices[i];
		if (bound(s, rank, before, &here))
			descend(s, rank + 1, symmetric, &here);
		s->now[rank].node = -1;
		s->free[s->least.unit[i]]++;
		s->used[i] = false;
	}
}

/* --- What it is prepared from --- */

static void list_groups(struct exact_search *s, enum group_kind kind)
{
	s->size[kind] = place_group_size(&s->layout, kind);
	for (int r = 0; r < s->world; r++)
		s->in[kind][r].group = -1;
	if (s->size[kind] < 2 || !(place_traffic_bytes(s->t, kind) > 0))
		return;
	for (int lead = 0; lead < s->world; lead++) {
		int g = s->groups[kind], *ranks = s->ranks[kind][g];
		if (!place_group_leads(&s->layout, kind, lead))
			continue;
		place_group_ranks(&s->layout, kind, lead, ranks);
		for (int i = 0; i < s->size[kind]; i++)
			s->in[kind][ranks[i]] = (struct membership){ g, i };
		s->groups[kind]++;
	}
}

static int list_devices(const struct cluster *c, struct cluster_slot *out)
{
	int n = 0;
	for (int i = 0; i < c->n_nodes; i++)
		for (int d = 0; d < topo_cluster_kind(c, i)->devices; d++)
			out[n++] = (struct cluster_slot){ i, d };
	return n;
}

static int prepare(struct exact_search *s, const struct cluster *c, struct err *e)
{
	struct link_load *load;
	if (place_load_open(c, &load, e))
		return -1;
	s->n = list_devices(c, s->devices);
	place_least_of(load, s->devices, s->n, &s->layout, s->t, &s->least);
	for (int i = 0; i < s->n; i++)
		s->free[s->least.unit[i]]++;
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		list_groups(s, kind);
	bool one_unit = s->least.units == 1;
	for (int r = 1; r < s->world; r++)
		s->behind[r] = place_symmetry_of_ranks(&s->layout, s->t, one_unit, r);
	int rc = place_symmetry_open(load, s->devices, s->n, &s->symmetry, e);
	place_load_close(load);
	if (!rc && one_unit && s->groups[GROUP_EP] &&
	    !(s->known = calloc(KNOWN, sizeof *s->known))) {
		place_symmetry_close(s->symmetry);
		return err_set(e, ERR_NOMEM,
			       "no memory for the groups of %d ranks; close other programs",
			       s->world);
	}
	return rc;
}

int place_exact_best(const struct cluster *c, const struct layout *l, const struct traffic *t,
		     struct group_costs *w, struct cluster_slot *slots, struct place_cost *cost,
		     int64_t *bounds, struct err *e)
{
	struct cluster_slot now[PLACE_EXACT];
	struct exact_search s = { .layout = *l,
				  .t = t,
				  .w = w,
				  .world = layout_world(l),
				  .best = *cost,
				  .now = now,
				  .found = slots };
	if (prepare(&s, c, e))
		return -1;
	for (int i = 0; i < s.world; i++)
		now[i] = (struct cluster_slot){ -1, 0 };
	struct bound none;
	bound_all(&s, &none);
	if (place_better(&none.cost, &s.best))
		descend(&s, 0, true, &none);
	*cost = s.best;
	*bounds = s.bounds;
	free(s.known);
	place_symmetry_close(s.symmetry);
	return 0;
}
