#include "plan/show/draw_timeline.h"

#include "base/human.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If there are more than ROWS ranks, the first ones and the last ROWS_LAST are shown. */
enum { ROWS = 40, ROWS_LAST = 8, LEAST_WIDTH = 40, LONGEST_CUT = 16 };
/* If the whole drawing is too small by less than this factor, nothing is cut. */
#define ALMOST 1.3

struct page {
	const struct drawing *d;
	struct buf *out;
	bool colour;
	int label, columns; /* columns of the ranks' names; columns of the time */
	double scale;       /* columns per second */
	int *cell;          /* [columns] the event there; -1: none */
};

static int digits(int n)
{
	return snprintf(NULL, 0, "%d", n);
}

static int last_micro(const struct drawing *d)
{
	int last = 0;
	for (int p = 0; p < d->n_parts; p++)
		for (int i = 0; i < d->parts[p].timeline->n; i++)
			last = d->parts[p].timeline->events[i].micro > last
				       ? d->parts[p].timeline->events[i].micro
				       : last;
	return last;
}

/* The scale shows everything if the numbers are readable then. Otherwise it leaves room for
 * them. */
static void set_scale(struct page *g)
{
	double end = show_draw_end(g->d), typical = show_draw_typical(g->d);
	double whole = end > 0 ? g->columns / end : 1;
	double readable = typical > 0 ? (digits(last_micro(g->d)) + (g->colour ? 1 : 2)) / typical
				      : 0;
	g->scale = readable < ALMOST * whole ? whole : fmin(readable, LONGEST_CUT * whole);
}

static int column_of(const struct page *g, double seconds)
{
	/* Simulated times are sums. Equal times must get the same column in spite of rounding. */
	double at = seconds * g->scale + 0.5;
	return at < g->columns ? (int)at : g->columns;
}

static void paint(struct page *g, const struct timeline *t, int rank)
{
	for (int c = 0; c < g->columns; c++)
		g->cell[c] = -1;
	for (int i = 0; i < t->n; i++)
		if (t->events[i].rank == rank && show_draw_look(t->events[i].op))
			for (int c = column_of(g, t->events[i].begin);
			     c < column_of(g, t->events[i].end); c++)
				g->cell[c] = i;
}

/* Prints `room` columns of a pass: its letter if there is no colour, its number, then filling. */
static void print_cell(const struct page *g, const struct timeline_event *v, int room)
{
	const struct draw_look *look = show_draw_look(v->op);
	bool odd = v->chunk > 0 && v->chunk % 2;
	char text[32] = "";
	if (!g->colour)
		snprintf(text, sizeof text, "%c",
			 odd ? tolower((unsigned char)look->letter) : look->letter);
	if (v->micro >= 0)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%d", v->micro);
	/* A number is not cut, because it would look like another number. */
	int fits = (int)strlen(text) <= room ? (int)strlen(text) : g->colour ? 0 : 1;
	if (g->colour)
		buf_printf(g->out, "\033[48;5;%dm\033[38;5;%dm", look->shade[odd].terminal,
			   odd ? 16 : 231);
	buf_printf(g->out, "%.*s", fits, text);
	for (int c = fits; c < room; c++)
		buf_puts(g->out, g->colour ? " " : "-");
	if (g->colour)
		buf_puts(g->out, "\033[0m");
}

static void print_row(struct page *g, const struct timeline *t, int rank)
{
	int busy = 0;
	paint(g, t, rank);
	for (int c = 0; c < g->columns; c++)
		busy = g->cell[c] >= 0 ? c + 1 : busy;
	/* Waiting after a rank's last pass is part of the bubble. */
	int end = column_of(g, timeline_end(t));
	busy = end > busy ? end : busy;
	buf_printf(g->out, "%*d ", g->label - 1, rank);
	for (int c = 0, to; c < busy; c = to) {
		for (to = c + 1; to < busy && g->cell[to] == g->cell[c];)
			to++;
		if (g->cell[c] >= 0)
			print_cell(g, &t->events[g->cell[c]], to - c);
		for (int i = c; g->cell[c] < 0 && i < to; i++)
			buf_puts(g->out, g->colour ? "\033[2m·\033[0m" : "·");
	}
	buf_puts(g->out, "\n");
}

static void print_part(struct page *g, const struct draw_part *part)
{
	int ranks = part->timeline->ranks;
	show_draw_caption(part, g->out);
	buf_puts(g->out, "\n");
	for (int r = 0; r < ranks; r++) {
		print_row(g, part->timeline, r);
		if (ranks > ROWS && r == ROWS - ROWS_LAST - 1) {
			buf_printf(g->out, "%*s %d ranks between\n", g->label - 1, "…",
				   ranks - ROWS);
			r = ranks - ROWS_LAST - 1;
		}
	}
}

static void print_legend(struct page *g)
{
	static const enum sched_op order[] = { SCHED_FORWARD, SCHED_BACKWARD, SCHED_BACKWARD_INPUT,
					       SCHED_BACKWARD_WEIGHT, SCHED_REDUCE };
	int chunks = 1;
	for (int p = 0; p < g->d->n_parts; p++)
		chunks = g->d->parts[p].timeline->chunks > chunks ? g->d->parts[p].timeline->chunks
								  : chunks;
	buf_printf(g->out, "%*s", g->label, "");
	for (int i = 0; i < (int)(sizeof order / sizeof *order); i++) {
		const struct draw_look *look = show_draw_look(order[i]);
		if (!show_draw_has(g->d, order[i]))
			continue;
		if (g->colour)
			buf_printf(g->out, "\033[48;5;%dm  \033[0m %s   ", look->shade[0].terminal,
				   look->meaning);
		else
			buf_printf(g->out, "%c %s   ", look->letter, look->meaning);
	}
	buf_puts(g->out, "· waiting\n");
	if (chunks > 1)
		buf_printf(g->out, "%*s%s: even chunks; %s: odd ones\n", g->label, "",
			   g->colour ? "dark" : "upper case", g->colour ? "light" : "lower case");
}

void show_draw_text(const struct drawing *d, int width, bool colour, struct buf *out)
{
	struct page g = { .d = d, .out = out, .colour = colour };
	char from[HUMAN], to[HUMAN];
	double end = show_draw_end(d);
	int ranks = 0;
	for (int p = 0; p < d->n_parts; p++)
		ranks = d->parts[p].timeline->ranks > ranks ? d->parts[p].timeline->ranks : ranks;
	g.label = digits(ranks - 1) + 2;
	g.columns = (width < LEAST_WIDTH ? LEAST_WIDTH : width) - g.label;
	g.cell = calloc((size_t)g.columns, sizeof *g.cell);
	if (!g.cell) {
		out->failed = true;
		return;
	}
	set_scale(&g);
	buf_printf(out, "%s\n", d->title);
	for (int p = 0; p < d->n_parts; p++) {
		buf_puts(out, "\n");
		print_part(&g, &d->parts[p]);
	}
	if (end * g.scale > g.columns + 0.5)
		buf_printf(out, "%*scut at %s of %s: a wider terminal shows more, --svg FILE all\n",
			   g.label, "", human_seconds(g.columns / g.scale, from),
			   human_seconds(end, to));
	print_legend(&g);
	free(g.cell);
}
