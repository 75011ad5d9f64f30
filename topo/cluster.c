#include "topo/cluster.h"

#include "topo/internal.h"
#include "topo/read/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int topo_cluster_alloc(const char *name, int kinds, int nodes, struct cluster *out, struct err *e)
{
	struct cluster c = { .n_kinds = kinds, .n_nodes = nodes };
	snprintf(c.name, sizeof c.name, "%s", name);
	c.kinds = calloc((size_t)kinds, sizeof *c.kinds);
	c.nodes = calloc((size_t)nodes, sizeof *c.nodes);
	if (!c.kinds || !c.nodes) {
		topo_cluster_free(&c);
		return err_set(e, ERR_NOMEM, "cluster %s: no memory for %d nodes", name, nodes);
	}
	for (int i = 0; i < nodes; i++)
		c.nodes[i].leaf = c.nodes[i].domain = -1;
	*out = c;
	return 0;
}

void topo_kind_free(struct node_kind *k)
{
	free(k->parts);
	free(k->nics);
	free(k->links);
	free(k->measured);
	free(k->chip);
	k->parts = NULL;
	k->nics = NULL;
	k->links = NULL;
	k->measured = NULL;
	k->chip = NULL;
}

void topo_cluster_free(struct cluster *c)
{
	for (int i = 0; i < c->n_kinds; i++)
		topo_kind_free(&c->kinds[i]);
	free(c->kinds);
	free(c->nodes);
	free(c->switches);
	*c = (struct cluster){ 0 };
}

const struct node_kind *topo_cluster_kind(const struct cluster *c, int node)
{
	return &c->kinds[c->nodes[node].kind];
}

const char *topo_link_word(enum link_kind kind)
{
	static const char *const words[LINK_KINDS] = {
		[LINK_UNKNOWN] = "?", [LINK_SYS] = "SYS",    [LINK_NODE] = "NODE",
		[LINK_PHB] = "PHB",   [LINK_PXB] = "PXB",    [LINK_PIX] = "PIX",
		[LINK_XGMI] = "XGMI", [LINK_NVLINK] = "NVL", [LINK_NVSWITCH] = "NVS",
		[LINK_SELF] = "X",
	};
	return words[kind];
}

double topo_link_latency(enum link_kind kind)
{
	static const double seconds[LINK_KINDS] = {
		[LINK_UNKNOWN] = 10e-6, [LINK_SYS] = 10e-6,   [LINK_NODE] = 8e-6,
		[LINK_PHB] = 8e-6,      [LINK_PXB] = 7e-6,    [LINK_PIX] = 6e-6,
		[LINK_XGMI] = 2e-6,     [LINK_NVLINK] = 2e-6, [LINK_NVSWITCH] = 2e-6,
		[LINK_SELF] = 0,
	};
	return seconds[kind];
}

struct topo_link topo_cluster_link(const struct node_kind *k, int a, int b)
{
	if (k->links)
		return k->links[a * k->devices + b];
	if (a == b)
		return (struct topo_link){ .kind = LINK_SELF };
	return (struct topo_link){ .kind = k->switched ? LINK_NVSWITCH : LINK_UNKNOWN,
				   .bandwidth = k->link_bandwidth,
				   .latency = k->link_latency };
}

bool topo_cluster_share_nvlink(const struct cluster *c, int a, int b)
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

int topo_cluster_hops(const struct cluster *c, int a, int b)
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

int topo_cluster_devices(const struct cluster *c)
{
	int n = 0;
	for (int i = 0; i < c->n_nodes; i++)
		n += c->kinds[c->nodes[i].kind].devices;
	return n;
}

static bool ends_in(const char *text, size_t len, const char *end)
{
	size_t n = strlen(end);
	return len > n && !memcmp(text + len - n, end, n);
}

static bool ends_as_file(const char *text, size_t len)
{
	return ends_in(text, len, ".xml") || ends_in(text, len, ".json") ||
	       ends_in(text, len, ".txt");
}

/* Whether spec is PATH[:NODES]: it contains a '/' or ends like a machine file; *path is the length
 * of PATH. A number after the last colon is not part of PATH, nor is anything that follows a
 * machine file's ending there. */
static bool is_file(const char *spec, size_t *path)
{
	const char *colon = strrchr(spec, ':');
	size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
	bool counted = colon &&
		       ((digits && !colon[1 + digits]) ||
			(!strpbrk(colon, "./") && ends_as_file(spec, (size_t)(colon - spec))));
	*path = counted ? (size_t)(colon - spec) : strlen(spec);
	return strchr(spec, '/') || ends_as_file(spec, *path);
}

static int open_file(const char *spec, size_t len, int devices, struct cluster *out, struct err *e)
{
	long nodes = spec[len] ? topo_node_count_of(spec + len + 1, strlen(spec + len + 1)) : 0;
	if (nodes < 0)
		return err_set(e, ERR_USAGE,
			       "cluster \"%.200s\": \"%.100s\" is not a number of nodes; give one "
			       "from 1 to %d",
			       spec, spec + len + 1, NODES_MAX);
	char *path = strndup(spec, len);
	if (!path)
		return err_set(e, ERR_NOMEM, "cluster %.100s: no memory for its path", spec);
	int result = topo_read_file(path, (int)nodes, devices, out, e);
	free(path);
	return result;
}

int topo_cluster_open(const char *spec, int devices, struct cluster *out, struct err *e)
{
	if (!*spec || !strcmp(spec, "auto"))
		spec = getenv("SLURM_JOB_ID") ? "slurm" : "local";
	if (!strcmp(spec, "local"))
		return topo_cluster_local(devices, out, e);
	if (!strcmp(spec, "slurm"))
		return topo_cluster_slurm(out, e);
	size_t path;
	if (is_file(spec, &path))
		return open_file(spec, path, devices, out, e);
	return topo_cluster_preset(spec, out, e);
}
