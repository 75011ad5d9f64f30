#include "topo/draw/svg.h"

#include "base/human.h"

#include <stdio.h>

enum {
	LEVEL = 104,
	SWITCH_H = 50,
	SWITCH_W = 220,
	NODES_H = 132,
	NODES_W = 240,
	DOTS = 16,
	TOP = 14,
	MINI_ROWS = 3,
	MINI_H = 26,
	MINI_DOT = 7 /* size of a device where nodes are drawn one by one */,
	LEAVES = 24 /* groups of nodes next to each other */
};

struct tree {
	struct svg *s;
	double bottom; /* y of the level of the nodes */
};

static int leaves_of(const struct group *g)
{
	int n = 0;
	for (int i = 0; i < g->n_below; i++)
		n += leaves_of(g->below[i]);
	return n ? n : 1;
}

/* The number of levels of switches. */
static int height_of(const struct group *g)
{
	int most = 0;
	for (int i = 0; i < g->n_below; i++) {
		int h = height_of(g->below[i]);
		most = h > most ? h : most;
	}
	return most + (g->what == GROUP_SWITCH);
}

static void name_of_group(const struct cluster *c, const struct group *g, char *out, size_t size)
{
	struct buf name = BUF_INIT;
	topo_group_name(c, g, &name);
	snprintf(out, size, "%s", buf_str(&name));
	buf_fini(&name);
}

static void put_box(struct svg *s, const struct group *g, struct svg_box b, double round,
		    const char *fill, const char *stroke)
{
	if (g->n > 1)
		topo_svg_stack(s, b, round, fill, stroke);
	else
		topo_svg_rect(s, b, round, fill, stroke);
}

/* Draws a node as a box with its devices, at most 4 in a row. */
static void put_mini(struct svg *s, int devices, double x, double y, double w)
{
	int columns = devices < 4 ? devices : 4, rows = (devices + columns - 1) / columns;
	double top = y + (MINI_H - 5) / 2.0 - rows * (MINI_DOT + 1) / 2.0;
	topo_svg_rect(s, (struct svg_box){ x, y, w, MINI_H - 5 }, 3, "#fff", SVG_EDGE);
	for (int i = 0; i < devices; i++)
		topo_svg_rect(s,
			      (struct svg_box){ x + 5 + i % columns * (MINI_DOT + 2),
						top + i / columns * (MINI_DOT + 1.5), MINI_DOT,
						MINI_DOT },
			      1.5, SVG_DEVICE, NULL);
}

/* The box in which every node of the group is drawn; its width is 0 if they do not fit in `w`. */
static struct svg_box minis_box(const struct tree *t, const struct group *g, double x, double w)
{
	int devices = t->s->c->kinds[g->kind].devices, columns = devices < 4 ? devices : 4;
	double each = columns * (MINI_DOT + 2) + 14, inside = w - 26;
	int fit = (int)((inside - 8) / each),
	    rows = fit > 0 ? (g->n + fit - 1) / fit : MINI_ROWS + 1;
	if (!devices || devices > 8 || rows > MINI_ROWS)
		return (struct svg_box){ 0, 0, 0, 0 };
	int across = (g->n + rows - 1) / rows;
	double own = across * each + 12;
	own = own < 190 ? 190 : own;
	own = own > inside ? inside : own;
	return (struct svg_box){ x + (w - own) / 2, t->bottom, own, NODES_H };
}

static void put_minis(struct tree *t, const struct group *g, struct svg_box b)
{
	int devices = t->s->c->kinds[g->kind].devices, columns = devices < 4 ? devices : 4;
	double each = columns * (MINI_DOT + 2) + 14;
	int fit = (int)((b.w - 8) / each), rows = (g->n + fit - 1) / fit,
	    across = (g->n + rows - 1) / rows;
	for (int i = 0; i < g->n; i++) {
		int row = i / across,
		    in_row = g->n - row * across < across ? g->n - row * across : across;
		double y = b.y + 52 + row * MINI_H + (MINI_ROWS - rows) * MINI_H / 2.0;
		put_mini(t->s, devices, b.x + b.w / 2 - in_row * each / 2 + i % across * each + 3,
			 y, each - 6);
	}
}

static void put_dots(struct tree *t, const struct node_kind *k, struct svg_box b)
{
	int dots = k->devices < DOTS ? k->devices : DOTS, row = dots < 8 ? dots : 8;
	double size = row ? b.w / row - 6 : 0;
	size = size > 16 ? 16 : size;
	for (int i = 0; i < dots; i++) {
		int in_row = dots - i / 8 * 8 < row ? dots - i / 8 * 8 : row;
		double left = b.x + b.w / 2 - in_row * (size + 4) / 2 + 2;
		topo_svg_rect(t->s,
			      (struct svg_box){ left + i % 8 * (size + 4),
						b.y + (dots > 8 ? 62 : 74) + i / 8 * (size + 4),
						size, size },
			      3, SVG_DEVICE, NULL);
	}
	if (k->devices > DOTS)
		topo_svg_words(t->s, b.x + b.w / 2, b.y + 122, "small", "%d devices", k->devices);
}

static void put_nodes(struct tree *t, const struct group *g, double x, double w)
{
	const struct node_kind *k = &t->s->c->kinds[g->kind];
	struct svg_box b = minis_box(t, g, x, w);
	bool each = b.w > 0;
	char name[96];
	if (!each) {
		b = (struct svg_box){ x + 8, t->bottom, w - 26, NODES_H };
		if (b.w > NODES_W) {
			b.x += (b.w - NODES_W) / 2;
			b.w = NODES_W;
		}
	}
	if (each)
		topo_svg_rect(t->s, b, 8, SVG_PANEL, SVG_EDGE);
	else
		put_box(t->s, g, b, 8, SVG_PANEL, SVG_EDGE);
	name_of_group(t->s->c, g, name, sizeof name);
	int chars = (int)(b.w / 8.2);
	topo_svg_text(t->s, b.x + b.w / 2, b.y + 24, "mid", chars, name);
	snprintf(name, sizeof name, "%d x %.60s", g->n, k->name);
	topo_svg_text(t->s, b.x + b.w / 2, b.y + 43, "small", chars, name);
	if (each)
		put_minis(t, g, b);
	else
		put_dots(t, k, b);
}

static void put_switch(struct tree *t, const struct group *g, double centre, double w, double y)
{
	struct svg_box b = { centre - SWITCH_W / 2.0, y, SWITCH_W, SWITCH_H };
	char name[96];
	int nodes, devices;
	if (b.w > w - 26) {
		b.w = w - 26;
		b.x = centre - b.w / 2;
	}
	t->s->fabric = true;
	put_box(t->s, g, b, 8, SVG_SWITCH, "#fff");
	name_of_group(t->s->c, g, name, sizeof name);
	topo_group_count(t->s->c, g, &nodes, &devices);
	topo_svg_text(t->s, centre, y + 22, "on", (int)(b.w / 8.2), name);
	if (b.w > 120)
		topo_svg_words(t->s, centre, y + 40, "onsmall", "%s%d node%s, %d device%s",
			       g->n > 1 ? "each " : "", nodes, human_s(nodes), devices,
			       human_s(devices));
}

static void put_domain(struct tree *t, const struct group *g, double x, double w)
{
	struct svg_box b = { x + 6, t->bottom - 34, w - 12, NODES_H + 46 };
	char name[96], rate[HUMAN];
	double most = 0;
	int nodes, devices;
	for (int i = 0; i < g->n_below; i++)
		if (g->below[i]->what == GROUP_NODES &&
		    t->s->c->kinds[g->below[i]->kind].link_bandwidth > most)
			most = t->s->c->kinds[g->below[i]->kind].link_bandwidth;
	topo_group_count(t->s->c, g, &nodes, &devices);
	name_of_group(t->s->c, g, name, sizeof name);
	buf_printf(t->s->out,
		   "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"12\" "
		   "fill=\"#eef7f0\" stroke=\"%s\" stroke-width=\"2.5\">",
		   b.x, b.y, b.w, b.h, SVG_DIRECT);
	topo_svg_title(t->s, name);
	buf_puts(t->s->out, "</rect>\n");
	if (b.w > 300 && most > 0)
		topo_svg_words(t->s, b.x + b.w / 2, b.y + 17, "tag", "%s: %d devices%s, %s each",
			       name, devices, g->n > 1 ? " each" : "",
			       human_count(most, "B/s", rate));
	else
		topo_svg_text(t->s, b.x + b.w / 2, b.y + 17, "tag", (int)(b.w / 7), name);
}

static void put_edge(struct svg *s, double x1, double y1, double x2, double y2)
{
	double mid = (y1 + y2) / 2;
	buf_printf(s->out,
		   "<path d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\" fill=\"none\" "
		   "stroke=\"%s\" stroke-width=\"3\"/>\n",
		   x1, y1, x1, mid, x2, mid, x2, y2, SVG_SWITCH_LIGHT);
}

static double top_of(const struct tree *t, const struct group *g, double y)
{
	return g->what == GROUP_SWITCH ? y : g->what == GROUP_DOMAIN ? t->bottom - 34 : t->bottom;
}

static void put_group(struct tree *t, const struct group *g, double x, double w, double y)
{
	int leaves = leaves_of(g);
	double below = x;
	if (g->what == GROUP_NODES) {
		put_nodes(t, g, x, w);
		return;
	}
	if (g->what == GROUP_DOMAIN)
		put_domain(t, g, x, w);
	for (int i = 0; i < g->n_below; i++) {
		double part = w * leaves_of(g->below[i]) / leaves;
		if (g->what == GROUP_SWITCH)
			put_edge(t->s, x + w / 2, y + SWITCH_H, below + part / 2,
				 top_of(t, g->below[i], y + LEVEL));
		put_group(t, g->below[i], below, part, y + (g->what == GROUP_SWITCH ? LEVEL : 0));
		below += part;
	}
	if (g->what == GROUP_SWITCH)
		put_switch(t, g, x + w / 2, w, y);
}

double topo_svg_fabric(struct svg *s, double y)
{
	int n = 0, leaves = 0, levels = 0;
	bool domains = false;
	struct group **groups = topo_group_cluster(s->c, &n);
	for (int i = 0; groups && i < n; i++) {
		int h = height_of(groups[i]);
		leaves += leaves_of(groups[i]);
		levels = h > levels ? h : levels;
	}
	for (int i = 0; i < s->c->n_nodes; i++)
		domains |= s->c->nodes[i].domain >= 0;
	struct tree t = { .s = s, .bottom = y + TOP + levels * LEVEL + (domains ? 34 : 0) };
	double x = SVG_MARGIN, whole = SVG_WIDTH - 2 * SVG_MARGIN;
	if (leaves > LEAVES) {
		topo_group_free(groups, n);
		topo_svg_words(s, x, y + 30, "sub",
			       "%d switches and %d nodes of too many shapes to draw: muster topo "
			       "lists them",
			       s->c->n_switches, s->c->n_nodes);
		return 40;
	}
	for (int i = 0; groups && i < n; i++) {
		double part = whole * leaves_of(groups[i]) / leaves;
		put_group(&t, groups[i], x, part, y + TOP);
		x += part;
	}
	topo_group_free(groups, n);
	return t.bottom + NODES_H + 14 - y;
}
