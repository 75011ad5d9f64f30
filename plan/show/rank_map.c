#include "plan/show/rank_map.h"

#include "plan/rank_devices.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	WIDTH = 80,
	INDENT = 4,
	NODES_DRAWN = 8,
	BOXES_DRAWN = 64,
	ROWS_MAX = 10,
	ROWS_FIRST = 6,
	ROWS_LAST = 2
};

/* The ranks, node by node (rank_devices.h). */
struct chart {
	const struct cluster *c;
	const struct plan *p;
	int *first, *order;
};

/* The entries [lo, hi) of the order that belong to one tensor-parallel group on one node. */
struct group_box {
	int lo, hi;
};

static const struct plan_rank *rank_at(const struct chart *h, int entry)
{
	return &h->p->ranks[h->order[entry]];
}

static struct group_box measure_group_box(const struct chart *h, int lo, int end)
{
	struct group_box b = { lo, lo + 1 };
	int tp = h->p->layout.tp;
	while (b.hi < end && h->order[b.hi] / tp == h->order[lo] / tp)
		b.hi++;
	return b;
}

static int digits(int n)
{
	int d = 1;
	for (; n > 9; n /= 10)
		d++;
	return d;
}

static void repeat(const char *s, int n, struct buf *out)
{
	while (n-- > 0)
		buf_puts(out, s);
}

/* --- Boxes --- */

struct pen {
	int cell;   /* columns inside a box */
	int number; /* columns of a rank's number */
};

static struct pen pen_of(const struct plan *p)
{
	int number = digits(p->world - 1);
	int ranks = p->layout.tp * (number + 1) - 1;
	int title = 8 + digits(p->layout.pp - 1) + digits(p->layout.dp - 1); /* "pp 0 dp 1" */
	if (p->layout.cp > 1)
		title += 4 + digits(p->layout.cp - 1);
	return (struct pen){ .cell = (ranks > title ? ranks : title) + 2, .number = number };
}

/* Prints one line of the boxes' frames: the left end, the middle and the right end. */
static void frame(const struct pen *pen, int n, const char *left, const char *mid,
		  const char *right, struct buf *out)
{
	repeat(" ", INDENT, out);
	for (int i = 0; i < n; i++) {
		buf_puts(out, i ? mid : left);
		repeat("─", pen->cell, out);
	}
	buf_printf(out, "%s\n", right);
}

static void title_line(const struct chart *h, const struct pen *pen, const struct group_box *boxes,
		       int n, struct buf *out)
{
	repeat(" ", INDENT, out);
	for (int i = 0; i < n; i++) {
		char title[40];
		struct coords at = rank_at(h, boxes[i].lo)->at;
		int used = snprintf(title, sizeof title, "pp %d dp %d", at.pp, at.dp);
		if (h->p->layout.cp > 1)
			snprintf(title + used, sizeof title - (size_t)used, " cp %d", at.cp);
		buf_printf(out, "│ %-*s", pen->cell - 1, title);
	}
	buf_puts(out, "│\n");
}

/* Prints the numbers of the ranks, or of their devices. */
static void number_line(const struct chart *h, const struct pen *pen, const struct group_box *boxes,
			int n, bool devices, struct buf *out)
{
	repeat(" ", INDENT, out);
	for (int i = 0; i < n; i++) {
		buf_puts(out, "│");
		for (int k = boxes[i].lo; k < boxes[i].hi; k++)
			buf_printf(out, " %*d", pen->number,
				   devices ? rank_at(h, k)->slot : h->order[k]);
		repeat(" ", pen->cell - (boxes[i].hi - boxes[i].lo) * (pen->number + 1), out);
	}
	buf_puts(out, "│\n");
}

/* Whether the devices of some node are not in the order of its ranks. */
static bool mixed_devices(const struct chart *h)
{
	for (int i = 1; i < h->p->world; i++)
		if (rank_at(h, i)->node == rank_at(h, i - 1)->node &&
		    rank_at(h, i)->slot < rank_at(h, i - 1)->slot)
			return true;
	return false;
}

static void draw_node(const struct chart *h, const struct pen *pen, int node, bool devices,
		      struct buf *out)
{
	int per_row = (WIDTH - INDENT - 1) / (pen->cell + 1), at = h->first[node],
	    end = h->first[node + 1];
	buf_printf(out, "  %s\n", h->c->nodes[node].name);
	if (per_row < 1)
		per_row = 1;
	while (at < end) {
		struct group_box boxes[WIDTH];
		int n = 0;
		for (; n < per_row && at < end; at = boxes[n++].hi)
			boxes[n] = measure_group_box(h, at, end);
		frame(pen, n, "┌", "┬", "┐", out);
		title_line(h, pen, boxes, n, out);
		number_line(h, pen, boxes, n, false, out);
		if (devices)
			number_line(h, pen, boxes, n, true, out);
		frame(pen, n, "└", "┴", "┘", out);
	}
}

static void draw_nodes(const struct chart *h, struct buf *out)
{
	bool devices = mixed_devices(h);
	struct pen pen = pen_of(h->p);
	buf_printf(out, "\nRanks (a box is a tensor-parallel group%s)\n",
		   devices ? "; below its ranks their devices" : "");
	for (int n = 0; n < h->c->n_nodes; n++)
		if (h->first[n] < h->first[n + 1])
			draw_node(h, &pen, n, devices, out);
}

/* --- The table --- */

enum { TP, CP, DP, PP, AXES };

/* Consecutive nodes, and the smallest and the largest coordinate of their ranks on each axis. */
struct row {
	int from, to, ranks, low, high; /* nodes; number of ranks, their smallest and largest */
	int lo[AXES], hi[AXES];
};

static int room_of(const struct row *r)
{
	int room = 1;
	for (int i = 0; i < AXES; i++)
		room *= r->hi[i] - r->lo[i] + 1;
	return room;
}

static struct row row_of(const struct chart *h, int node)
{
	struct row r = { .from = node, .to = node, .low = h->p->world, .high = -1 };
	for (int k = h->first[node]; k < h->first[node + 1]; k++) {
		const struct coords *at = &rank_at(h, k)->at;
		const int x[AXES] = { at->tp, at->cp, at->dp, at->pp };
		for (int i = 0; i < AXES; i++) {
			r.lo[i] = r.ranks && r.lo[i] < x[i] ? r.lo[i] : x[i];
			r.hi[i] = r.ranks && r.hi[i] > x[i] ? r.hi[i] : x[i];
		}
		r.low = h->order[k] < r.low ? h->order[k] : r.low;
		r.high = h->order[k] > r.high ? h->order[k] : r.high;
		r.ranks++;
	}
	return r;
}

/* Adds `next` to the row if it is the next node, has the same stages, and the ranks together fill a
 * box of coordinates. */
static bool join(struct row *r, const struct row *next)
{
	struct row both = *r;
	if (next->from != r->to + 1 || next->lo[PP] != r->lo[PP] || next->hi[PP] != r->hi[PP] ||
	    next->lo[TP] != r->lo[TP] || next->hi[TP] != r->hi[TP])
		return false;
	for (int i = 0; i < AXES; i++) {
		both.lo[i] = r->lo[i] < next->lo[i] ? r->lo[i] : next->lo[i];
		both.hi[i] = r->hi[i] > next->hi[i] ? r->hi[i] : next->hi[i];
	}
	both.to = next->to;
	both.ranks += next->ranks;
	both.low = next->low < r->low ? next->low : r->low;
	both.high = next->high > r->high ? next->high : r->high;
	if (room_of(&both) != both.ranks)
		return false;
	*r = both;
	return true;
}

static const char *range(int lo, int hi, char out[32])
{
	snprintf(out, 32, lo == hi ? "%d" : "%d-%d", lo, hi);
	return out;
}

static void table_line(const struct chart *h, const struct row *r, struct buf *out)
{
	char nodes[140], text[32];
	snprintf(nodes, sizeof nodes, r->from == r->to ? "%s" : "%s … %s",
		 h->c->nodes[r->from].name, h->c->nodes[r->to].name);
	int wide = 34 + (r->from != r->to) * 2; /* '…' is three bytes and one column */
	buf_printf(out, "  %-*s %5s", wide, nodes, range(r->lo[PP], r->hi[PP], text));
	buf_printf(out, "  %-9s ", range(r->lo[DP], r->hi[DP], text));
	if (h->p->layout.cp > 1)
		buf_printf(out, "%-9s ", range(r->lo[CP], r->hi[CP], text));
	buf_printf(out, "%-9s ", range(r->lo[TP], r->hi[TP], text));
	if (r->high - r->low + 1 != r->ranks)
		buf_printf(out, "%d of ", r->ranks);
	buf_printf(out, "%s\n", range(r->low, r->high, text));
}

/* If there are more than ROWS_MAX rows, the first and the last ones are shown. */
static void row_line(const struct chart *h, const struct row *r, int number, int rows,
		     struct buf *out)
{
	bool shown = rows <= ROWS_MAX || number < ROWS_FIRST || number >= rows - ROWS_LAST;
	if (out && shown)
		table_line(h, r, out);
	else if (out && number == ROWS_FIRST)
		buf_printf(out, "  … %d more rows; --json has every rank\n",
			   rows - ROWS_FIRST - ROWS_LAST);
}

/* Returns the number of rows, and writes them if `out` is not NULL. */
static int table_rows(const struct chart *h, int rows, struct buf *out)
{
	int number = 0;
	struct row r = { .from = -1 };
	for (int n = 0; n < h->c->n_nodes; n++) {
		if (h->first[n] == h->first[n + 1])
			continue;
		struct row next = row_of(h, n);
		if (r.from >= 0 && join(&r, &next))
			continue;
		if (r.from >= 0)
			row_line(h, &r, number++, rows, out);
		r = next;
	}
	row_line(h, &r, number++, rows, out);
	return number;
}

static void table(const struct chart *h, struct buf *out)
{
	buf_printf(out, "\nRanks\n  %-34s %5s  %-9s %s%-9s %s\n", "nodes", "pp", "dp",
		   h->p->layout.cp > 1 ? "cp        " : "", "tp", "ranks");
	table_rows(h, table_rows(h, 0, NULL), out);
}

static int nodes_used(const struct chart *h)
{
	int used = 0;
	for (int n = 0; n < h->c->n_nodes; n++)
		used += h->first[n] < h->first[n + 1];
	return used;
}

void show_rank_map_print(const struct cluster *c, const struct plan *p, struct buf *out)
{
	struct chart h = { c, p, calloc((size_t)c->n_nodes + 2, sizeof *h.first),
			   calloc((size_t)p->world, sizeof *h.order) };
	if (h.first && h.order) {
		plan_ranks_by_node(c, p, h.first, h.order);
		if (nodes_used(&h) > NODES_DRAWN || p->world / p->layout.tp > BOXES_DRAWN)
			table(&h, out);
		else
			draw_nodes(&h, out);
	} else {
		out->failed = true;
	}
	free(h.order);
	free(h.first);
}
