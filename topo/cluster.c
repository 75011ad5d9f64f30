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
	*out = c;
	return 0;
}

void cluster_free(struct cluster *c)
{
	free(c->kinds);
	free(c->nodes);
	*c = (struct cluster){ 0 };
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
