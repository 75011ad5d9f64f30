#include "plan/place/symmetry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- Devices --- */

/* The path between two devices, and in its place for a device and itself the switches above it. */
struct pair {
	bool across, direct;
	double bandwidth, latency;
	int n;
	short at[LOAD_PATH_MAX]; /* index into links */
};

/* A shared link, or a switch. */
struct shared {
	int id;
	bool is_switch;
	double capacity;
};

struct symmetry {
	int n;
	struct pair pairs[PLACE_EXACT][PLACE_EXACT];
	struct shared *links;
	int n_links;
	/* the permutation that is being built; -1: open */
	int to[PLACE_EXACT];
	bool taken[PLACE_EXACT];
	short *link_to, *link_from; /* [n_links] */
	short *changed; /* [n_links] links that have an image, in the order they got it */
	int n_changed;
};

static int number_link(struct symmetry *s, int id, bool is_switch, double capacity)
{
	for (int i = 0; i < s->n_links; i++)
		if (s->links[i].id == id && s->links[i].is_switch == is_switch)
			return i;
	s->links[s->n_links] = (struct shared){ id, is_switch, capacity };
	return s->n_links++;
}

static void describe_pair(struct symmetry *s, const struct link_load *load, struct cluster_slot a,
			  struct cluster_slot b, struct pair *out)
{
	struct link_path way, one = { .bandwidth = INFINITY, .n = 1 };
	place_load_path(load, a, b, &way);
	*out = (struct pair){ .across = way.across,
			      .direct = way.direct,
			      .bandwidth = way.bandwidth,
			      .latency = way.latency,
			      .n = way.n };
	for (int i = 0; i < way.n; i++) {
		one.at[0] = way.at[i];
		out->at[i] = (short)number_link(s, way.at[i], false, place_load_share(load, &one));
	}
}

static void describe_switches(struct symmetry *s, const struct link_load *load,
			      struct cluster_slot a, struct pair *out)
{
	const struct cluster *c = place_load_cluster(load);
	*out = (struct pair){ .n = 0 };
	for (int at = c->nodes[a.node].leaf; c->switches && at >= 0 && out->n < LOAD_PATH_MAX;
	     at = c->switches[at].parent)
		out->at[out->n++] = (short)number_link(s, at, true,
						       place_load_share_uplink(load, at));
}

int place_symmetry_open(const struct link_load *load, const struct cluster_slot *devices, int n,
			struct symmetry **out, struct err *e)
{
	const size_t most = (size_t)n * (size_t)n * LOAD_PATH_MAX;
	struct symmetry *s = calloc(1, sizeof *s);
	if (s) {
		s->n = n;
		s->links = calloc(most, sizeof *s->links);
	}
	if (s && s->links) {
		for (int a = 0; a < n; a++)
			for (int b = 0; b < n; b++)
				if (a == b)
					describe_switches(s, load, devices[a], &s->pairs[a][a]);
				else
					describe_pair(s, load, devices[a], devices[b],
						      &s->pairs[a][b]);
		s->link_to = calloc(3 * ((size_t)s->n_links + 1), sizeof *s->link_to);
	}
	if (!s || !s->link_to) {
		place_symmetry_close(s);
		return err_set(e, ERR_NOMEM,
			       "no memory to compare %d devices; close other programs", n);
	}
	s->link_from = s->link_to + s->n_links;
	s->changed = s->link_from + s->n_links;
	memset(s->link_to, -1, 2 * (size_t)s->n_links * sizeof *s->link_to);
	*out = s;
	return 0;
}

void place_symmetry_close(struct symmetry *s)
{
	if (!s)
		return;
	free(s->links);
	free(s->link_to);
	free(s);
}

static bool map_link(struct symmetry *s, short from, short to)
{
	const struct shared *a = &s->links[from], *b = &s->links[to];
	if (s->link_to[from] >= 0 || s->link_from[to] >= 0)
		return s->link_to[from] == to;
	if (a->is_switch != b->is_switch || a->capacity != b->capacity)
		return false;
	s->link_to[from] = to;
	s->link_from[to] = from;
	s->changed[s->n_changed++] = from;
	return true;
}

static void forget_links(struct symmetry *s, int after)
{
	while (s->n_changed > after) {
		short from = s->changed[--s->n_changed];
		s->link_from[s->link_to[from]] = -1;
		s->link_to[from] = -1;
	}
}

static bool map_pair(struct symmetry *s, const struct pair *from, const struct pair *to)
{
	bool same = from->across == to->across && from->direct == to->direct &&
		    from->bandwidth == to->bandwidth && from->latency == to->latency &&
		    from->n == to->n;
	for (int i = 0; same && i < from->n; i++)
		same = map_link(s, from->at[i], to->at[i]);
	return same;
}

static bool map_device(struct symmetry *s, int from, int to)
{
	int before = s->n_changed;
	bool same = !s->taken[to];
	s->to[from] = to;
	for (int b = 0; same && b < s->n; b++)
		same = s->to[b] < 0 || (map_pair(s, &s->pairs[from][b], &s->pairs[to][s->to[b]]) &&
					map_pair(s, &s->pairs[b][from], &s->pairs[s->to[b]][to]));
	if (!same) {
		forget_links(s, before);
		s->to[from] = -1;
	}
	s->taken[to] |= same;
	return same;
}

/* Completes the permutation. A device that can stay where it is does so first. */
static bool complete(struct symmetry *s)
{
	int from = 0, before = s->n_changed;
	while (from < s->n && s->to[from] >= 0)
		from++;
	for (int i = 0; i < s->n && from < s->n; i++) {
		int to = i == 0 ? from : i <= from ? i - 1 : i;
		if (!map_device(s, from, to))
			continue;
		if (complete(s))
			return true;
		forget_links(s, before);
		s->to[from] = -1;
		s->taken[to] = false;
	}
	return from == s->n;
}

bool place_symmetry_exists(struct symmetry *s, const int *fixed, int n_fixed, int a, int b)
{
	bool found = true;
	for (int i = 0; i < s->n; i++) {
		s->to[i] = -1;
		s->taken[i] = false;
	}
	for (int i = 0; i < n_fixed && found; i++)
		found = map_device(s, fixed[i], fixed[i]);
	found = found && map_device(s, a, b) && complete(s);
	forget_links(s, 0);
	return found;
}

/* --- Ranks --- */

static bool is_rotation(const int *a, const int *b, int n)
{
	for (int by = 0; by < n; by++) {
		int same = 0;
		while (same < n && a[same] == b[(same + by) % n])
			same++;
		if (same == n)
			return true;
	}
	return false;
}

static bool is_permutation(const int *a, const int *b, int n)
{
	unsigned ranks_a = 0, ranks_b = 0;
	for (int i = 0; i < n; i++) {
		ranks_a |= 1u << a[i];
		ranks_b |= 1u << b[i];
	}
	return ranks_a == ranks_b;
}

/* Whether two orders of a group have the same flows on every map. Over several units the order
 * decides which ranks are neighbours across them. */
static bool same_flows(enum group_kind kind, bool one_unit, const int *a, const int *b, int n)
{
	if (!memcmp(a, b, (size_t)n * sizeof *a))
		return true;
	if (kind == GROUP_PP)
		return false;
	if (kind == GROUP_EP && one_unit)
		return is_permutation(a, b, n);
	return (n == 2 || one_unit) && is_rotation(a, b, n);
}

static int shift_rank(const struct layout *l, int rank, const struct coords *by)
{
	struct coords at = layout_coords(l, rank);
	at.tp = (at.tp + by->tp) % l->tp;
	at.cp = (at.cp + by->cp) % l->cp;
	at.dp = (at.dp + by->dp) % l->dp;
	return layout_rank(l, at);
}

static bool keeps_groups(const struct layout *l, enum group_kind kind, bool one_unit,
			 const struct coords *by)
{
	int size = place_group_size(l, kind), world = layout_world(l);
	int ranks[PLACE_EXACT], other[PLACE_EXACT];
	for (int lead = 0; lead < world; lead++) {
		bool found = !place_group_leads(l, kind, lead);
		if (found)
			continue;
		place_group_ranks(l, kind, lead, ranks);
		for (int i = 0; i < size; i++)
			ranks[i] = shift_rank(l, ranks[i], by);
		for (int to = 0; to < world && !found; to++) {
			if (!place_group_leads(l, kind, to))
				continue;
			place_group_ranks(l, kind, to, other);
			found = same_flows(kind, one_unit, ranks, other, size);
		}
		if (!found)
			return false;
	}
	return true;
}

bool place_symmetry_of_ranks(const struct layout *l, const struct traffic *t, bool one_unit,
			     int rank)
{
	struct coords by = layout_coords(l, rank);
	if (by.pp > 0)
		return false;
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		if (place_traffic_bytes(t, kind) > 0 && place_group_size(l, kind) > 1 &&
		    !keeps_groups(l, kind, one_unit, &by))
			return false;
	return true;
}
