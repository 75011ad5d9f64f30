#include "plan/parts.h"

#include "plan/capacity.h"
#include "plan/cost/devices.h"
#include "plan/cost/unlike.h"
#include "plan/spec/speeds.h"
#include "topo/gpus.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL UINT32_MAX

/* Speeds are whole numbers, the slowest at most SLOWEST, and as small as an error of EXACT allows,
 * because a job's text is short. */
enum { SLOWEST = 16 };
#define EXACT 0.02

/* A class of devices, and how many of them the cluster has. */
struct device_class {
	const struct node_kind *kind;
	double rate; /* layers per second (plan/cost/unlike.h) */
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
	struct model_shape shape;
	int threads = k->devices > 0 && k->cores > k->devices ? k->cores / k->devices : 1;
	cost_machine_of_agents(k, job->precision.dtype != DTYPE_FP32, k->devices, threads, &m);
	shape_of_job(job, &shape);
	return cost_unlike_rate(job, &shape, &m);
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

/* The rate of a part if all of its devices are as fast as its slowest ones. */
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

static bool has(const struct plan_parts *p, uint32_t classes, int kind)
{
	return p->class_of[kind] >= 0 && classes & 1u << p->class_of[kind];
}

static int devices_of(const struct plan_parts *p, uint32_t classes)
{
	int n = 0;
	for (int i = 0; i < p->all->n_nodes; i++)
		if (has(p, classes, p->all->nodes[i].kind))
			n += topo_cluster_kind(p->all, i)->devices;
	return n;
}

/* Keeps the parts with so many devices, and the whole cluster. */
static void keep_named(struct plan_parts *p, int devices)
{
	int all = plan_devices(p->all), kept = 0;
	for (int i = 0; i < p->n; i++) {
		int mine = devices_of(p, p->classes[i]);
		if (mine == all || (mine == devices && devices < all))
			p->classes[kept++] = p->classes[i];
	}
	p->n = kept;
}

static int vendor_of(const struct node_kind *k)
{
	const struct gpu_model *m = topo_gpu_of_name(k->device);
	return m ? m->vendor : 0;
}

/* Whether the devices of a part can train one job together: one vendor's library connects them, and
 * all or none have products of the job's type. */
static bool is_alike(const struct job *job, const struct plan_parts *p, uint32_t classes)
{
	const struct node_kind *first = NULL;
	bool alike = true;
	for (int k = 0; k < p->all->n_kinds; k++) {
		const struct node_kind *other = &p->all->kinds[k];
		if (p->class_of[k] < 0 || !(classes & 1u << p->class_of[k]))
			continue;
		first = first ? first : other;
		alike &= vendor_of(other) == vendor_of(first) &&
			 cost_device_lacks(job, other) == cost_device_lacks(job, first);
	}
	return alike;
}

static void keep_alike(const struct job *job, struct plan_parts *p)
{
	int kept = 0;
	for (int i = 0; i < p->n; i++)
		if (is_alike(job, p, p->classes[i]))
			p->classes[kept++] = p->classes[i];
	p->n = kept;
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
	for (int i = 0; i < n; i++)
		out->rate[i < PARTS_CLASSES ? i : PARTS_CLASSES - 1] = found[i].rate;
	if (n > 1)
		list_parts(out, found, n);
	else
		out->classes[out->n++] = ALL;
	if (n > 1 && speeds_devices(job))
		keep_named(out, speeds_devices(job));
	else if (n > 1)
		keep_alike(job, out);
	free(found);
	return 0;
}

void plan_parts_close(struct plan_parts *parts)
{
	free(parts->class_of);
	*parts = (struct plan_parts){ 0 };
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

/* --- Speeds --- */

/* The speed of a device if the slowest one has `least`. */
static int speed_of(const struct plan_parts *p, const struct plan_part *part, int node, int least)
{
	double slowest = INFINITY;
	for (int i = 0; i < part->cluster.n_nodes; i++)
		slowest = fmin(slowest, p->rate[p->class_of[p->all->nodes[part->nodes[i]].kind]]);
	double mine = p->rate[p->class_of[p->all->nodes[part->nodes[node]].kind]];
	return (int)lround(least * mine / slowest);
}

/* Writes the list. Returns the greatest error of a speed; INFINITY if there is no room. */
static double write_speeds(const struct plan_parts *p, const struct plan_part *part, int least,
			   char out[JOB_TEXT])
{
	int speeds[SPEEDS_ITEMS], counts[SPEEDS_ITEMS], n = 0;
	double error = 0;
	for (int i = 0; i < part->cluster.n_nodes; i++) {
		int speed = speed_of(p, part, i, least),
		    devices = topo_cluster_kind(&part->cluster, i)->devices;
		double exact = (double)speed_of(p, part, i, 1 << 20) / (1 << 20);
		if (!devices)
			continue;
		error = fmax(error, fabs(speed / (least * exact) - 1));
		if (n && speeds[n - 1] == speed) {
			counts[n - 1] += devices;
			continue;
		}
		if (n == SPEEDS_ITEMS)
			return INFINITY;
		speeds[n] = speed;
		counts[n++] = devices;
	}
	return speeds_write(speeds, counts, n, out) ? error : INFINITY;
}

bool plan_part_speeds(const struct plan_parts *parts, const struct plan_part *part,
		      char out[JOB_TEXT])
{
	char text[JOB_TEXT];
	double least = INFINITY;
	const struct cluster *c = &part->cluster;
	bool unlike = false;
	for (int i = 1; i < c->n_nodes; i++)
		unlike |= parts->class_of[parts->all->nodes[part->nodes[i]].kind] !=
			  parts->class_of[parts->all->nodes[part->nodes[0]].kind];
	for (int slowest = 1; unlike && slowest <= SLOWEST && least > EXACT; slowest++) {
		double error = write_speeds(parts, part, slowest, text);
		if (error < least) {
			least = error;
			memcpy(out, text, sizeof text);
		}
	}
	return !isinf(least);
}
