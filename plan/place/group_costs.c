#include "plan/place/group_costs.h"

#include "plan/place/link_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct group_costs {
	struct link_load *load;
	struct layout layout;
	int world;
	/* [world] the ranks of the groups, group after group, in the order of their rings */
	int *ranks;
	/* [world] scratch of one group: the unit of each rank, the ranks of each unit */
	int *place, *count;
	/* [units] the last group that was seen there, and the unit's number in it */
	int *seen, *number;
	/* [switches] ranks of a group below it; [world × depth] switches above the group's ranks */
	int *below, *met;
	int serial;
};

static void *numbers(int n)
{
	return calloc((size_t)n + 1, sizeof(int));
}

int place_group_costs_open(const struct cluster *c, const struct layout *l,
			   struct group_costs **out, struct err *e)
{
	struct group_costs *w = calloc(1, sizeof *w);
	if (!w)
		return err_set(e, ERR_NOMEM,
			       "no memory to weigh a map of ranks; close other programs");
	w->layout = *l;
	w->world = layout_world(l);
	if (place_load_open(c, &w->load, e)) {
		place_group_costs_close(w);
		return -1;
	}
	w->ranks = numbers(w->world);
	w->place = numbers(w->world);
	w->count = numbers(w->world);
	w->seen = numbers(place_load_units(w->load));
	w->number = numbers(place_load_units(w->load));
	w->below = numbers(c->n_switches);
	w->met = numbers(c->n_switches);
	if (!w->ranks || !w->place || !w->count || !w->seen || !w->number || !w->below || !w->met) {
		place_group_costs_close(w);
		return err_set(e, ERR_NOMEM,
			       "no memory for the groups of %d ranks; close other programs",
			       layout_world(l));
	}
	*out = w;
	return 0;
}

void place_group_costs_close(struct group_costs *w)
{
	if (!w)
		return;
	place_load_close(w->load);
	free(w->ranks);
	free(w->place);
	free(w->count);
	free(w->seen);
	free(w->number);
	free(w->below);
	free(w->met);
	free(w);
}

/* --- One group --- */

/* A group in the order of its ring, and what is done with each of its flows: it is shown, or added
 * to the load, or its share is taken. */
struct group {
	struct group_costs *w;
	const struct cluster_slot *slots;
	const int *ranks;
	int n;
	bool adding;
	flow_visitor *visit; /* NULL: flows are not shown */
	void *with;
	struct group_links *span;
};

static int unit_of(const struct group *g, int i)
{
	return place_load_unit(g->w->load, g->slots[g->ranks[i]].node);
}

static void worst(struct link_speed *l, double bandwidth, double latency)
{
	l->bandwidth = l->bandwidth > 0 ? fmin(l->bandwidth, bandwidth) : bandwidth;
	l->latency = fmax(l->latency, latency);
}

static void flow(struct group *g, int from, int to, double weight)
{
	struct link_path way;
	struct cluster_slot a = g->slots[g->ranks[from]], b = g->slots[g->ranks[to]];
	if (g->visit) {
		g->visit(g->with, a, b);
		return;
	}
	place_load_path(g->w->load, a, b, &way);
	if (g->adding)
		place_load_add(g->w->load, &way, weight);
	else
		worst(way.across ? &g->span->across : &g->span->inside,
		      place_load_share(g->w->load, &way), way.latency);
}

/* The end of the run of ranks on one unit that begins at i. */
static int run_end(const struct group *g, int i)
{
	int end = i + 1, unit = unit_of(g, i);
	while (end < g->n && unit_of(g, end) == unit)
		end++;
	return end;
}

/* Counts the group's units and the fewest ranks on one of them. For hops it counts runs of ranks
 * instead of units. */
static void count_units(const struct group *g, int *units, int *least)
{
	*units = 0;
	*least = g->n;
	for (int i = 0, end; i < g->n; i = end) {
		end = run_end(g, i);
		++*units;
		*least = end - i < *least ? end - i : *least;
	}
}

/* Flows from a run of ranks to the next run, [next, next + theirs), `side` of them side by side. */
static void cross(struct group *g, int i, int mine, int next, int theirs, int side)
{
	for (int a = 0; a < mine; a++)
		flow(g, i + a, next + (int)((int64_t)a * theirs / mine), (double)side / mine);
}

static void ring(struct group *g)
{
	int units, least;
	count_units(g, &units, &least);
	g->span->nodes = units;
	g->span->per_node = least;
	for (int i = 0, end; i < g->n; i = end) {
		end = run_end(g, i);
		int mine = end - i, next = end < g->n ? end : 0, theirs = run_end(g, next) - next;
		for (int a = i; a < end && mine > 1; a++)
			if (a + 1 < end || mine > 2 || units == 1)
				flow(g, a, a + 1 < end ? a + 1 : i, 1);
		if (units > 1)
			cross(g, i, mine, next, theirs, least);
	}
}

static void hops(struct group *g, bool closed)
{
	count_units(g, &g->span->nodes, &g->span->per_node);
	for (int i = 0; i < g->n - !closed; i++)
		flow(g, i, (i + 1) % g->n, 1);
}

/* Adds what rank i sends inside its unit, to the ranks [lo, hi). If shares are taken, it returns
 * the seconds per byte of all that the rank sends. */
static double inside_time(struct group *g, int i, int lo, int hi)
{
	double port = 0, slowest = 0, part = 1.0 / g->n, latency = 0;
	for (int b = lo; b < hi; b++) {
		struct link_path way;
		if (b == i)
			continue;
		place_load_path(g->w->load, g->slots[g->ranks[i]], g->slots[g->ranks[b]], &way);
		if (g->adding) {
			place_load_add(g->w->load, &way, part);
			continue;
		}
		if (way.direct)
			slowest = fmax(slowest, part / way.bandwidth);
		else
			port += part / way.bandwidth;
		way.bandwidth = INFINITY;
		slowest = fmax(slowest, 1 / place_load_share(g->w->load, &way));
		latency = fmax(latency, way.latency);
	}
	slowest = fmax(slowest, port);
	if (slowest > 0)
		worst(&g->span->inside, (hi - lo - 1) * part / slowest, latency);
	return slowest;
}

/* Handles the uplinks of each switch above the group's ranks once: adds the load, or takes the
 * share. */
static double uplinks(struct group *g)
{
	const struct cluster *c = place_load_cluster(g->w->load);
	int met = 0, *below = g->w->below;
	double slowest = 0;
	for (int i = 0; i < g->n; i++)
		for (int s = c->nodes[g->slots[g->ranks[i]].node].leaf; c->switches && s >= 0;
		     s = c->switches[s].parent)
			if (!below[s]++)
				g->w->met[met++] = s;
	for (int k = 0; k < met; k++) {
		int s = g->w->met[k];
		double weight = below[s] * (double)(g->n - below[s]) / g->n;
		below[s] = 0;
		if (weight > 0 && g->adding)
			place_load_add_uplink(g->w->load, s, weight);
		else if (weight > 0)
			slowest = fmax(slowest, 1 / place_load_share_uplink(g->w->load, s));
	}
	return slowest;
}

static double net_latency(const struct group *g, int i)
{
	struct link_path way = { .latency = 0 };
	for (int b = 0; b < g->n; b++)
		if (unit_of(g, b) != unit_of(g, i)) {
			place_load_path(g->w->load, g->slots[g->ranks[i]], g->slots[g->ranks[b]],
					&way);
			break;
		}
	return way.latency;
}

static void all_to_all(struct group *g)
{
	double inside = 0, across = uplinks(g);
	struct group_links *s = g->span;
	count_units(g, &s->nodes, &s->per_node);
	for (int i = 0, end; i < g->n; i = end) {
		end = run_end(g, i);
		for (int a = i; a < end; a++) {
			double leaving = (double)(g->n - (end - i)) / g->n;
			inside = fmax(inside, inside_time(g, a, i, end));
			if (leaving > 0 && g->adding)
				place_load_add_adapter(g->w->load, g->slots[g->ranks[a]], leaving);
			else if (leaving > 0)
				across = fmax(across,
					      1 / place_load_share_adapter(g->w->load,
									   g->slots[g->ranks[a]]));
		}
	}
	if (g->adding)
		return;
	if (s->nodes > 1)
		s->across = (struct link_speed){ (double)(g->n - s->per_node) / g->n /
							 fmax(across, inside),
						 net_latency(g, 0) };
}

static void show_all_to_all(struct group *g)
{
	for (int i = 0, end; i < g->n; i = end) {
		end = run_end(g, i);
		for (int a = i; a < end; a++)
			for (int b = i; b < end; b++)
				if (a != b)
					flow(g, a, b, 1);
		int next = end < g->n ? end : 0;
		if (end - i < g->n)
			cross(g, i, end - i, next, run_end(g, next) - next, 1);
	}
}

static void flows(struct group *g, enum group_kind kind)
{
	const struct layout *l = &g->w->layout;
	switch (kind) {
	case GROUP_CP:
		hops(g, true);
		break;
	case GROUP_PP:
		hops(g, l->chunks > 1 && !l->vee);
		break;
	case GROUP_EP:
		g->visit ? show_all_to_all(g) : all_to_all(g);
		break;
	default:
		ring(g);
	}
}

/* --- One kind of groups --- */

static bool in_order(enum group_kind kind)
{
	return kind == GROUP_CP || kind == GROUP_PP;
}

/* Sorts the ranks by node. Nodes stay in the order in which they first appear. */
static void gather(struct group_costs *w, const struct cluster_slot *slots, int *ranks, int n)
{
	int units = 0, last = -1;
	bool apart = false;
	w->serial++;
	for (int i = 0; i < n; i++) {
		int unit = place_load_unit(w->load, slots[ranks[i]].node);
		if (w->seen[unit] != w->serial) {
			w->seen[unit] = w->serial;
			w->number[unit] = units;
			w->count[units++] = 0;
		} else if (w->number[unit] != last) {
			apart = true;
		}
		w->place[i] = last = w->number[unit];
		w->count[last]++;
	}
	if (!apart)
		return;
	/* A counting sort: place[] becomes each rank's position, then the ranks move to it along
	 * the cycles. */
	for (int u = 0, at = 0; u < units; u++) {
		int here = w->count[u];
		w->count[u] = at;
		at += here;
	}
	for (int i = 0; i < n; i++)
		w->place[i] = w->count[w->place[i]]++;
	for (int i = 0; i < n; i++)
		while (w->place[i] != i) {
			int to = w->place[i], rank = ranks[to], place = w->place[to];
			ranks[to] = ranks[i];
			w->place[to] = to;
			ranks[i] = rank;
			w->place[i] = place;
		}
}

static bool nowhere(const struct cluster_slot *slots, const int *ranks, int n)
{
	for (int i = 0; i < n; i++)
		if (slots[ranks[i]].node < 0)
			return true;
	return false;
}

/* Fills w->ranks with the groups whose ranks all have a device. Returns their number. */
static int list_groups(struct group_costs *w, const struct cluster_slot *slots,
		       enum group_kind kind, int size)
{
	int groups = 0;
	for (int lead = 0; lead < w->world; lead++) {
		int *ranks = &w->ranks[groups * size];
		if (!place_group_leads(&w->layout, kind, lead))
			continue;
		place_group_ranks(&w->layout, kind, lead, ranks);
		if (nowhere(slots, ranks, size))
			continue;
		if (!in_order(kind))
			gather(w, slots, ranks, size);
		groups++;
	}
	return groups;
}

void place_group_costs_of_kind(struct group_costs *w, const struct cluster_slot *slots,
			       enum group_kind kind, const struct traffic *t,
			       struct group_links *span, struct group_cost_sum *sum)
{
	int size = place_group_size(&w->layout, kind);
	*span = (struct group_links){ .ranks = size, .nodes = 1, .per_node = size };
	*sum = (struct group_cost_sum){ 0, 0 };
	if (size < 2)
		return;
	int groups = list_groups(w, slots, kind, size);
	struct group_links one;
	struct group g = { .w = w, .slots = slots, .n = size, .span = &one, .adding = true };
	place_load_clear(w->load);
	for (int i = 0; i < groups; i++) {
		g.ranks = &w->ranks[i * size];
		flows(&g, kind);
	}
	g.adding = false;
	for (int i = 0; i < groups; i++) {
		g.ranks = &w->ranks[i * size];
		one = (struct group_links){ .ranks = size };
		flows(&g, kind);
		double seconds = place_traffic_seconds(t, kind, &one);
		sum->mean += seconds / groups;
		if (i == 0 || seconds > sum->worst) {
			sum->worst = seconds;
			*span = one;
		}
	}
}

void place_group_flows(struct group_costs *w, const struct cluster_slot *slots,
		       enum group_kind kind, flow_visitor *visit, void *with)
{
	int size = place_group_size(&w->layout, kind), groups = list_groups(w, slots, kind, size);
	struct group_links span = { 0 };
	struct group g = {
		.w = w, .slots = slots, .n = size, .visit = visit, .with = with, .span = &span
	};
	for (int i = 0; i < groups; i++) {
		g.ranks = &w->ranks[i * size];
		flows(&g, kind);
	}
}
