#include "launcher/top/layout.h"

#include <stdio.h>
#include <string.h>

/* --- footer ------------------------------------------------------------------------------- */

/* In the order of the screen; those of a lower number are kept longer. */
static const struct hint {
	int priority;
	const char *key, *what;
} table_hints[] = { { 4, "n", "nodes" },   { 3, "s", "sort" },     { 5, "/", "filter" },
		    { 2, "Enter", "log" }, { 6, "w", "messages" }, { 1, "?", "help" },
		    { 0, "q", "quit" } },
  page_hints[] = { { 1, "Esc", "back" }, { 2, "?", "help" }, { 0, "q", "quit" } };
enum {
	TABLE_HINTS = sizeof table_hints / sizeof *table_hints,
	ROOMY = 100, SMALL = 16,
	PAGE_HINTS = sizeof page_hints / sizeof *page_hints
};

static int hint_width(const struct hint *h)
{
	return (int)(strlen(h->key) + strlen(h->what)) + 3;
}

/* Draws the hints that fit at the right of `from`. */
static void draw_hints(struct top_page *p, int row, int from, const struct hint *hints, int n)
{
	int room = p->cols - from, used = 0, last = -1;
	for (int priority = 0; priority < n; priority++)
		for (int i = 0; i < n; i++)
			if (hints[i].priority == priority && last == priority - 1 &&
			    used + hint_width(&hints[i]) <= room) {
				used += hint_width(&hints[i]);
				last = priority;
			}
	int col = p->cols - used + 1; /* the last one needs no space after it, but the edge */
	for (int i = 0; i < n; i++) {
		if (hints[i].priority > last)
			continue;
		col = top_page_print(p, row, col, TOP_STRONG, "%s", hints[i].key);
		col = top_page_print(p, row, col + 1, TOP_DIM, "%s", hints[i].what) + 2;
	}
}

static int draw_range(const struct top_view *v, struct top_page *p, int row, int page)
{
	const struct top_ui *u = v->ui;
	int n = v->rows->n, last = u->first + page < n ? u->first + page : n;
	int col = 1;
	if (*u->order.filter)
		col = top_page_print(p, row, col, TOP_WARN, "/%s ", u->order.filter);
	col = top_page_print(p, row, col, TOP_PLAIN, "%d-%d of %d", n ? u->first + 1 : 0, last, n);
	if (p->cols < ROOMY)
		return col;
	return top_page_print(p, row, col, TOP_DIM, " by %s", top_sort_name(u->order.sort));
}

static void draw_footer(const struct top_view *v, struct top_page *p, int page)
{
	const struct top_ui *u = v->ui;
	int row = p->rows - 1;
	if (u->typing) {
		int col = top_page_print(p, row, 1, TOP_STRONG, "/%s", u->order.filter);
		top_page_set(p, row, col, TOP_CHOSEN, L' ');
		top_page_print(p, row, col + 2, TOP_DIM, "part of a node's name; Enter keeps it");
	} else if (u->kind == TOP_TABLE) {
		draw_hints(p, row, draw_range(v, p, row, page) + 1, table_hints, TABLE_HINTS);
	} else {
		draw_hints(p, row, 1, page_hints, PAGE_HINTS);
	}
}

/* --- the whole ------------------------------------------------------------------------------ */

/* The row in which the table's head is. An empty one is above it where there is room. */
static int body_row(const struct top_view *v, int rows)
{
	int height = top_header_height(v, rows);
	return height + (rows >= SMALL && v->ui->kind == TOP_TABLE && rows - height - 3 >= v->facts->world);
}

int top_layout_room(const struct top_view *v, int rows)
{
	int room = rows - body_row(v, rows) - 2;
	return room > 0 ? room : 1;
}

void top_layout(const struct top_view *v, struct top_page *p)
{
	int row = body_row(v, p->rows), most = p->rows - row - 1;
	top_header_draw(v, p);
	switch (v->ui->kind) {
	case TOP_DETAILS:
		top_pages_draw_details(v, p, row, most);
		break;
	case TOP_MESSAGES:
		top_pages_draw_messages(v, p, row, most);
		break;
	case TOP_HELP:
		top_pages_draw_help(v, p, row, most);
		break;
	default:
		top_table_draw(v, p, row, most);
		break;
	}
	draw_footer(v, p, top_layout_room(v, p->rows));
}
