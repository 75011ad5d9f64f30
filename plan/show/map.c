#include "plan/show/map.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, INDENT = 4, NODES_DRAWN = 8, BOXES_DRAWN = 64 };

/* Ranks [lo, hi) of one tensor-parallel group on one node. */
struct box {
	int lo, hi;
};

static struct box box_at(const struct plan *p, int rank)
{
	struct box b = { rank, rank + 1 };
	const struct plan_rank *r = p->ranks;
	while (b.hi < p->world && b.hi % p->layout.tp && r[b.hi].node == r[rank].node)
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

/* --- Boxes ------------------------------------------------------------------ */

struct pen {
	int cell;   /* columns inside a box */
	int number; /* columns of a rank */
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

/* One line of the boxes: the frame's ends, or the text that `fill` puts into each. */
static void frame(const struct pen *pen, int n, const char *left, const char *mid, const char *right, struct buf *out)
{
	repeat(" ", INDENT, out);
	for (int i = 0; i < n; i++) {
		buf_puts(out, i ? mid : left);
		repeat("─", pen->cell, out);
	}
	buf_printf(out, "%s\n", right);
}

static void title_line(const struct plan *p, const struct pen *pen, const struct box *boxes, int n, struct buf *out)
{
	repeat(" ", INDENT, out);
	for (int i = 0; i < n; i++) {
		char title[40];
		struct coords at = p->ranks[boxes[i].lo].at;
		int used = snprintf(title, sizeof title, "pp %d dp %d", at.pp, at.dp);
		if (p->layout.cp > 1)
			snprintf(title + used, sizeof title - (size_t)used, " cp %d", at.cp);
		buf_printf(out, "│ %-*s", pen->cell - 1, title);
	}
	buf_puts(out, "│\n");
}

static void rank_line(const struct pen *pen, const struct box *boxes, int n, struct buf *out)
{
	repeat(" ", INDENT, out);
	for (int i = 0; i < n; i++) {
		buf_puts(out, "│");
		for (int r = boxes[i].lo; r < boxes[i].hi; r++)
			buf_printf(out, " %*d", pen->number, r);
		repeat(" ", pen->cell - (boxes[i].hi - boxes[i].lo) * (pen->number + 1), out);
	}
	buf_puts(out, "│\n");
}

static void draw_node(const struct cluster *c, const struct plan *p, const struct pen *pen, int *rank, struct buf *out)
{
	int node = p->ranks[*rank].node, per_row = (WIDTH - INDENT - 1) / (pen->cell + 1);
	buf_printf(out, "  %s\n", c->nodes[node].name);
	if (per_row < 1)
		per_row = 1;
	while (*rank < p->world && p->ranks[*rank].node == node) {
		struct box boxes[WIDTH];
		int n = 0;
		while (n < per_row && *rank < p->world && p->ranks[*rank].node == node) {
			boxes[n] = box_at(p, *rank);
			*rank = boxes[n++].hi;
		}
		frame(pen, n, "┌", "┬", "┐", out);
		title_line(p, pen, boxes, n, out);
		rank_line(pen, boxes, n, out);
		frame(pen, n, "└", "┴", "┘", out);
	}
}

/* --- The table -------------------------------------------------------------- */

/* Ranks [lo, hi) of one node and one stage, and how many nodes after it look the same. */
struct span {
	int lo, hi;
};

static struct span span_at(const struct plan *p, int rank)
{
	struct span s = { rank, rank + 1 };
	const struct plan_rank *r = p->ranks;
	while (s.hi < p->world && r[s.hi].node == r[rank].node && r[s.hi].at.pp == r[rank].at.pp)
		s.hi++;
	return s;
}

/* Whether `next` goes on where a run of equal nodes that began with `first` ended. */
static bool goes_on(const struct plan *p, const struct span *first, int last_node, const struct span *next)
{
	const struct plan_rank *a = &p->ranks[first->lo], *b = &p->ranks[next->lo];
	return b->node == last_node + 1 && a->at.pp == b->at.pp && a->at.tp == b->at.tp && a->slot == b->slot &&
	       first->hi - first->lo == next->hi - next->lo;
}

static void range(int lo, int hi, char out[32])
{
	snprintf(out, 32, lo == hi ? "%d" : "%d-%d", lo, hi);
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

static void table_line(const struct cluster *c, const struct plan *p, const struct span *first, int end, struct buf *out)
{
	const struct plan_rank *a = &p->ranks[first->lo], *b = &p->ranks[end - 1];
	char nodes[140], dp[32], cp[32], tp[32], ranks[32];
	snprintf(nodes, sizeof nodes, a->node == b->node ? "%s" : "%s … %s", c->nodes[a->node].name, c->nodes[b->node].name);
	int wide = 34 + (a->node != b->node) * 2; /* '…' is three bytes and one column */
	range(a->at.dp, b->at.dp, dp);
	range(a->at.tp, least(a->at.tp + first->hi - first->lo, p->layout.tp) - 1, tp);
	range(first->lo, end - 1, ranks);
	bool all_cp = a->at.dp != b->at.dp;
	range(all_cp ? 0 : a->at.cp, all_cp ? p->layout.cp - 1 : b->at.cp, cp);
	buf_printf(out, "  %-*s %5d  %-9s ", wide, nodes, a->at.pp, dp);
	if (p->layout.cp > 1)
		buf_printf(out, "%-9s ", cp);
	buf_printf(out, "%-9s %s\n", tp, ranks);
}

static void table(const struct cluster *c, const struct plan *p, struct buf *out)
{
	buf_printf(out, "  %-34s %5s  %-9s %s%-9s %s\n", "nodes", "pp", "dp", p->layout.cp > 1 ? "cp        " : "", "tp", "ranks");
	for (int rank = 0; rank < p->world;) {
		struct span first = span_at(p, rank), next = first;
		int node = p->ranks[rank].node;
		do {
			rank = next.hi;
			node = p->ranks[rank - 1].node;
			if (rank < p->world)
				next = span_at(p, rank);
		} while (rank < p->world && goes_on(p, &first, node, &next));
		table_line(c, p, &first, rank, out);
	}
}

void map_print(const struct cluster *c, const struct plan *p, struct buf *out)
{
	int nodes = p->ranks[p->world - 1].node - p->ranks[0].node + 1;
	if (nodes > NODES_DRAWN || p->world / p->layout.tp > BOXES_DRAWN) {
		buf_puts(out, "\nRanks\n");
		table(c, p, out);
		return;
	}
	struct pen pen = pen_of(p);
	buf_puts(out, "\nRanks (a box is a tensor-parallel group)\n");
	for (int rank = 0; rank < p->world;)
		draw_node(c, p, &pen, &rank, out);
}
