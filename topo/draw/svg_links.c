#include "topo/draw/svg.h"

#include "base/human.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

enum { HALF = 8 /* devices that fit in one half of the ring */ };

static bool has_direct_links(const struct topo_link *l)
{
	return l->kind == LINK_NVLINK || l->kind == LINK_XGMI;
}

static double svg_width_of(const struct topo_link *l)
{
	double w = 2 + 1.5 * (l->lanes > 0 ? l->lanes : 1);
	return w > 8 ? 8 : w;
}

void topo_svg_device(struct svg *s, const struct node_kind *k, int device, struct svg_box b)
{
	char name[TOPO_NAME];
	bool named = k->parts && *k->parts[device].name;
	if (named)
		snprintf(name, sizeof name, "%s", k->parts[device].name);
	else
		snprintf(name, sizeof name, "%d", device);
	buf_puts(s->out, "<g>");
	topo_svg_title(s, k->device);
	topo_svg_rect(s, b, 6, SVG_DEVICE, NULL);
	topo_svg_text(s, b.x + b.w / 2,
		      b.y + b.h / 2 + (k->parts && *k->parts[device].bus && b.w >= 84 ? -2 : 5),
		      "on", (int)(b.w / 8.5), name);
	if (k->parts && *k->parts[device].bus && b.w >= 84)
		topo_svg_text(s, b.x + b.w / 2, b.y + b.h / 2 + 16, "onsmall", 14,
			      k->parts[device].bus);
	buf_puts(s->out, "</g>\n");
}

static int numa_of(const struct node_kind *k, int device)
{
	return k->parts && k->parts[device].numa >= 0 ? k->parts[device].numa : 0;
}

struct placed {
	int numa, device;
};

static int by_domain(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;
	return x->numa != y->numa ? (x->numa > y->numa) - (x->numa < y->numa)
				  : x->device - y->device;
}

bool topo_svg_two_halves(const struct node_kind *k, int *left)
{
	int first = numa_of(k, 0), other = -1;
	bool more = false;
	*left = 0;
	for (int i = 0; i < k->devices; i++) {
		int numa = numa_of(k, i);
		*left += numa == first;
		more |= numa != first && other >= 0 && numa != other;
		other = numa != first ? numa : other;
	}
	return other >= 0 && !more && *left <= HALF && k->devices - *left <= HALF;
}

/* Places the devices on an ellipse, in the order of their domains: down its left half, then down its
 * right half. Two domains have a half each, if it has room; otherwise both halves hold as many. */
static void place_devices(const struct node_kind *k, struct svg_box b, double *at)
{
	struct placed order[RING_DEVICES];
	int left, n = k->devices;
	if (!topo_svg_two_halves(k, &left))
		left = (n + 1) / 2;
	for (int i = 0; i < n; i++)
		order[i] = (struct placed){ numa_of(k, i) == numa_of(k, 0) ? -1 : numa_of(k, i),
					    i };
	qsort(order, (size_t)n, sizeof *order, by_domain);
	for (int i = 0; i < n; i++) {
		bool right = i >= left;
		int all = right ? n - left : left, seen = right ? i - left : i;
		double turn = PI * ((seen + 0.5) / all * 0.86 + 0.07), x = sin(turn) * b.w / 2;
		at[2 * order[i].device] = b.x + b.w / 2 + (right ? x : -x);
		at[2 * order[i].device + 1] = b.y + b.h / 2 - cos(turn) * b.h / 2;
	}
}

static void put_link(struct svg *s, const struct node_kind *k, int i, int j, const double *at)
{
	struct topo_link l = topo_cluster_link(k, i, j);
	char rate[HUMAN], title[96];
	bool thin = l.lanes <= 1;
	snprintf(title, sizeof title, "%d - %d: %d lane%s, %s", i, j, l.lanes, human_s(l.lanes),
		 human_count(l.bandwidth, "B/s", rate));
	buf_puts(s->out, "<g>");
	topo_svg_title(s, title);
	topo_svg_line(s, at[2 * i], at[2 * i + 1], at[2 * j], at[2 * j + 1], svg_width_of(&l),
		      thin ? SVG_DIRECT_LIGHT : SVG_DIRECT);
	buf_puts(s->out, "</g>\n");
	s->nvlink |= l.kind == LINK_NVLINK;
	s->xgmi |= l.kind == LINK_XGMI;
}

void topo_svg_ring(struct svg *s, const struct node_kind *k, struct svg_box b, double *at)
{
	place_devices(k, b, at);
	/* Wider lines are drawn last, above the others. */
	for (int wide = 0; wide < 2; wide++)
		for (int i = 0; i < k->devices; i++)
			for (int j = i + 1; j < k->devices; j++) {
				struct topo_link l = topo_cluster_link(k, i, j);
				if (has_direct_links(&l) && (l.lanes > 1) == wide)
					put_link(s, k, i, j, at);
			}
}

void topo_svg_ring_devices(struct svg *s, const struct node_kind *k, const double *at)
{
	for (int i = 0; i < k->devices; i++)
		topo_svg_device(s, k, i,
				(struct svg_box){ at[2 * i] - 48, at[2 * i + 1] - 24, 96, 48 });
}

/* The switch fabric that a device has a port to, named by the first device on it; -1: none. */
static int hub_of(const struct node_kind *k, int device)
{
	for (int i = 0; i < k->devices; i++)
		if (i != device && topo_cluster_link(k, device, i).kind == LINK_NVSWITCH)
			return i < device ? i : device;
	return k->switched ? 0 : -1;
}

bool topo_svg_has_hub(const struct node_kind *k)
{
	for (int i = 0; k->links && !k->switched && i < k->devices; i++)
		if (hub_of(k, i) >= 0)
			return true;
	return k->switched;
}

/* The x coordinates of a fabric's leftmost and rightmost devices. */
static void put_reach(const struct node_kind *k, const double *at, int hub, double *left,
		      double *right)
{
	*left = *right = at[2 * hub];
	for (int i = 0; i < k->devices; i++)
		if (hub_of(k, i) == hub) {
			*left = fmin(*left, at[2 * i]);
			*right = fmax(*right, at[2 * i]);
		}
}

/* The number of fabrics whose bars are drawn above each other: all of them if the devices of
 * different fabrics are mixed, otherwise 1. */
static int levels_of(const struct node_kind *k, const double *at)
{
	int n = 0;
	bool mixed = false;
	for (int hub = 0; hub < k->devices; hub++) {
		double left, right;
		if (hub_of(k, hub) != hub)
			continue;
		n++;
		put_reach(k, at, hub, &left, &right);
		for (int i = 0; i < k->devices; i++)
			mixed |= hub_of(k, i) >= 0 && hub_of(k, i) != hub && at[2 * i] > left &&
				 at[2 * i] < right;
	}
	return mixed ? n : 1;
}

/* A device's link to another device of its fabric. */
static struct topo_link port_of(const struct node_kind *k, int device)
{
	for (int i = 0; i < k->devices; i++)
		if (i != device && hub_of(k, i) == hub_of(k, device))
			return topo_cluster_link(k, device, i);
	return (struct topo_link){ .lanes = 0 };
}

static void put_port(struct svg *s, const struct node_kind *k, int device, double from, double tag,
		     const double *at)
{
	struct topo_link l = port_of(k, device);
	topo_svg_line(s, at[2 * device], from, at[2 * device], at[2 * device + 1], svg_width_of(&l),
		      SVG_DIRECT);
	if (l.lanes && k->devices <= 16)
		topo_svg_words(s, at[2 * device] + 22, tag, "tag", "× %d", l.lanes);
}

void topo_svg_hub(struct svg *s, const struct node_kind *k, struct svg_box b, const double *at)
{
	int levels = levels_of(k, at), level = 0;
	char rate[HUMAN];
	s->hub = true;
	for (int hub = 0; hub < k->devices; hub++) {
		if (hub_of(k, hub) != hub)
			continue;
		double left, right, h = b.h / levels;
		put_reach(k, at, hub, &left, &right);
		left = k->switched ? b.x : fmax(b.x, left - 66);
		right = k->switched ? b.x + b.w : fmin(b.x + b.w, right + 66);
		struct svg_box bar = { left, b.y + level * h, right - left,
				       levels > 1 ? h - 4 : h };
		for (int i = 0; i < k->devices; i++)
			if (hub_of(k, i) == hub)
				put_port(s, k, i, bar.y + bar.h, b.y + b.h + 22, at);
		topo_svg_rect(s, bar, 10, SVG_DIRECT, NULL);
		topo_svg_words(s, bar.x + bar.w / 2, bar.y + bar.h / 2 + 6, "on",
			       "%s: %s per device, each way",
			       port_of(k, hub).kind == LINK_NVSWITCH ? "NVSwitch" : "fabric",
			       human_count(k->link_bandwidth, "B/s", rate));
		level += levels > 1;
	}
}
