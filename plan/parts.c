#include "plan/parts.h"

#include "plan/capacity.h"
#include "plan/cost/devices.h"
#include "plan/spec/speeds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A class of devices, and how many of them the cluster has. */
struct device_class {
	const struct node_kind *kind;
	double rate; /* of large products, FLOP/s */
	int devices;
};

static bool same(double a, double b)
{
	return a <= b && a >= b;
}

static bool same_class(const struct node_kind *a, const struct node_kind *b)
{
	return !strcmp(a->device, b->device) && same(a->device_flops, b->device_flops) &&
	       same(a->device_bandwidth, b->device_bandwidth) &&
	       same(a->device_memory, b->device_memory);
}

static double rate_of(const struct job *job, const struct node_kind *k)
{
	struct cost_machine m;
	int threads = k->devices > 0 && k->cores > k->devices ? k->cores / k->devices : 1;
	cost_machine_of_agents(k, job->precision.dtype != DTYPE_FP32, k->devices, threads, &m);
	return cost_curve_at(&m.rates[RATE_PRODUCT_FWD], 1e12) / fmax(1, m.crowd);
}

static int faster_first(const void *a, const void *b)
{
	const struct device_class *x = a, *y = b;
	if (!same(x->rate, y->rate))
		return x->rate > y->rate ? -1 : 1;
	return x->kind < y->kind ? -1 : x->kind > y->kind;
}

/* Lists the classes of kinds that have nodes, the fastest first. found: [n_kinds]. */
static int list_classes(const struct job *job, const struct cluster *c, struct device_class *found)
{
	int n = 0;
	for (int i = 0; i < c->n_nodes; i++) {
		const struct node_kind *k = topo_cluster_kind(c, i);
		int at = 0;
		while (at < n && !same_class(found[at].kind, k))
			at++;
		if (at == n)
			found[n++] = (struct device_class){ k, rate_of(job, k), 0 };
		found[at].devices += k->devices;
	}
	qsort(found, (size_t)n, sizeof *found, faster_first);
	return n;
}

/* FLOP/s of a part if all of its devices are as fast as its slowest ones. */
static double power(const struct device_class *of, int n, uint32_t classes)
{
	double devices = 0, rate = 0;
	for (int i = 0; i < n; i++) {
		int at = i < PARTS_CLASSES ? i : PARTS_CLASSES - 1;
		if (classes & 1u << at) {
			devices += of[i].devices;
			rate = of[i].rate;
		}
	}
	return devices * rate;
}

static void add_part(struct plan_parts *p, const struct device_class *of, int n, uint32_t classes)
{
	double mine = power(of, n, classes);
	int at = p->n++;
	for (; at > 0 && mine > power(of, n, p->classes[at - 1]); at--)
		p->classes[at] = p->classes[at - 1];
	p->classes[at] = classes;
}

static void list_parts(struct plan_parts *p, const struct device_class *of, int n)
{
	int kept = n < PARTS_CLASSES ? n : PARTS_CLASSES;
	for (uint32_t classes = 1; kept <= PARTS_FREE && classes < 1u << kept; classes++)
		add_part(p, of, n, classes);
	for (int i = 0; kept > PARTS_FREE && i < kept; i++) {
		add_part(p, of, n, 1u << i);
		if (i)
			add_part(p, of, n, (2u << i) - 1);
	}
}

int plan_parts_open(const struct job *job, const struct cluster *c, struct plan_parts *out,
		    struct err *e)
{
	struct device_class *found = calloc((size_t)c->n_kinds + 1, sizeof *found);
	*out = (struct plan_parts){
		.all = c, .class_of = calloc((size_t)c->n_kinds + 1, sizeof *out->class_of)
	};
	if (!found || !out->class_of) {
		free(found);
		plan_parts_close(out);
		return err_set(e, ERR_NOMEM,
			       "no memory for %d kinds of nodes; close other "
			       "programs",
			       c->n_kinds);
	}
	int n = list_classes(job, c, found);
	for (int k = 0; k < c->n_kinds; k++) {
		int at = 0;
		while (at < n && !same_class(found[at].kind, &c->kinds[k]))
			at++;
		out->class_of[k] = at == n ? -1 : at < PARTS_CLASSES ? at : PARTS_CLASSES - 1;
	}
	if (n > 1 && !speeds_devices(job))
		list_parts(out, found, n);
	else
		out->classes[out->n++] = UINT32_MAX;
	free(found);
	return 0;
}

void plan_parts_close(struct plan_parts *parts)
{
	free(parts->class_of);
	*parts = (struct plan_parts){ 0 };
}

static bool has(const struct plan_parts *p, uint32_t classes, int kind)
{
	return p->class_of[kind] >= 0 && classes & 1u << p->class_of[kind];
}

/* "dgx-a100:4+dgx-h100:8" */
static void name_part(const struct cluster *c, char name[TOPO_NAME])
{
	size_t used = 0;
	for (int k = 0; k < c->n_kinds && used < TOPO_NAME; k++) {
		int nodes = 0;
		for (int i = 0; i < c->n_nodes; i++)
			nodes += c->nodes[i].kind == k;
		used += (size_t)snprintf(name + used, TOPO_NAME - used, "%s%.40s:%d", k ? "+" : "",
					 c->kinds[k].name, nodes);
	}
}

int plan_part_open(const struct plan_parts *parts, int i, struct plan_part *out, struct err *e)
{
	const struct cluster *all = parts->all;
	uint32_t classes = parts->classes[i];
	int *kind = calloc((size_t)all->n_kinds + 1, sizeof *kind);
	struct cluster c = *all;
	*out = (struct plan_part){ .nodes = calloc((size_t)all->n_nodes + 1, sizeof *out->nodes) };
	c.nodes = calloc((size_t)all->n_nodes + 1, sizeof *c.nodes);
	c.kinds = calloc((size_t)all->n_kinds + 1, sizeof *c.kinds);
	c.n_nodes = c.n_kinds = 0;
	out->cluster = c;
	if (!kind || !out->nodes || !c.nodes || !c.kinds) {
		free(kind);
		plan_part_close(out);
		return err_set(e, ERR_NOMEM,
			       "no memory for a part of %d nodes; close other "
			       "programs",
			       all->n_nodes);
	}
	for (int k = 0; k < all->n_kinds; k++)
		if (has(parts, classes, k)) {
			kind[k] = c.n_kinds;
			c.kinds[c.n_kinds++] = all->kinds[k];
		}
	for (int n = 0; n < all->n_nodes; n++)
		if (has(parts, classes, all->nodes[n].kind)) {
			out->nodes[c.n_nodes] = n;
			c.nodes[c.n_nodes] = all->nodes[n];
			c.nodes[c.n_nodes++].kind = kind[all->nodes[n].kind];
		}
	if (c.n_nodes < all->n_nodes)
		name_part(&c, c.name);
	free(kind);
	out->cluster = c;
	return 0;
}

void plan_part_close(struct plan_part *part)
{
	free(part->cluster.nodes);
	free(part->cluster.kinds);
	free(part->nodes);
	*part = (struct plan_part){ 0 };
}
