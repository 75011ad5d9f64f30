/* group_links_regular — place_group_links_regular: the closed form of place_group_links_of if every
 * node has the same box of ranks. */
#include "plan/place/group_links.h"

#include "base/numbers.h"
#include "plan/place/link_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double known(double x, double otherwise)
{
	return x > 0 ? x : otherwise;
}

/* --- The figures of the cluster --- */

static void least_link(struct link_speed *l, double bandwidth, double latency)
{
	l->bandwidth = l->bandwidth > 0 ? fmin(l->bandwidth, bandwidth) : bandwidth;
	l->latency = fmax(l->latency, latency);
}

/* Adds the bandwidth of a node's adapters while all of its devices send, and its links inside. */
static void add_node(const struct link_load *l, int node, struct regular_cluster *y)
{
	struct link_path way;
	const struct node_kind *k = topo_cluster_kind(place_load_cluster(l), node);
	for (int d = 0; d < k->devices; d++) {
		int sharers = 0;
		for (int b = 0; b < k->devices; b++)
			sharers += b == d || (k->parts && k->nics && k->parts[d].nic >= 0 &&
					      k->parts[d].nic == k->parts[b].nic);
		y->sharers = sharers > y->sharers ? sharers : y->sharers;
		least_link(&y->adapter,
			   place_load_share_adapter(l, (struct cluster_slot){ node, d }),
			   known(k->net_latency, 20e-6));
	}
	if (k->devices > 1) {
		place_load_path(l, (struct cluster_slot){ node, 0 },
				(struct cluster_slot){ node, 1 }, &way);
		least_link(&y->port, k->link_bandwidth > 0 ? k->link_bandwidth : way.bandwidth,
			   known(k->link_latency, way.latency));
	}
}

static void add_level(const struct cluster *c, const int *below, struct regular_cluster *y)
{
	double up = INFINITY;
	int most = 0;
	for (int i = 0; i < c->n_switches; i++) {
		if (!below[i])
			continue;
		most = below[i] > most ? below[i] : most;
		if (c->switches[i].parent >= 0)
			up = fmin(up, known(c->switches[i].up, INFINITY));
	}
	if (most && y->levels < SPAN_LEVELS) {
		y->level[y->levels].units = most;
		y->level[y->levels++].up = up;
	}
}

/* Counts the units below each switch, level by level from the leaves up. below: the units of each
 * leaf; it is overwritten. */
static void add_levels(const struct cluster *c, int *below, int *next, struct regular_cluster *y)
{
	for (bool more = true; more && y->levels < SPAN_LEVELS;) {
		add_level(c, below, y);
		memset(next, 0, (size_t)c->n_switches * sizeof *next);
		more = false;
		for (int i = 0; i < c->n_switches; i++)
			if (below[i] && c->switches[i].parent >= 0) {
				next[c->switches[i].parent] += below[i];
				more = true;
			}
		memcpy(below, next, (size_t)c->n_switches * sizeof *next);
	}
}

/* Counts the units of each leaf. The nodes of a fabric count at the leaf of its first node. */
static int count_units(const struct link_load *l, int *below, struct regular_cluster *y,
		       struct err *e)
{
	const struct cluster *c = place_load_cluster(l);
	int *devices = calloc((size_t)place_load_units(l), sizeof *devices);
	if (!devices)
		return err_set(e, ERR_NOMEM,
			       "no memory for the links of %d nodes; close other programs",
			       c->n_nodes);
	for (int i = 0; i < c->n_nodes; i++) {
		int unit = place_load_unit(l, i);
		if (!devices[unit]) {
			y->units++;
			if (c->switches && c->nodes[i].leaf >= 0)
				below[c->nodes[i].leaf]++;
		}
		devices[unit] += topo_cluster_kind(c, i)->devices;
	}
	for (int u = 0; u < place_load_units(l); u++)
		if (devices[u])
			y->devices = y->devices && y->devices < devices[u] ? y->devices
									   : devices[u];
	free(devices);
	return 0;
}

/* Adds the links of the layout on this node alone, as place_group_links_of finds them. */
static int fill_entry(const struct cluster *one, const struct layout *l, enum group_kind kind,
		      struct link_speed *entry, struct err *e)
{
	struct cluster_slot slots[SPAN_DEVICES];
	struct group_links group_links[GROUP_KINDS];
	for (int i = 0; i < SPAN_DEVICES; i++)
		slots[i] = (struct cluster_slot){ 0, i };
	if (place_group_links_of(one, l, slots, group_links, e))
		return -1;
	least_link(entry, group_links[kind].inside.bandwidth, group_links[kind].inside.latency);
	return 0;
}

/* Fills the entries for groups of n ranks that are `apart` devices apart, with as many groups side
 * by side as there is room for. Stages come last in the order of ranks. */
static int fill_entries(const struct cluster *one, int devices, int n, int apart, bool round,
			struct regular_cluster *y, struct err *e)
{
	int more = devices / (n * apart), chunks = round ? 2 : 1;
	/* clang-format off */
	const struct layout rows[GROUP_KINDS] = {
		[GROUP_TP] = { .tp = n, .dp = 1, .cp = apart, .pp = more, .ep = 1 }, [GROUP_CP] = { .tp = apart, .cp = n, .dp = more, .pp = 1, .ep = 1 },
		[GROUP_EP] = { .tp = apart, .cp = 1, .dp = n * more, .pp = 1, .ep = n }, [GROUP_DP] = { .tp = apart, .cp = 1, .dp = n, .pp = more, .ep = 1 },
		[GROUP_EDP] = { .tp = apart, .cp = 1, .dp = n, .pp = more, .ep = 1 }, [GROUP_PP] = { .tp = apart, .cp = 1, .dp = 1, .pp = n, .ep = 1 },
		[GROUP_TIE] = { .tp = apart, .cp = 1, .dp = 1, .pp = n, .ep = 1 },
	};
	/* clang-format on */
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		struct layout l = rows[kind];
		l.chunks = chunks;
		if (fill_entry(one, &l, kind, &y->inside[round][kind][n][apart], e))
			return -1;
	}
	return 0;
}

static int fill_table(const struct cluster *c, int node, struct regular_cluster *y, struct err *e)
{
	struct cluster one = {
		.kinds = c->kinds, .n_kinds = c->n_kinds, .nodes = &c->nodes[node], .n_nodes = 1
	};
	int devices = topo_cluster_kind(c, node)->devices;
	for (int n = 2; n <= devices; n++)
		for (int apart = 1; n * apart <= devices; apart++)
			if (fill_entries(&one, devices, n, apart, false, y, e) ||
			    fill_entries(&one, devices, n, apart, true, y, e))
				return -1;
	return 0;
}

/* Fills the tables from one node of each kind whose links differ. */
static int fill_tables(const struct cluster *c, struct regular_cluster *y, struct err *e)
{
	for (int k = 0; k < c->n_kinds; k++) {
		int node = 0;
		while (node < c->n_nodes &&
		       (c->nodes[node].kind != k || c->nodes[node].domain >= 0))
			node++;
		if (node == c->n_nodes || !c->kinds[k].links || c->kinds[k].switched ||
		    c->kinds[k].devices > SPAN_DEVICES)
			continue;
		y->table = true;
		if (fill_table(c, node, y, e))
			return -1;
	}
	return 0;
}

int place_regular_cluster_of(const struct cluster *c, struct regular_cluster *out, struct err *e)
{
	struct link_load *l;
	int *below = calloc(2 * (size_t)c->n_switches + 1, sizeof *below), rc;
	if (!below)
		return err_set(e, ERR_NOMEM, "no memory for %d switches; close other programs",
			       c->n_switches);
	*out = (struct regular_cluster){ 0 };
	rc = place_load_open(c, &l, e);
	if (!rc) {
		for (int i = 0; i < c->n_nodes; i++)
			for (int d = 0; d < topo_cluster_kind(c, i)->devices; d++)
				place_load_add_adapter(l, (struct cluster_slot){ i, d }, 1);
		for (int i = 0; i < c->n_nodes; i++)
			add_node(l, i, out);
		rc = count_units(l, below, out, e) || fill_tables(c, out, e) ? -1 : 0;
		if (!rc && c->switches)
			add_levels(c, below, below + c->n_switches, out);
		place_load_close(l);
	}
	free(below);
	return rc;
}

/* --- The closed form --- */

struct rank_box place_block_box(const struct regular_cluster *y, const struct layout *l)
{
	const int degrees[] = { l->tp, l->cp, l->dp, l->pp };
	int room = y->devices, at[4];
	for (int i = 0; i < 4; i++) {
		/* Takes the largest number that fits and divides the degree. If that splits a
		 * degree, all later degrees stay outside the node. */
		at[i] = degrees[i] < room ? degrees[i] : room;
		while (degrees[i] % at[i])
			at[i]--;
		room = at[i] < degrees[i] ? 1 : room / at[i];
	}
	return (struct rank_box){ at[0], at[1], at[2], at[3] };
}

/* The box below a switch, made of its nodes' boxes. It takes the remaining degrees, tp first. */
static struct rank_box box_below_switch(const struct layout *l, const struct rank_box *f, int units)
{
	const int left[] = { l->tp / f->tp, l->cp / f->cp, l->dp / f->dp, l->pp / f->pp };
	int at[4];
	for (int i = 0; i < 4; i++) {
		at[i] = min_int(left[i], units);
		units = at[i] < left[i] ? 1 : units / at[i];
	}
	return (struct rank_box){ f->tp * at[0], f->cp * at[1], f->dp * at[2], f->pp * at[3] };
}

static int box(const struct rank_box *f)
{
	return f->tp * f->cp * f->dp * f->pp;
}

/* Number of ranks of a group of this kind in such a box. */
static int ranks_in(const struct layout *l, const struct rank_box *f, enum group_kind kind)
{
	switch (kind) {
	case GROUP_TP:
		return f->tp;
	case GROUP_CP:
		return f->cp;
	case GROUP_EP:
		return min_int(f->dp, l->ep);
	case GROUP_DP:
		return f->cp * f->dp;
	case GROUP_EDP:
		return f->cp * (f->dp > l->ep ? f->dp / l->ep : 1);
	case GROUP_PP:
		return f->pp;
	default:
		return f->pp == l->pp && l->pp > 1 ? 2 : 1;
	}
}

/* Distance in devices between the neighbours of a group in such a box. */
static int apart_in(const struct layout *l, const struct rank_box *f, enum group_kind kind)
{
	int dp = f->tp * f->cp;
	switch (kind) {
	case GROUP_TP:
		return 1;
	case GROUP_CP:
		return f->tp;
	case GROUP_EP:
		return dp;
	case GROUP_DP:
		return f->cp > 1 ? f->tp : dp;
	case GROUP_EDP:
		return f->cp > 1 ? f->tp : dp * l->ep;
	case GROUP_PP:
		return dp * f->dp;
	default:
		return dp * f->dp; /* between stages */
	}
}

static struct link_speed inside_of(const struct regular_cluster *y, const struct layout *l,
				   const struct rank_box *f, enum group_kind kind, int n)
{
	int apart = apart_in(l, f, kind), entry = kind == GROUP_TIE ? l->pp : n;
	if (!y->table || entry * apart > SPAN_DEVICES ||
	    !(y->inside[0][kind][entry][apart].bandwidth > 0))
		return y->port;
	return y->inside[l->chunks > 1 && !l->vee && n == l->pp][kind][entry][apart];
}

/* Number of neighbouring devices of a node that send to other nodes: all of its ranks. In hops and
 * chains only the last rank of each group sends. */
static int senders(const struct rank_box *f, enum group_kind kind)
{
	if (kind == GROUP_CP && f->cp > 1)
		return f->tp;
	return kind == GROUP_PP || kind == GROUP_TIE ? f->tp * f->cp * f->dp : box(f);
}

/* A rank's share of the uplinks of a switch at this level, if its group has ranks outside of that
 * switch. */
static double uplink_share(const struct regular_cluster *y, const struct layout *l,
			   const struct rank_box *below, enum group_kind kind, int level,
			   const struct group_links *s)
{
	int mine = ranks_in(l, below, kind), all = box(below);
	if (mine >= s->ranks || isinf(y->level[level].up))
		return INFINITY;
	if (kind == GROUP_EP)
		return y->level[level].up * (s->ranks - s->per_node) /
		       ((double)all * (s->ranks - mine));
	/* Each group crosses the uplink once, side by side with as many ranks as it has on a node.
	 * In chains and hops only one rank crosses. */
	double groups = (double)all / mine,
	       side = kind == GROUP_CP || kind == GROUP_PP ? 1 : s->per_node;
	if (kind == GROUP_TIE)
		groups = (double)all / below->pp; /* of one end; the other is elsewhere */
	return y->level[level].up / (groups * side);
}

void place_group_links_nested(const struct regular_cluster *y, const struct layout *l,
			      const struct rank_box *f, const struct rank_box *below,
			      struct group_links group_links[GROUP_KINDS])
{
	for (int kind = 0; kind < GROUP_KINDS; kind++) {
		int n = place_group_size(l, kind), mine = ranks_in(l, f, kind);
		struct group_links *s = &group_links[kind];
		*s = (struct group_links){ .ranks = n,
					   .nodes = (n + mine - 1) / mine,
					   .per_node = mine };
		if (n < 2)
			continue;
		if (mine > 1)
			s->inside = inside_of(y, l, f, kind, mine);
		if (s->nodes < 2)
			continue;
		s->across = y->adapter;
		s->across.bandwidth *= (double)y->sharers / min_int(senders(f, kind), y->sharers);
		for (int level = 0; level < y->levels; level++)
			s->across.bandwidth =
				fmin(s->across.bandwidth,
				     uplink_share(y, l, &below[level], kind, level, s));
		if (kind == GROUP_EP && mine > 1) /* both transfers run at the same time */
			s->across.bandwidth = fmin(s->across.bandwidth,
						   s->inside.bandwidth * (n - mine) / (mine - 1));
	}
}

void place_group_links_regular(const struct regular_cluster *y, const struct layout *l,
			       const struct rank_box *f,
			       struct group_links group_links[GROUP_KINDS])
{
	struct rank_box below[SPAN_LEVELS];
	for (int level = 0; level < y->levels; level++)
		below[level] = box_below_switch(l, f, y->level[level].units);
	place_group_links_nested(y, l, f, below, group_links);
}
