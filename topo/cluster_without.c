/* cluster_without: the part of a cluster that is left when nodes or devices are gone. */
#include "topo/cluster.h"
#include "topo/internal.h"

#include <stdlib.h>
#include <string.h>

struct removal {
	const struct cluster *all;
	const struct cluster_slot *gone;
	int n;
};

static bool is_gone(const struct removal *r, int node, int device)
{
	for (int i = 0; i < r->n; i++)
		if (r->gone[i].node == node &&
		    (r->gone[i].device < 0 || r->gone[i].device == device))
			return true;
	return false;
}

static int count_left(const struct removal *r, int node)
{
	int left = 0;
	for (int d = 0; d < topo_cluster_kind(r->all, node)->devices; d++)
		left += !is_gone(r, node, d);
	return left;
}

/* A copy of `n` elements, or NULL for none. False: no memory. */
static bool copy_array(const void *from, size_t n, size_t size, void **out)
{
	*out = NULL;
	if (!from || !n)
		return true;
	*out = malloc(n * size);
	if (*out)
		memcpy(*out, from, n * size);
	return *out != NULL;
}

static bool copy_kind(const struct node_kind *from, struct node_kind *out)
{
	size_t devices = (size_t)from->devices;
	void *parts, *nics, *links, *measured, *chip;
	bool parts_ok = copy_array(from->parts, devices, sizeof *from->parts, &parts),
	     nics_ok = copy_array(from->nics, (size_t)from->n_nics, sizeof *from->nics, &nics),
	     links_ok = copy_array(from->links, devices * devices, sizeof *from->links, &links),
	     measured_ok = copy_array(from->measured, 1, sizeof *from->measured, &measured),
	     chip_ok = copy_array(from->chip, 1, sizeof *from->chip, &chip);
	*out = *from;
	out->parts = parts;
	out->nics = nics;
	out->links = links;
	out->measured = measured;
	out->chip = chip;
	return parts_ok && nics_ok && links_ok && measured_ok && chip_ok;
}

/* Removes the node's devices that are gone from its kind, a copy. */
static void remove_devices(const struct removal *r, int node, struct node_kind *k)
{
	int devices = k->devices, left = 0, links = 0;
	for (int a = 0; a < devices; a++) {
		if (is_gone(r, node, a))
			continue;
		if (k->parts)
			k->parts[left] = k->parts[a];
		for (int b = 0; b < devices && k->links; b++)
			if (!is_gone(r, node, b))
				k->links[links++] = k->links[a * devices + b];
		left++;
	}
	k->devices = left;
}

/* Nodes that keep all their devices share their kind. */
static bool add_node(const struct removal *r, int node, int *shared, struct cluster *c)
{
	int kind = r->all->nodes[node].kind;
	bool whole = count_left(r, node) == r->all->kinds[kind].devices;
	struct cluster_node *n = &c->nodes[c->n_nodes++];
	*n = r->all->nodes[node];
	n->kind = whole && shared[kind] >= 0 ? shared[kind] : c->n_kinds;
	if (n->kind < c->n_kinds)
		return true;
	if (whole)
		shared[kind] = c->n_kinds;
	if (!copy_kind(&r->all->kinds[kind], &c->kinds[c->n_kinds++]))
		return false;
	remove_devices(r, node, &c->kinds[n->kind]);
	return true;
}

static bool add_nodes(const struct removal *r, int *shared, struct cluster *c)
{
	for (int i = 0; i < r->all->n_kinds; i++)
		shared[i] = -1;
	for (int i = 0; i < r->all->n_nodes; i++)
		if (count_left(r, i) && !add_node(r, i, shared, c))
			return false;
	void *switches;
	bool copied = copy_array(r->all->switches, (size_t)r->all->n_switches,
				 sizeof *r->all->switches, &switches);
	c->switches = switches;
	return copied;
}

int topo_cluster_without(const struct cluster *all, const struct cluster_slot *gone, int n,
			 struct cluster *out, struct err *e)
{
	const struct removal r = { all, gone, n };
	int left = 0;
	for (int i = 0; i < all->n_nodes; i++)
		left += count_left(&r, i) > 0;
	if (!left)
		return err_set(e, ERR_NOFIT, "cluster %s: none of its %d node%s is left", all->name,
			       all->n_nodes, all->n_nodes == 1 ? "" : "s");
	/* There are at most as many kinds as nodes. */
	struct cluster c = { 0 };
	int *shared = calloc((size_t)all->n_kinds, sizeof *shared);
	if (!shared || topo_cluster_alloc(all->name, left, left, &c, NULL)) {
		free(shared);
		return err_set(e, ERR_NOMEM, "cluster %s: no memory for %d nodes", all->name, left);
	}
	c.n_kinds = c.n_nodes = 0;
	c.n_switches = all->n_switches;
	c.rails = all->rails;
	memcpy(c.figures, all->figures, sizeof c.figures);
	bool copied = add_nodes(&r, shared, &c);
	free(shared);
	if (!copied) {
		topo_cluster_free(&c);
		return err_set(e, ERR_NOMEM, "cluster %s: no memory for %d nodes", all->name, left);
	}
	*out = c;
	return 0;
}
