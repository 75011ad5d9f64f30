/* kinds: compares nodes, and makes a cluster of nodes that were probed one by one. */
#include "topo/discover/internal.h"
#include "topo/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Firmware reserves some memory, and the amount differs between equal nodes. */
#define NEARLY 0.02

static bool same_distance(double a, double b)
{
	return fabs(a - b) <= NEARLY * fmax(a, b);
}

static bool same_parts(const struct node_kind *a, const struct node_kind *b)
{
	if (!a->parts != !b->parts || !a->links != !b->links || !a->nics != !b->nics)
		return false;
	for (int i = 0; a->parts && i < a->devices; i++) {
		const struct topo_device *x = &a->parts[i], *y = &b->parts[i];
		if (strcmp(x->bus, y->bus) || x->numa != y->numa || strcmp(x->cpus, y->cpus) ||
		    x->nic != y->nic || x->nic_link != y->nic_link || x->pcie != y->pcie ||
		    x->pcie_width != y->pcie_width || x->nvlink != y->nvlink || x->mig != y->mig)
			return false;
	}
	for (int i = 0; a->links && i < a->devices * a->devices; i++)
		if (a->links[i].kind != b->links[i].kind ||
		    a->links[i].lanes != b->links[i].lanes ||
		    !same_distance(a->links[i].bandwidth, b->links[i].bandwidth))
			return false;
	for (int i = 0; a->nics && i < a->n_nics; i++)
		if (strcmp(a->nics[i].name, b->nics[i].name) ||
		    a->nics[i].numa != b->nics[i].numa ||
		    !same_distance(a->nics[i].bandwidth, b->nics[i].bandwidth))
			return false;
	return true;
}

/* The rate of a core depends on its current clock, so only the number of cores is compared. */
bool topo_kind_equal(const struct node_kind *a, const struct node_kind *b)
{
	return !strcmp(a->device, b->device) && a->devices == b->devices && a->cores == b->cores &&
	       a->numa == b->numa && a->packages == b->packages && a->caches == b->caches &&
	       a->switched == b->switched && a->n_nics == b->n_nics &&
	       same_distance(a->memory, b->memory) &&
	       same_distance(a->device_memory, b->device_memory) && !strcmp(a->unsaid, b->unsaid) &&
	       same_parts(a, b);
}

/* Moves a kind with everything that it owns; `from` then owns nothing. */
static void move_kind(struct node_kind *from, struct node_kind *to)
{
	*to = *from;
	from->parts = NULL;
	from->nics = NULL;
	from->links = NULL;
	from->measured = NULL;
	from->chip = NULL;
}

int topo_kind_merge(struct node_kind *of, int n, struct cluster *c)
{
	c->n_kinds = 0;
	for (int i = 0; i < n; i++) {
		int at = 0;
		while (at < c->n_kinds && !topo_kind_equal(&c->kinds[at], &of[i]))
			at++;
		c->nodes[i].kind = at;
		if (at == c->n_kinds)
			move_kind(&of[i], &c->kinds[c->n_kinds++]);
		else
			topo_kind_free(&of[i]);
	}
	for (int i = 0; i < c->n_kinds; i++)
		snprintf(c->kinds[i].name, sizeof c->kinds[i].name, i ? "slurm-%d" : "slurm",
			 i + 1);
	return c->n_kinds;
}
