#include "plan/place/link_load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_BANDWIDTH 1e9
#define UNKNOWN_LATENCY   20e-6
/* PCIe 3.0 × 16 between two GPUs: what any GPU that trains has. */
#define UNKNOWN_INSIDE 12e9

enum { OUT, IN };

/* The shared links of one kind of node: their numbers, counted from the node's first link. */
struct node_links {
	int nics;          /* the node's adapters, then one for each device */
	int bridges, numa; /* 0: no way inside the node goes through the CPU */
	int *bridge;       /* [devices] PCIe switch: the smallest device on it */
};

struct link_load {
	const struct cluster *c;
	struct node_links *shapes; /* [n_kinds] */
	int *base;                 /* [n_nodes] the node's first link */
	int *unit, n_units;        /* [n_nodes] */
	int first_uplink;          /* of the switches; each has two links */
	double *capacity, *flow;   /* [links]; capacity INFINITY: no limit */
	int *touched, n_touched, n_links;
};

static double known(double x, double otherwise)
{
	return x > 0 ? x : otherwise;
}

static bool through_cpu(enum link_kind kind)
{
	return kind == LINK_SYS || kind == LINK_NODE || kind == LINK_PHB;
}

static bool one_bridge(enum link_kind kind)
{
	return kind == LINK_PIX || kind == LINK_PXB;
}

static const struct topo_link *link_at(const struct node_kind *k, int a, int b)
{
	return &k->links[a * k->devices + b];
}

static bool has_nic(const struct node_kind *k, int device)
{
	return k->parts && k->nics && k->parts[device].nic >= 0 && k->parts[device].nic < k->n_nics;
}

static int numa_of(const struct node_kind *k, int device)
{
	int numa = k->parts ? k->parts[device].numa : 0;
	return numa > 0 && numa < k->numa ? numa : 0;
}

/* --- The links of a kind of node --- */

static int shape_of(const struct node_kind *k, struct node_links *s)
{
	*s = (struct node_links){ .nics = k->n_nics + k->devices };
	s->bridge = calloc((size_t)(k->devices ? k->devices : 1), sizeof *s->bridge);
	if (!s->bridge)
		return -1;
	for (int a = 0; k->links && a < k->devices; a++) {
		s->bridge[a] = a;
		for (int b = 0; b < k->devices; b++) {
			if (b < a && s->bridge[a] == a && one_bridge(link_at(k, a, b)->kind))
				s->bridge[a] = s->bridge[b];
			if (through_cpu(link_at(k, a, b)->kind)) {
				s->bridges = k->devices;
				s->numa = k->numa > 0 ? k->numa : 1;
			}
		}
	}
	return 0;
}

static int count_links(const struct node_links *s)
{
	return 2 * (s->nics + s->bridges) + s->numa * s->numa;
}

double place_load_inside(const struct node_kind *k, double bandwidth)
{
	double least = fmax(strcmp(k->device, "cpu") ? UNKNOWN_INSIDE : UNKNOWN_BANDWIDTH,
			    k->net_bandwidth);
	for (int i = 0; i < k->n_nics && bandwidth <= 0; i++)
		least = fmax(least, k->nics[i].bandwidth);
	return known(bandwidth, least);
}

static int nic_link(const struct link_load *l, struct cluster_slot at, int direction)
{
	const struct node_kind *k = topo_cluster_kind(l->c, at.node);
	int nic = has_nic(k, at.device) ? k->parts[at.device].nic : k->n_nics + at.device;
	return l->base[at.node] + 2 * nic + direction;
}

static int bridge_link(const struct link_load *l, struct cluster_slot at, int direction)
{
	const struct node_links *s = &l->shapes[l->c->nodes[at.node].kind];
	return l->base[at.node] + 2 * (s->nics + s->bridge[at.device]) + direction;
}

static int socket_link(const struct link_load *l, int node, int from, int to)
{
	const struct node_links *s = &l->shapes[l->c->nodes[node].kind];
	return l->base[node] + 2 * (s->nics + s->bridges) + from * s->numa + to;
}

static void raise_capacity(double *capacity, double x)
{
	*capacity = isinf(*capacity) ? x : fmax(*capacity, x);
}

static void set_node(struct link_load *l, int node)
{
	const struct node_kind *k = topo_cluster_kind(l->c, node);
	const struct node_links *s = &l->shapes[l->c->nodes[node].kind];
	for (int a = 0; a < k->devices; a++) {
		struct cluster_slot at = { node, a };
		double nic = has_nic(k, a) && k->nics[k->parts[a].nic].bandwidth > 0
				     ? k->nics[k->parts[a].nic].bandwidth
				     : k->net_bandwidth;
		for (int direction = OUT; direction <= IN; direction++)
			l->capacity[nic_link(l, at, direction)] = known(nic, UNKNOWN_BANDWIDTH);
		for (int b = 0; s->bridges && b < k->devices; b++) {
			const struct topo_link *link = link_at(k, a, b);
			double bandwidth = place_load_inside(k, link->bandwidth);
			if (!through_cpu(link->kind))
				continue;
			for (int direction = OUT; direction <= IN; direction++)
				raise_capacity(&l->capacity[bridge_link(l, at, direction)],
					       bandwidth);
			if (link->kind == LINK_SYS)
				raise_capacity(&l->capacity[socket_link(l, node, numa_of(k, a),
									numa_of(k, b))],
					       bandwidth);
		}
	}
}

static void number_units(struct link_load *l)
{
	int domains = 0;
	const struct cluster *c = l->c;
	for (int i = 0; i < c->n_nodes; i++)
		domains = c->nodes[i].domain >= domains ? c->nodes[i].domain + 1 : domains;
	for (int i = 0; i < c->n_nodes; i++)
		l->unit[i] = c->nodes[i].domain >= 0 ? c->nodes[i].domain : domains + i;
	l->n_units = domains + c->n_nodes;
}

static int build_links(struct link_load *l)
{
	const struct cluster *c = l->c;
	int n = 0;
	for (int i = 0; i < c->n_kinds; i++)
		if (shape_of(&c->kinds[i], &l->shapes[i]))
			return -1;
	for (int i = 0; i < c->n_nodes; i++) {
		l->base[i] = n;
		n += count_links(&l->shapes[c->nodes[i].kind]);
	}
	l->first_uplink = n;
	l->n_links = n += 2 * c->n_switches;
	l->capacity = malloc((size_t)(n + 1) * sizeof *l->capacity);
	l->flow = calloc((size_t)(n + 1), sizeof *l->flow);
	l->touched = malloc((size_t)(n + 1) * sizeof *l->touched);
	if (!l->capacity || !l->flow || !l->touched)
		return -1;
	for (int i = 0; i < n; i++)
		l->capacity[i] = INFINITY;
	for (int i = 0; i < c->n_nodes; i++)
		set_node(l, i);
	for (int i = 0; i < c->n_switches; i++)
		for (int direction = OUT; direction <= IN; direction++)
			if (c->switches[i].up > 0)
				l->capacity[l->first_uplink + 2 * i + direction] =
					c->switches[i].up;
	number_units(l);
	return 0;
}

int place_load_open(const struct cluster *c, struct link_load **out, struct err *e)
{
	struct link_load *l = calloc(1, sizeof *l);
	if (l) {
		l->c = c;
		l->shapes = calloc((size_t)c->n_kinds + 1, sizeof *l->shapes);
		l->base = calloc((size_t)c->n_nodes + 1, sizeof *l->base);
		l->unit = calloc((size_t)c->n_nodes + 1, sizeof *l->unit);
	}
	if (!l || !l->shapes || !l->base || !l->unit || build_links(l)) {
		place_load_close(l);
		return err_set(e, ERR_NOMEM,
			       "no memory for the links of %d nodes; close other programs",
			       c->n_nodes);
	}
	*out = l;
	return 0;
}

void place_load_close(struct link_load *l)
{
	if (!l)
		return;
	for (int i = 0; l->shapes && i < l->c->n_kinds; i++)
		free(l->shapes[i].bridge);
	free(l->shapes);
	free(l->base);
	free(l->unit);
	free(l->capacity);
	free(l->flow);
	free(l->touched);
	free(l);
}

void place_load_clear(struct link_load *l)
{
	for (int i = 0; i < l->n_touched; i++)
		l->flow[l->touched[i]] = 0;
	l->n_touched = 0;
}

int place_load_unit(const struct link_load *l, int node)
{
	return l->unit[node];
}

int place_load_units(const struct link_load *l)
{
	return l->n_units;
}

const struct cluster *place_load_cluster(const struct link_load *l)
{
	return l->c;
}

/* --- Ways --- */

static void add_shared_link(struct link_path *w, int link)
{
	if (w->n < LOAD_PATH_MAX)
		w->at[w->n++] = link;
}

static int depth_of(const struct cluster *c, int at)
{
	int depth = 0;
	for (; at >= 0; at = c->switches[at].parent)
		depth++;
	return depth;
}

static void take_uplinks(const struct link_load *l, struct cluster_slot from,
			 struct cluster_slot to, struct link_path *w)
{
	const struct cluster *c = l->c;
	int x = c->nodes[from.node].leaf, y = c->nodes[to.node].leaf;
	if (x < 0 || y < 0)
		return;
	bool other_rail = c->rails && x == y &&
			  (nic_link(l, from, OUT) - l->base[from.node] !=
			   nic_link(l, to, OUT) - l->base[to.node]);
	if (x == y && !other_rail)
		return;
	for (int dx = depth_of(c, x), dy = depth_of(c, y); x != y || other_rail;
	     other_rail = false) {
		bool up_x = dx >= dy, up_y = dy >= dx;
		if (up_x && x >= 0)
			add_shared_link(w, l->first_uplink + 2 * x + OUT),
				x = c->switches[x].parent, dx--;
		if (up_y && y >= 0)
			add_shared_link(w, l->first_uplink + 2 * y + IN), y = c->switches[y].parent,
									  dy--;
	}
}

static void way_inside(const struct link_load *l, struct cluster_slot from, struct cluster_slot to,
		       struct link_path *w)
{
	const struct node_kind *k = topo_cluster_kind(l->c, from.node);
	struct topo_link link = topo_cluster_link(k, from.device, to.device);
	double least = fmin(UNKNOWN_LATENCY, known(k->net_latency, UNKNOWN_LATENCY));
	w->bandwidth = place_load_inside(k, link.bandwidth);
	w->latency = known(link.latency, least);
	if (link.kind == LINK_UNKNOWN && k->links)
		w->latency = fmin(w->latency, least);
	w->direct = k->links && (link.kind == LINK_NVLINK || link.kind == LINK_XGMI);
	if (!k->links || !through_cpu(link.kind))
		return;
	add_shared_link(w, bridge_link(l, from, OUT));
	add_shared_link(w, bridge_link(l, to, IN));
	if (link.kind == LINK_SYS)
		add_shared_link(w, socket_link(l, from.node, numa_of(k, from.device),
					       numa_of(k, to.device)));
}

void place_load_path(const struct link_load *l, struct cluster_slot from, struct cluster_slot to,
		     struct link_path *out)
{
	const struct node_kind *k = topo_cluster_kind(l->c, from.node);
	out->n = 0;
	out->direct = false;
	out->across = l->unit[from.node] != l->unit[to.node];
	if (from.node == to.node) {
		way_inside(l, from, to, out);
	} else if (!out->across) {
		out->bandwidth = known(k->link_bandwidth, UNKNOWN_BANDWIDTH);
		out->latency = known(k->link_latency, UNKNOWN_LATENCY);
	} else {
		out->bandwidth = INFINITY; /* the adapters limit it */
		out->latency =
			fmax(known(k->net_latency, UNKNOWN_LATENCY),
			     known(topo_cluster_kind(l->c, to.node)->net_latency, UNKNOWN_LATENCY));
		add_shared_link(out, nic_link(l, from, OUT));
		add_shared_link(out, nic_link(l, to, IN));
		take_uplinks(l, from, to, out);
	}
}

static void add_flow(struct link_load *l, int link, double weight)
{
	if (l->flow[link] == 0)
		l->touched[l->n_touched++] = link;
	l->flow[link] += weight;
}

static double flow_share(const struct link_load *l, int link)
{
	return l->capacity[link] / fmax(l->flow[link], 1e-9);
}

void place_load_add(struct link_load *l, const struct link_path *way, double weight)
{
	for (int i = 0; i < way->n; i++)
		add_flow(l, way->at[i], weight);
}

double place_load_share(const struct link_load *l, const struct link_path *way)
{
	double least = way->bandwidth;
	for (int i = 0; i < way->n; i++)
		least = fmin(least, flow_share(l, way->at[i]));
	return least;
}

void place_load_add_adapter(struct link_load *l, struct cluster_slot at, double weight)
{
	add_flow(l, nic_link(l, at, OUT), weight);
}

double place_load_share_adapter(const struct link_load *l, struct cluster_slot at)
{
	return flow_share(l, nic_link(l, at, OUT));
}

void place_load_add_uplink(struct link_load *l, int sw, double weight)
{
	add_flow(l, l->first_uplink + 2 * sw, weight);
}

double place_load_share_uplink(const struct link_load *l, int sw)
{
	return flow_share(l, l->first_uplink + 2 * sw);
}
