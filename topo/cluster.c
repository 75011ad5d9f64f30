#include "topo/cluster.h"

#include "topo/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cluster_alloc(const char *name, int kinds, int nodes, struct cluster *out, struct err *e)
{
	struct cluster c = { .n_kinds = kinds, .n_nodes = nodes };
	snprintf(c.name, sizeof c.name, "%s", name);
	c.kinds = calloc((size_t)kinds, sizeof *c.kinds);
	c.nodes = calloc((size_t)nodes, sizeof *c.nodes);
	if (!c.kinds || !c.nodes) {
		cluster_free(&c);
		return err_set(e, ERR_NOMEM, "cluster %s: no memory for %d nodes", name, nodes);
	}
	for (int i = 0; i < nodes; i++)
		c.nodes[i].leaf = c.nodes[i].domain = -1;
	*out = c;
	return 0;
}

void cluster_free(struct cluster *c)
{
	for (int i = 0; i < c->n_kinds; i++) {
		free(c->kinds[i].parts);
		free(c->kinds[i].nics);
		free(c->kinds[i].links);
		free(c->kinds[i].measured);
	}
	free(c->kinds);
	free(c->nodes);
	free(c->switches);
	*c = (struct cluster){ 0 };
}

const struct node_kind *cluster_kind(const struct cluster *c, int node)
{
	return &c->kinds[c->nodes[node].kind];
}

const char *link_word(enum link_kind kind)
{
	static const char *const words[LINK_KINDS] = {
		[LINK_UNKNOWN] = "?", [LINK_SYS] = "SYS", [LINK_NODE] = "NODE", [LINK_PHB] = "PHB", [LINK_PXB] = "PXB", [LINK_PIX] = "PIX",
		[LINK_XGMI] = "XGMI", [LINK_NVLINK] = "NVL", [LINK_NVSWITCH] = "NVS", [LINK_SELF] = "X",
	};
	return words[kind];
}

struct topo_link cluster_link(const struct node_kind *k, int a, int b)
{
	if (k->links)
		return k->links[a * k->devices + b];
	if (a == b)
		return (struct topo_link){ .kind = LINK_SELF };
	return (struct topo_link){ .kind = k->switched ? LINK_NVSWITCH : LINK_UNKNOWN, .bandwidth = k->link_bandwidth, .latency = k->link_latency };
}

bool cluster_joined(const struct cluster *c, int a, int b)
{
	return a == b || (c->nodes[a].domain >= 0 && c->nodes[a].domain == c->nodes[b].domain);
}

static int depth_of(const struct cluster *c, int at)
{
	int depth = 0;
	for (; at >= 0; at = c->switches[at].parent)
		depth++;
	return depth;
}

int cluster_hops(const struct cluster *c, int a, int b)
{
	int x = c->nodes[a].leaf, y = c->nodes[b].leaf, hops = 1;
	if (a == b)
		return 0;
	if (!c->switches)
		return 1;
	int dx = depth_of(c, x), dy = depth_of(c, y), most = dx > dy ? dx : dy;
	for (; x >= 0 && y >= 0 && x != y; hops++) {
		bool up_x = dx >= dy, up_y = dy >= dx;
		if (up_x)
			x = c->switches[x].parent, dx--;
		if (up_y)
			y = c->switches[y].parent, dy--;
	}
	return x >= 0 && x == y ? hops : most + 1;
}

int cluster_devices(const struct cluster *c)
{
	int n = 0;
	for (int i = 0; i < c->n_nodes; i++)
		n += c->kinds[c->nodes[i].kind].devices;
	return n;
}

int cluster_open(const char *spec, int devices, struct cluster *out, struct err *e)
{
	if (!*spec || !strcmp(spec, "auto"))
		spec = getenv("SLURM_JOB_ID") ? "slurm" : "local";
	if (!strcmp(spec, "local"))
		return cluster_local(devices, out, e);
	if (!strcmp(spec, "slurm"))
		return cluster_slurm(out, e);
	return cluster_preset(spec, out, e);
}
