#include "topo/presets.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The nodes of one preset and their switches. A spine connects `group` leaves of one preset. If
 * there are several spines or presets, a core connects all of them. */
struct run {
	const struct topo_preset *box;
	int first, nodes; /* first: index into the cluster's nodes */
	int leaves, spines;
};

static int parent_at_level(int n, int by)
{
	return (n + by - 1) / by;
}

static struct run nodes_of_kind(const struct cluster *c, const struct topo_preset *b, int kind)
{
	struct run r = { .box = b, .first = -1 };
	for (int i = 0; i < c->n_nodes; i++)
		if (c->nodes[i].kind == kind) {
			r.first = r.first < 0 ? i : r.first;
			r.nodes++;
		}
	r.leaves = b->unit ? parent_at_level(r.nodes, b->unit) : 1;
	r.spines = b->unit ? parent_at_level(r.leaves, b->group) : 0;
	return r;
}

static void name_switch(struct cluster_switch *s, int parent, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(s->name, sizeof s->name, fmt, ap);
	va_end(ap);
	s->parent = parent;
}

static void set_domains(struct cluster *c, const struct run *r, int *next)
{
	if (!r->box->domain)
		return;
	for (int i = 0; i < r->nodes; i++)
		c->nodes[r->first + i].domain = *next + i / r->box->domain;
	*next += parent_at_level(r->nodes, r->box->domain);
}

/* Adds the switches of a run. Their order is: the core if there is one, then the spines and the
 * leaves of each run. */
static void add_run(struct cluster *c, const struct run *r, bool several, int core)
{
	const char *tag = several ? r->box->name : "";
	const char *dash = several ? "-" : "";
	int spine = c->n_switches, leaf = spine + r->spines;
	for (int i = 0; i < r->spines; i++)
		name_switch(&c->switches[spine + i], core, "%.40s%sspine%d", tag, dash, i);
	for (int i = 0; i < r->leaves; i++)
		name_switch(&c->switches[leaf + i], r->spines ? spine + i / r->box->group : core,
			    "%.40s%sleaf%d", tag, dash, i);
	for (int i = 0; i < r->nodes; i++)
		c->nodes[r->first + i].leaf = leaf + (r->box->unit ? i / r->box->unit : 0);
	c->n_switches = leaf + r->leaves;
}

int topo_fabric_build(struct cluster *c, const struct topo_preset *const *boxes, struct err *e)
{
	struct run *runs = calloc((size_t)c->n_kinds, sizeof *runs);
	if (!runs)
		return err_set(e, ERR_NOMEM, "cluster %s: no memory for its switches", c->name);
	int spines = 0, leaves = 0, known = 0, domains = 0;
	bool rails = true;
	for (int k = 0; k < c->n_kinds; k++) {
		runs[k] = nodes_of_kind(c, boxes[k], k);
		spines += runs[k].spines;
		leaves += runs[k].leaves;
		known += boxes[k]->unit > 0;
		rails = rails && boxes[k]->rails;
		set_domains(c, &runs[k], &domains);
	}
	bool several = c->n_kinds > 1, core = several || spines > 1;
	if (known) {
		c->switches = calloc((size_t)(core + spines + leaves), sizeof *c->switches);
		if (!c->switches) {
			free(runs);
			return err_set(e, ERR_NOMEM, "cluster %s: no memory for its switches",
				       c->name);
		}
		if (core)
			name_switch(&c->switches[c->n_switches++], -1, "core");
		for (int k = 0; k < c->n_kinds; k++)
			add_run(c, &runs[k], several, core ? 0 : -1);
		c->rails = rails;
	}
	free(runs);
	return 0;
}
