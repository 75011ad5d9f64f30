#include "plan/place/device_order.h"

#include <stdlib.h>
#include <string.h>

/* A node, or the nodes that share an NVLink fabric. */
struct device_unit {
	int first, nodes; /* positions in h->nodes */
	int devices, leaf, index;
	double links; /* bandwidth of all pairs together */
};

struct leaf {
	int leaf, room; /* room: number of boxes */
	double links;
	int first; /* its first unit in the cluster's order */
};

struct device_order {
	const struct cluster *c;
	int *nodes;                        /* [n_nodes] the nodes, unit by unit */
	struct device_unit *units, *order; /* in the cluster's order; in filling order */
	struct leaf *leaves; /* [n_switches + 1]; the last one is for nodes without a leaf */
	int n;
};

static double sum_link_bandwidth(const struct node_kind *k)
{
	double sum = k->links ? 0 : k->link_bandwidth * k->devices;
	for (int i = 0; k->links && i < k->devices * k->devices; i++)
		sum += k->links[i].bandwidth;
	return sum;
}

static void add_unit(struct device_order *h, int node, int *at)
{
	const struct cluster *c = h->c;
	struct device_unit *u = &h->units[h->n];
	*u = (struct device_unit){ .first = *at, .leaf = c->nodes[node].leaf, .index = h->n };
	for (int i = node; i < c->n_nodes; i++) {
		if (!topo_cluster_share_nvlink(c, node, i))
			continue;
		h->nodes[(*at)++] = i;
		u->nodes++;
		u->devices += topo_cluster_kind(c, i)->devices;
		u->links += sum_link_bandwidth(topo_cluster_kind(c, i));
		if (c->nodes[node].domain < 0)
			break;
	}
	h->n++;
}

int place_device_order_open(const struct cluster *c, struct device_order **out, struct err *e)
{
	struct device_order *h = calloc(1, sizeof *h);
	int domains = 0;
	for (int i = 0; i < c->n_nodes; i++)
		domains = c->nodes[i].domain >= domains ? c->nodes[i].domain + 1 : domains;
	bool *seen = calloc((size_t)domains + 1, sizeof *seen);
	if (h) {
		h->c = c;
		h->nodes = calloc((size_t)c->n_nodes + 1, sizeof *h->nodes);
		h->units = calloc((size_t)c->n_nodes + 1, sizeof *h->units);
		h->order = calloc((size_t)c->n_nodes + 1, sizeof *h->order);
		h->leaves = calloc((size_t)c->n_switches + 2, sizeof *h->leaves);
	}
	if (!h || !seen || !h->nodes || !h->units || !h->order || !h->leaves) {
		free(seen);
		place_device_order_close(h);
		return err_set(e, ERR_NOMEM, "no memory for %d nodes; close other programs",
			       c->n_nodes);
	}
	for (int i = 0, at = 0; i < c->n_nodes; i++) {
		int domain = c->nodes[i].domain;
		if (domain >= 0 && seen[domain])
			continue;
		if (domain >= 0)
			seen[domain] = true;
		add_unit(h, i, &at);
	}
	free(seen);
	*out = h;
	return 0;
}

void place_device_order_close(struct device_order *h)
{
	if (!h)
		return;
	free(h->nodes);
	free(h->units);
	free(h->order);
	free(h->leaves);
	free(h);
}

int place_device_order_node_sizes(const struct device_order *h, int *sizes, int most)
{
	int n = 0;
	for (int u = 0; u < h->n; u++) {
		int at = 0, size = h->units[u].devices;
		while (at < n && sizes[at] < size)
			at++;
		if (size < 1 || (at < n && sizes[at] == size) || n == most)
			continue;
		memmove(&sizes[at + 1], &sizes[at], (size_t)(n - at) * sizeof *sizes);
		sizes[at] = size;
		n++;
	}
	return n;
}

bool place_device_order_fits(const struct device_order *h, int box, int ranks)
{
	int64_t room = 0;
	for (int u = 0; u < h->n; u++)
		room += h->units[u].devices / box * box;
	return room >= ranks;
}

/* --- The order of nodes --- */

static int by_leaf(const void *a, const void *b)
{
	const struct device_unit *x = a, *y = b;
	return x->leaf != y->leaf ? (x->leaf > y->leaf) - (x->leaf < y->leaf) : x->index - y->index;
}

static int by_worth(const void *a, const void *b)
{
	const struct device_unit *x = a, *y = b;
	if (x->leaf != y->leaf)
		return (x->leaf > y->leaf) - (x->leaf < y->leaf);
	if (x->devices != y->devices)
		return y->devices - x->devices;
	if (x->links != y->links)
		return (x->links < y->links) - (x->links > y->links);
	return x->index - y->index;
}

/* Orders leaves: most room first, then better links, then the cluster's order. */
static int by_room(const void *a, const void *b)
{
	const struct leaf *x = a, *y = b;
	if (x->room != y->room)
		return y->room - x->room;
	if (x->links != y->links)
		return (x->links < y->links) - (x->links > y->links);
	return x->first - y->first;
}

/* The number of boxes that a leaf takes if boxes come in multiples of `together`. */
static int rounded(int room, int together)
{
	return room / together * together;
}

static int list_leaves(struct device_order *h, int box, int together)
{
	int n = 0;
	for (int u = 0; u < h->n; u++) {
		const struct device_unit *unit = &h->order[u];
		if (u == 0 || unit->leaf != h->order[u - 1].leaf)
			h->leaves[n++] = (struct leaf){ .leaf = unit->leaf, .first = unit->index };
		h->leaves[n - 1].room += unit->devices / box;
		h->leaves[n - 1].links += unit->links;
	}
	for (int i = 0; i < n; i++)
		h->leaves[i].room = rounded(h->leaves[i].room, together);
	return n;
}

/* Chooses the leaf that takes the last boxes: the smallest one that has room for them. */
static void choose_last(struct device_order *h, int n, int boxes)
{
	int i = 0;
	while (i < n && boxes > h->leaves[i].room)
		boxes -= h->leaves[i++].room;
	if (i == n)
		return;
	int best = i;
	for (int k = i + 1; k < n; k++)
		if (h->leaves[k].room >= boxes && (h->leaves[k].room < h->leaves[best].room ||
						   (h->leaves[k].room == h->leaves[best].room &&
						    h->leaves[k].links > h->leaves[best].links)))
			best = k;
	struct leaf keep = h->leaves[best];
	memmove(&h->leaves[i + 1], &h->leaves[i], (size_t)(best - i) * sizeof keep);
	h->leaves[i] = keep;
}

static int by_given(const void *a, const void *b)
{
	const struct leaf *x = a, *y = b;
	return x->first - y->first;
}

/* --- The boxes --- */

static struct cluster_slot device_of(const struct device_order *h, const struct device_unit *u,
				     int i, int *const *order)
{
	const struct cluster *c = h->c;
	for (int n = 0; n < u->nodes; n++) {
		int node = h->nodes[u->first + n], kind = c->nodes[node].kind,
		    devices = c->kinds[kind].devices;
		if (i < devices)
			return (struct cluster_slot){ node, u->nodes == 1 && order && order[kind]
								    ? order[kind][i]
								    : i };
		i -= devices;
	}
	return (struct cluster_slot){ -1, 0 };
}

/* The first unit of a leaf in h->order. */
static int find_leaf(const struct device_order *h, int leaf)
{
	int lo = 0, hi = h->n;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (h->order[mid].leaf < leaf)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int fill_leaf(const struct device_order *h, const struct leaf *leaf, int box, int boxes,
		     int *const *order, struct cluster_slot *out)
{
	int done = 0, room = leaf->room < boxes ? leaf->room : boxes;
	for (int u = find_leaf(h, leaf->leaf);
	     u < h->n && h->order[u].leaf == leaf->leaf && done < room; u++)
		for (int k = 0; k < h->order[u].devices / box && done < room; k++, done++)
			for (int i = 0; i < box; i++)
				out[done * box + i] = device_of(h, &h->order[u], k * box + i,
								order);
	return done;
}

bool place_device_order_fill(struct device_order *h, enum node_order how, int box, int boxes,
			     int together, int *const *order, struct cluster_slot *out)
{
	int room = 0, done = 0, n;
	memcpy(h->order, h->units, (size_t)h->n * sizeof *h->order);
	qsort(h->order, (size_t)h->n, sizeof *h->order,
	      how == NODE_ORDER_GIVEN ? by_leaf : by_worth);
	n = list_leaves(h, box, together);
	for (int i = 0; i < n; i++)
		room += h->leaves[i].room;
	if (room < boxes && together > 1)
		return place_device_order_fill(h, how, box, boxes, 1, order, out);
	if (room < boxes)
		return false;
	qsort(h->leaves, (size_t)n, sizeof *h->leaves,
	      how == NODE_ORDER_GIVEN ? by_given : by_room);
	if (how == NODE_ORDER_OUTLIERS_LAST)
		choose_last(h, n, boxes);
	for (int i = 0; i < n && done < boxes; i++)
		done += fill_leaf(h, &h->leaves[i], box, boxes - done, order,
				  &out[(size_t)done * (size_t)box]);
	return true;
}
