#include "plan/place/exact.h"

#include "plan/place/link_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- Equal devices --- */

struct device {
	struct cluster_slot slot;
	bool used;
};

/* Whether two devices have equal adapters. An adapter of only one device equals any other such
 * adapter with the same figures, unless positions count. */
static bool same_adapter(const struct cluster *c, const struct node_kind *k, int a, int b)
{
	if (!k->parts || !k->nics)
		return !c->rails;
	int x = k->parts[a].nic, y = k->parts[b].nic, sharing = 0;
	if (x == y)
		return true;
	if (c->rails || x < 0 || y < 0 || k->nics[x].bandwidth != k->nics[y].bandwidth)
		return false;
	for (int i = 0; i < k->devices; i++)
		sharing += k->parts[i].nic == x || k->parts[i].nic == y;
	return sharing == 2;
}

static bool same_link(const struct topo_link *a, const struct topo_link *b)
{
	return a->kind == b->kind && a->bandwidth == b->bandwidth && a->latency == b->latency;
}

/* Whether the node stays the same if devices a and b are exchanged. */
static bool alike(const struct cluster *c, int node, int a, int b)
{
	const struct node_kind *k = topo_cluster_kind(c, node);
	if (!same_adapter(c, k, a, b) ||
	    (k->parts && k->links && k->parts[a].numa != k->parts[b].numa))
		return false;
	for (int i = 0; k->links && i < k->devices; i++) {
		const struct topo_link *row = &k->links[i * k->devices],
				       *other = &k->links[(i == a   ? b
							   : i == b ? a
								    : i) *
							  k->devices];
		for (int j = 0; j < k->devices; j++)
			if (i != j && !same_link(&row[j], &other[j == a ? b : j == b ? a : j]))
				return false;
	}
	return true;
}

/* --- The search --- */

struct exact_search {
	const struct cluster *c;
	struct layout layout;
	const struct traffic *t;
	struct group_costs *w;
	struct device *devices;
	int n, world;
	struct place_cost best, least;           /* least: no map is faster */
	int whole[PLACE_EXACT + 1][GROUP_KINDS]; /* groups that are complete after so many ranks */
	struct cluster_slot *now, *found;
};

/* Whether an earlier free device gives the same result: an equal device of the same node, or a
 * device of an equal node that is entirely free. */
static bool repeats(const struct exact_search *s, int i)
{
	const struct cluster *c = s->c;
	int node = s->devices[i].slot.node;
	bool empty = true;
	for (int k = 0; k < s->n; k++)
		empty &= s->devices[k].slot.node != node || !s->devices[k].used;
	for (int k = 0; k < i; k++) {
		const struct cluster_node *mine = &c->nodes[node],
					  *other = &c->nodes[s->devices[k].slot.node];
		if (s->devices[k].used)
			continue;
		if (s->devices[k].slot.node == node) {
			if (alike(c, node, s->devices[k].slot.device, s->devices[i].slot.device))
				return true;
		} else if (empty && other->kind == mine->kind && other->leaf == mine->leaf &&
			   other->domain == mine->domain &&
			   s->devices[k].slot.device == s->devices[i].slot.device) {
			bool free = true;
			for (int d = 0; d < s->n; d++)
				free &= s->devices[d].slot.node != s->devices[k].slot.node ||
					!s->devices[d].used;
			if (free)
				return true;
		}
	}
	return false;
}

/* Lower bounds for all maps that begin with the ranks placed so far. */
struct bound {
	struct place_cost cost;
	double mean[GROUP_KINDS];
};

static void bound(struct exact_search *s, int placed, const struct bound *before, struct bound *out)
{
	struct group_links span;
	struct group_cost_sum sum;
	*out = *before;
	out->cost.total = out->cost.mean = 0;
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		double least = s->least.seconds[kind];
		int whole = s->whole[placed][kind], all = s->whole[s->world][kind];
		if (least > 0 && whole > s->whole[placed - 1][kind]) {
			place_group_costs_of_kind(s->w, s->now, kind, s->t, &span, &sum);
			out->cost.seconds[kind] = fmax(least, sum.worst);
			out->mean[kind] = (whole * fmax(least, sum.mean) + (all - whole) * least) /
					  all;
		}
		out->cost.total += (1 - s->t->hidden[kind]) * out->cost.seconds[kind];
		out->cost.mean += (1 - s->t->hidden[kind]) * out->mean[kind];
	}
}

static void descend(struct exact_search *s, int rank, const struct bound *before)
{
	struct bound here;
	if (rank == s->world) {
		struct place_cost cost;
		place_map_cost(s->w, s->now, s->t, &cost);
		if (place_better(&cost, &s->best)) {
			s->best = cost;
			memcpy(s->found, s->now, (size_t)s->world * sizeof *s->now);
		}
		return;
	}
	for (int i = 0; i < s->n; i++) {
		if (s->devices[i].used || repeats(s, i))
			continue;
		s->devices[i].used = true;
		s->now[rank] = s->devices[i].slot;
		bound(s, rank + 1, before, &here);
		if (place_better(&here.cost, &s->best))
			descend(s, rank + 1, &here);
		s->now[rank].node = -1;
		s->devices[i].used = false;
	}
}

/* Sets whole[n][kind]: a group is complete when its last rank is placed. */
static void mark_ends(struct exact_search *s)
{
	int ranks[PLACE_EXACT];
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		int size = place_group_size(&s->layout, kind);
		for (int lead = 0; size > 1 && lead < s->world; lead++) {
			int last = 0;
			if (!place_group_leads(&s->layout, kind, lead))
				continue;
			place_group_ranks(&s->layout, kind, lead, ranks);
			for (int i = 0; i < size; i++)
				last = ranks[i] > last ? ranks[i] : last;
			for (int i = last + 1; i <= s->world; i++)
				s->whole[i][kind]++;
		}
	}
}

/* Sets the lower bounds: seconds over the best links of the cluster, side by side on as many
 * adapters as the group has ranks. */
static void set_least(struct exact_search *s)
{
	double link = 0, adapter = 0;
	for (int i = 0; i < s->c->n_kinds; i++) {
		const struct node_kind *k = &s->c->kinds[i];
		link = fmax(link, k->link_bandwidth);
		/* the bandwidth that link_load.h assumes if it is unknown */
		adapter = fmax(adapter, fmax(k->net_bandwidth, 1e9));
		for (int n = 0; n < k->n_nics; n++)
			adapter = fmax(adapter, k->nics[n].bandwidth);
		for (int l = 0; k->links && l < k->devices * k->devices; l++)
			link = fmax(link, k->links[l].bandwidth);
		link = fmax(link, place_load_inside(k, 0));
	}
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		int n = place_group_size(&s->layout, kind);
		struct group_links span = { .ranks = n,
					    .nodes = 1,
					    .per_node = n,
					    .inside = { n * fmax(link, adapter), 0 } };
		s->least.seconds[kind] = n > 1 ? place_traffic_seconds(s->t, kind, &span) : 0;
	}
}

static int list_devices(const struct cluster *c, struct device **out)
{
	int n = 0;
	*out = calloc((size_t)topo_cluster_devices(c) + 1, sizeof **out);
	for (int i = 0; *out && i < c->n_nodes; i++)
		for (int d = 0; d < topo_cluster_kind(c, i)->devices; d++)
			(*out)[n++].slot = (struct cluster_slot){ i, d };
	return n;
}

int place_exact_best(const struct cluster *c, const struct layout *l, const struct traffic *t,
		     struct group_costs *w, struct cluster_slot *slots, struct place_cost *cost,
		     struct err *e)
{
	struct cluster_slot now[PLACE_EXACT];
	struct exact_search s = { .c = c,
				  .layout = *l,
				  .t = t,
				  .w = w,
				  .world = layout_world(l),
				  .best = *cost,
				  .now = now,
				  .found = slots };
	s.n = list_devices(c, &s.devices);
	if (!s.devices)
		return err_set(e, ERR_NOMEM,
			       "no memory for the devices of %s; close other programs", c->name);
	for (int i = 0; i < s.world; i++)
		now[i] = (struct cluster_slot){ -1, 0 };
	mark_ends(&s);
	set_least(&s);
	struct bound none = { .cost = s.least };
	memcpy(none.mean, s.least.seconds, sizeof none.mean);
	descend(&s, 0, &none);
	*cost = s.best;
	free(s.devices);
	return 0;
}
