/* outliers: lists the nodes that differ from the majority of similar nodes, and how they differ. */
#include "topo/draw/internal.h"

#include "base/human.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 60, PAIRS = 3 };

/* A kind that differs, and the usual one. */
struct pair {
	const struct node_kind *odd, *usual;
	int said;
	struct buf *out;
};

static bool is_cpu(const struct node_kind *k)
{
	return !strcmp(k->device, "cpu");
}

static const char *device_noun(const struct node_kind *k)
{
	return is_cpu(k) ? "CPU slot" : "GPU";
}

static void begin_line(struct pair *p)
{
	if (p->said++)
		buf_puts(p->out, "; ");
}

/* The device of the usual node that corresponds to this one: the one with the same PCI address,
 * otherwise the one with the same number; -1: none. */
static int match_device(const struct pair *p, int device)
{
	const char *bus = p->odd->parts ? p->odd->parts[device].bus : "";
	for (int i = 0; *bus && p->usual->parts && i < p->usual->devices; i++)
		if (!strcmp(p->usual->parts[i].bus, bus))
			return i;
	return p->odd->devices == p->usual->devices ? device : -1;
}

static bool has_bus(const struct node_kind *k, const char *bus)
{
	for (int i = 0; i < k->devices; i++)
		if (!strcmp(k->parts[i].bus, bus))
			return true;
	return false;
}

static void missing_devices(struct pair *p)
{
	const struct node_kind *u = p->usual, *o = p->odd;
	int gone = 0;
	if (!u->parts || (!o->parts && o->devices))
		return;
	for (int i = 0; i < u->devices; i++)
		if (*u->parts[i].bus && !has_bus(o, u->parts[i].bus)) {
			buf_printf(p->out, "%s at ", gone++ ? "," : ": GPU");
			topo_draw_plain(p->out, u->parts[i].bus);
		}
	if (gone)
		buf_printf(p->out, " %s missing", gone > 1 ? "are" : "is");
}

static void compare_devices(struct pair *p, const char *like)
{
	const struct node_kind *u = p->usual, *o = p->odd;
	if (is_cpu(o) && !is_cpu(u)) {
		begin_line(p);
		buf_printf(p->out, "no GPU where %s have %d", like, u->devices);
	} else if (o->devices != u->devices) {
		begin_line(p);
		buf_printf(p->out, "%d %s%s where %s have %d", o->devices, device_noun(o),
			   human_s(o->devices), like, u->devices);
		missing_devices(p);
	}
}

static void missing_nics(struct pair *p)
{
	const struct node_kind *u = p->usual, *o = p->odd;
	int gone = 0;
	for (int i = 0; u->nics && i < u->n_nics; i++) {
		bool there = false;
		for (int k = 0; o->nics && k < o->n_nics; k++)
			there |= !strcmp(o->nics[k].name, u->nics[i].name);
		if (!there) {
			buf_puts(p->out, gone++ ? ", " : ": ");
			topo_draw_plain(p->out, u->nics[i].name);
		}
	}
	if (gone)
		buf_printf(p->out, " %s missing", gone > 1 ? "are" : "is");
}

static void compare_nics(struct pair *p)
{
	const struct node_kind *u = p->usual, *o = p->odd;
	if (o->n_nics != u->n_nics) {
		begin_line(p);
		buf_printf(p->out, "%d adapter%s where others have %d", o->n_nics,
			   human_s(o->n_nics), u->n_nics);
		missing_nics(p);
		return;
	}
	for (int i = 0; u->nics && o->nics && i < u->n_nics; i++) {
		char a[HUMAN], b[HUMAN];
		if (fabs(u->nics[i].bandwidth - o->nics[i].bandwidth) <=
		    0.01 * u->nics[i].bandwidth)
			continue;
		begin_line(p);
		topo_draw_plain(p->out, o->nics[i].name);
		buf_printf(p->out, " runs at %s where others have %s",
			   human_count(o->nics[i].bandwidth, "B/s", a),
			   human_count(u->nics[i].bandwidth, "B/s", b));
	}
}

static const char *device_name(const struct node_kind *k, int i, char out[24])
{
	if (k->parts && *k->parts[i].name && strlen(k->parts[i].name) < 20)
		snprintf(out, 24, "%.23s", k->parts[i].name);
	else
		snprintf(out, 24, "GPU%d", i);
	human_plain(out);
	return out;
}

static void one_link(struct pair *p, int i, int j, const struct topo_link *mine,
		     const struct topo_link *usual)
{
	char a[24], b[24], had[16], has[16];
	begin_line(p);
	device_name(p->odd, i, a);
	device_name(p->odd, j, b);
	if (mine->kind == usual->kind && mine->lanes && usual->lanes) {
		buf_printf(p->out, "%s %s-%s has %d lane%s where others have %d",
			   mine->kind == LINK_XGMI ? "xGMI" : "NVLink", a, b, mine->lanes,
			   human_s(mine->lanes), usual->lanes);
		return;
	}
	topo_link_name(mine, has);
	topo_link_name(usual, had);
	buf_printf(p->out, "%s-%s is %s where others have %s", a, b, has, had);
}

static void compare_links(struct pair *p)
{
	int differ = 0;
	if (!p->odd->links || !p->usual->links)
		return;
	for (int i = 0; i < p->odd->devices; i++)
		for (int j = i + 1; j < p->odd->devices; j++) {
			int x = match_device(p, i), y = match_device(p, j);
			if (x < 0 || y < 0)
				continue;
			struct topo_link mine = topo_cluster_link(p->odd, i, j),
					 usual = topo_cluster_link(p->usual, x, y);
			if (mine.kind == usual.kind && mine.lanes == usual.lanes)
				continue;
			if (differ++ < PAIRS)
				one_link(p, i, j, &mine, &usual);
		}
	if (differ > PAIRS)
		buf_printf(p->out, ", and %d more pair%s", differ - PAIRS, human_s(differ - PAIRS));
}

static void put_port(const struct topo_device *d, struct buf *out)
{
	size_t before = out->len;
	topo_port_summary(d, out);
	if (out->len == before)
		buf_puts(out, "an unknown port");
}

static void compare_ports(struct pair *p)
{
	for (int i = 0; p->odd->parts && p->usual->parts && i < p->odd->devices; i++) {
		int usual = match_device(p, i);
		const struct topo_device *a = &p->odd->parts[i],
					 *b = usual < 0 ? a : &p->usual->parts[usual];
		char name[24];
		if (a->pcie == b->pcie && a->pcie_width == b->pcie_width &&
		    a->nvlink == b->nvlink && a->mig == b->mig)
			continue;
		begin_line(p);
		buf_printf(p->out, "%s has ", device_name(p->odd, i, name));
		put_port(a, p->out);
		buf_puts(p->out, " where others have ");
		put_port(b, p->out);
	}
}

static void compare_bytes(struct pair *p, const char *what, double odd, double usual)
{
	char a[HUMAN], b[HUMAN];
	if (!(fabs(odd - usual) > 0.02 * usual) || !(odd > 0))
		return;
	begin_line(p);
	buf_printf(p->out, "%s of %s where others have %s", what, human_bytes(odd, a),
		   human_bytes(usual, b));
}

static void compare_counts(struct pair *p, const char *what, int odd, int usual)
{
	if (odd == usual || !odd)
		return;
	begin_line(p);
	buf_printf(p->out, "%d %s%s where others have %d", odd, what, human_s(odd), usual);
}

/* The kind that more than half of the nodes similar to this one have; -1: there is none, or it is
 * this kind. counts: the number of nodes of each kind. */
static int usual_kind(const struct cluster *c, const int *counts, int kind)
{
	const struct node_kind *k = &c->kinds[kind];
	int most = kind, total = 0;
	for (int i = 0; i < c->n_kinds; i++)
		if (!strcmp(c->kinds[i].device, k->device) || (is_cpu(k) && c->kinds[i].devices))
			most = counts[i] > counts[most] ? i : most;
	for (int i = 0; i < c->n_kinds; i++)
		if (i == kind || !strcmp(c->kinds[i].device, c->kinds[most].device))
			total += counts[i];
	return most == kind || 2 * counts[most] <= total ? -1 : most;
}

static void draw_one(const struct cluster *c, int kind, int usual, int like, int *members,
		     struct buf *out)
{
	struct pair p = { .odd = &c->kinds[kind], .usual = &c->kinds[usual], .out = out };
	char others[48];
	int n = 0;
	for (int i = 0; i < c->n_nodes; i++)
		if (c->nodes[i].kind == kind)
			members[n++] = i;
	snprintf(others, sizeof others, "%d similar nodes", like);
	topo_names_fold(c, topo_node_name, members, n, NAMES, out);
	buf_puts(out, ": ");
	compare_devices(&p, others);
	if (p.odd->devices && !(is_cpu(p.odd) && !is_cpu(p.usual))) {
		compare_links(&p);
		compare_ports(&p);
		compare_bytes(&p, "device memory", p.odd->device_memory, p.usual->device_memory);
	}
	compare_nics(&p);
	compare_counts(&p, "core", p.odd->cores, p.usual->cores);
	compare_counts(&p, "NUMA domain", p.odd->numa, p.usual->numa);
	compare_bytes(&p, "host memory", p.odd->memory, p.usual->memory);
	if (!p.said)
		buf_printf(out, "other values than %s", others);
	buf_puts(out, "\n");
}

void topo_draw_outliers(const struct cluster *c, struct buf *out)
{
	int *counts = calloc((size_t)c->n_kinds + 1, sizeof *counts),
	    *members = malloc(((size_t)c->n_nodes + 1) * sizeof *members);
	for (int i = 0; counts && i < c->n_nodes; i++)
		counts[c->nodes[i].kind]++;
	for (int k = 0; counts && members && k < c->n_kinds; k++) {
		int usual = counts[k] ? usual_kind(c, counts, k) : -1;
		if (usual >= 0)
			draw_one(c, k, usual, counts[usual], members, out);
	}
	free(counts);
	free(members);
}
