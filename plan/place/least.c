#include "plan/place/least.h"

#include <math.h>

struct figures {
	int n, size[PLACE_EXACT]; /* size: devices of each unit */
	const int *unit;          /* of each device, counted from 0 */
	int units;
	/* the path of a pair, alone */
	struct link_speed path[PLACE_EXACT][PLACE_EXACT];
	bool across[PLACE_EXACT][PLACE_EXACT];
	bool direct;               /* a wire between two devices alone */
	struct link_speed in, out; /* the best in a unit, and between units */
	double adapter;            /* the best one */
	/* the adapters of a unit's devices together, of any unit with so many devices */
	double adapters[PLACE_EXACT + 1];
};

static bool is_chain(enum group_kind kind)
{
	return kind == GROUP_CP || kind == GROUP_PP;
}

/* --- The devices --- */

static void number_units(const struct link_load *load, const struct cluster_slot *devices,
			 struct figures *f, int *unit)
{
	for (int a = 0; a < f->n; a++) {
		int b = 0;
		while (place_load_unit(load, devices[b].node) !=
		       place_load_unit(load, devices[a].node))
			b++;
		unit[a] = b == a ? f->units++ : unit[b];
		f->size[unit[a]]++;
	}
	f->unit = unit;
}

static void improve(struct link_speed *best, const struct link_speed *l)
{
	best->latency = best->bandwidth > 0 ? fmin(best->latency, l->latency) : l->latency;
	best->bandwidth = fmax(best->bandwidth, l->bandwidth);
}

static void measure_path(struct link_load *load, const struct cluster_slot *devices, int a, int b,
			 struct figures *f)
{
	struct link_path way;
	struct link_speed *path = &f->path[a][b];
	place_load_path(load, devices[a], devices[b], &way);
	place_load_clear(load);
	place_load_add(load, &way, 1);
	*path = (struct link_speed){ place_load_share(load, &way), way.latency };
	f->across[a][b] = way.across;
	f->direct |= way.direct;
	improve(way.across ? &f->out : &f->in, path);
}

static void measure_adapters(struct link_load *load, const struct cluster_slot *devices,
			     struct figures *f)
{
	double together[PLACE_EXACT] = { 0 };
	for (int a = 0; a < f->n; a++) {
		place_load_clear(load);
		place_load_add_adapter(load, devices[a], 1);
		f->adapter = fmax(f->adapter, place_load_share_adapter(load, devices[a]));
	}
	place_load_clear(load);
	for (int a = 0; a < f->n; a++)
		place_load_add_adapter(load, devices[a], 1);
	for (int a = 0; a < f->n; a++)
		together[f->unit[a]] += place_load_share_adapter(load, devices[a]);
	for (int u = 0; u < f->units; u++)
		for (int size = 0; size <= f->size[u]; size++)
			f->adapters[size] = fmax(f->adapters[size], together[u]);
}

static void measure(struct link_load *load, const struct cluster_slot *devices, struct figures *f)
{
	measure_adapters(load, devices, f);
	for (int a = 0; a < f->n; a++)
		for (int b = 0; b < f->n; b++)
			if (a != b)
				measure_path(load, devices, a, b, f);
	place_load_clear(load);
}

/* --- On one unit --- */

static double seconds_inside(const struct traffic *t, enum group_kind kind, int ranks,
			     struct link_speed link)
{
	struct group_links span = { .ranks = ranks, .nodes = 1, .per_node = ranks, .inside = link };
	return place_traffic_seconds(t, kind, &span);
}

/* The bandwidth of the device's best link in its unit, or of the second best one. */
static double best_link(const struct figures *f, int device, bool second)
{
	double best = 0, next = 0;
	for (int b = 0; b < f->n; b++) {
		double x = fmax(f->path[device][b].bandwidth, f->path[b][device].bandwidth);
		if (b == device || f->unit[b] != f->unit[device])
			continue;
		next = fmax(next, fmin(best, x));
		best = fmax(best, x);
	}
	return second ? next : best;
}

/* The most that the slowest link of such a group can have: as many devices as it has ranks must
 * each have one link that is as fast, or two. */
static double slowest_link(const struct figures *f, int ranks, bool second)
{
	double slowest = 0;
	for (int a = 0; a < f->n; a++) {
		double x = best_link(f, a, second);
		int as_fast = 0;
		for (int b = 0; b < f->n; b++)
			as_fast += f->unit[b] == f->unit[a] && best_link(f, b, second) >= x;
		if (as_fast >= ranks)
			slowest = fmax(slowest, x);
	}
	return slowest;
}

static double on_one_unit(const struct figures *f, const struct traffic *t, enum group_kind kind,
			  int ranks)
{
	/* a rank of a ring has two neighbours; those of a chain's ends have one */
	bool ring = kind != GROUP_PP && kind != GROUP_EP && ranks > 2;
	struct link_speed link = { slowest_link(f, ranks, ring), f->in.latency };
	if (kind == GROUP_EP && f->direct) /* wires to several devices work at the same time */
		link.bandwidth *= ranks - 1;
	return link.bandwidth > 0 ? seconds_inside(t, kind, ranks, link) : INFINITY;
}

/* --- On several units --- */

static bool is_possible(const struct figures *f, int ranks, int units, int per_unit)
{
	int enough = 0;
	for (int u = 0; u < f->units; u++)
		enough += f->size[u] >= per_unit;
	return enough >= units && units * per_unit <= ranks && ranks <= f->n;
}

static double on_units(const struct figures *f, const struct traffic *t, enum group_kind kind,
		       int ranks, int units, int per_unit)
{
	struct group_links span = { .ranks = ranks,
				    .nodes = units,
				    .per_node = per_unit,
				    .inside = f->in,
				    .across = f->out };
	if (is_chain(kind)) /* which may have no hop inside a unit */
		span.inside = (struct link_speed){ 0, 0 };
	else /* its ranks of one unit send side by side */
		span.across.bandwidth = fmin(kind == GROUP_EP ? f->adapter : f->out.bandwidth,
					     f->adapters[per_unit] / per_unit);
	return place_traffic_seconds(t, kind, &span);
}

static void set_groups(const struct figures *f, const struct traffic *t, enum group_kind kind,
		       int ranks, double on[PLACE_EXACT + 2])
{
	for (int units = PLACE_EXACT + 1; units > 1; units--) {
		on[units] = units <= PLACE_EXACT ? on[units + 1] : INFINITY;
		for (int per_unit = 1; is_possible(f, ranks, units, per_unit); per_unit++)
			on[units] = fmin(on[units], on_units(f, t, kind, ranks, units, per_unit));
	}
	on[1] = fmin(on[2], on_one_unit(f, t, kind, ranks));
}

/* --- Flows --- */

static double of_flow(const struct figures *f, const struct traffic *t, enum group_kind kind,
		      int ranks, int a, int b)
{
	struct group_links span = { .ranks = ranks, .nodes = 1, .per_node = ranks };
	struct link_speed link = f->path[a][b];
	if (!is_chain(kind) && f->units > 1)
		return 0;
	if (kind == GROUP_EP) /* to which one of ranks - 1 parts goes */
		link.bandwidth *= ranks - 1;
	if (!is_chain(kind))
		return seconds_inside(t, kind, ranks, link);
	*(f->across[a][b] ? &span.across : &span.inside) = link;
	return place_traffic_seconds(t, kind, &span);
}

void place_least_of(struct link_load *load, const struct cluster_slot *devices, int n,
		    const struct layout *l, const struct traffic *t, struct least *out)
{
	struct figures f = { .n = n };
	*out = (struct least){ 0 };
	number_units(load, devices, &f, out->unit);
	measure(load, devices, &f);
	out->units = f.units;
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		int ranks = place_group_size(l, kind);
		if (ranks < 2 || !(place_traffic_bytes(t, kind) > 0))
			continue;
		set_groups(&f, t, kind, ranks, out->on[kind]);
		for (int a = 0; a < n; a++)
			for (int b = 0; b < n; b++)
				if (a != b)
					out->flow[kind][a][b] = of_flow(&f, t, kind, ranks, a, b);
	}
}
