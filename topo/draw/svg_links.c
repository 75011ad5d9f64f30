#include "topo/draw/svg.h"

#include "base/human.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PI 3.14159265358979323846

static bool direct(const struct topo_link *l)
{
	return l->kind == LINK_NVLINK || l->kind == LINK_XGMI;
}

double svg_width_of(const struct topo_link *l)
{
	double w = 2 + 1.5 * (l->lanes > 0 ? l->lanes : 1);
	return w > 8 ? 8 : w;
}

void svg_device(struct svg *s, const struct node_kind *k, int device, struct svg_box b)
{
	char name[TOPO_NAME];
	bool named = k->parts && *k->parts[device].name;
	if (named)
		snprintf(name, sizeof name, "%s", k->parts[device].name);
	else
		snprintf(name, sizeof name, "%d", device);
	buf_puts(s->out, "<g>");
	svg_title(s, k->device);
	svg_rect(s, b, 6, SVG_DEVICE, NULL);
	svg_text(s, b.x + b.w / 2, b.y + b.h / 2 + (k->parts && *k->parts[device].bus && b.w >= 84 ? -2 : 5), "on", (int)(b.w / 8.5), name);
	if (k->parts && *k->parts[device].bus && b.w >= 84)
		svg_text(s, b.x + b.w / 2, b.y + b.h / 2 + 16, "onsmall", 14, k->parts[device].bus);
	buf_puts(s->out, "</g>\n");
}

static int numa_of(const struct node_kind *k, int device)
{
	return k->parts && k->parts[device].numa >= 0 ? k->parts[device].numa : 0;
}

static bool two_sides(const struct node_kind *k, int *left)
{
	int first = numa_of(k, 0);
	*left = 0;
	for (int i = 0; i < k->devices; i++)
		*left += numa_of(k, i) == first;
	return *left < k->devices;
}

/* The first domain's devices down the left half of an ellipse, the others' down the right; a single domain's all around. */
static void place(const struct node_kind *k, struct svg_box b, double *at)
{
	int left, seen[2] = { 0, 0 };
	bool sides = two_sides(k, &left);
	for (int i = 0; i < k->devices; i++) {
		int side = sides && numa_of(k, i) != numa_of(k, 0), n = side ? k->devices - left : left;
		double turn = sides ? PI * (0.5 + (seen[side]++ + 0.5) / n * 0.86 + 0.07) : 2 * PI * i / k->devices - PI / 2;
		double x = cos(turn) * b.w / 2, y = sides ? -sin(turn) * b.h / 2 : sin(turn) * b.h / 2;
		at[2 * i] = b.x + b.w / 2 + (side ? -x : x);
		at[2 * i + 1] = b.y + b.h / 2 + y;
	}
}

static void put_link(struct svg *s, const struct node_kind *k, int i, int j, const double *at)
{
	struct topo_link l = cluster_link(k, i, j);
	char rate[HUMAN], title[96];
	bool thin = l.lanes <= 1;
	snprintf(title, sizeof title, "%d - %d: %d lane%s, %s", i, j, l.lanes, human_s(l.lanes), human_count(l.bandwidth, "B/s", rate));
	buf_puts(s->out, "<g>");
	svg_title(s, title);
	svg_line(s, at[2 * i], at[2 * i + 1], at[2 * j], at[2 * j + 1], svg_width_of(&l), thin ? SVG_DIRECT_LIGHT : SVG_DIRECT);
	buf_puts(s->out, "</g>\n");
	s->nvlink |= l.kind == LINK_NVLINK;
	s->xgmi |= l.kind == LINK_XGMI;
}

void svg_ring(struct svg *s, const struct node_kind *k, struct svg_box b, double *at)
{
	place(k, b, at);
	/* The wider ones lie above. */
	for (int wide = 0; wide < 2; wide++)
		for (int i = 0; i < k->devices; i++)
			for (int j = i + 1; j < k->devices; j++) {
				struct topo_link l = cluster_link(k, i, j);
				if (direct(&l) && (l.lanes > 1) == wide)
					put_link(s, k, i, j, at);
			}
	for (int i = 0; i < k->devices; i++)
		svg_device(s, k, i, (struct svg_box){ at[2 * i] - 48, at[2 * i + 1] - 24, 96, 48 });
}

void svg_hub(struct svg *s, const struct node_kind *k, struct svg_box b, const double *at)
{
	char rate[HUMAN];
	struct topo_link l = k->devices > 1 ? cluster_link(k, 0, 1) : (struct topo_link){ .lanes = 0 };
	s->hub = true;
	for (int i = 0; i < k->devices; i++) {
		struct topo_link mine = cluster_link(k, i, i ? 0 : k->devices > 1);
		svg_line(s, at[2 * i], b.y + b.h, at[2 * i], at[2 * i + 1], svg_width_of(&mine), SVG_DIRECT);
		if (mine.lanes && k->devices <= 16)
			svg_words(s, at[2 * i] + 22, b.y + b.h + 22, "tag", "× %d", mine.lanes);
	}
	svg_rect(s, b, 10, SVG_DIRECT, NULL);
	svg_words(s, b.x + b.w / 2, b.y + b.h / 2 + 6, "on", "%s: %s a device, each way", l.kind == LINK_NVSWITCH ? "NVSwitch" : "fabric",
		  human_count(k->link_bandwidth, "B/s", rate));
}
