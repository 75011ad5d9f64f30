#include "launcher/top/ui.h"

#include <stdio.h>
#include <string.h>

static int clamp(int value, int low, int high)
{
	return value > high ? (high < low ? low : high) : value < low ? low : value;
}

static void scroll(struct top_ui *u, int n, int page)
{
	page = page > 0 ? page : 1;
	if (u->at < u->first)
		u->first = u->at;
	if (u->at >= u->first + page)
		u->first = u->at - page + 1;
	u->first = clamp(u->first, 0, n - page);
}

void top_ui_settle(struct top_ui *u, const struct top_rows *rows, const struct top_facts *f,
		   int page)
{
	int at = top_rows_find(rows, f, u->chosen, u->order.nodes);
	u->at = at >= 0 ? at : clamp(u->at, 0, rows->n - 1);
	scroll(u, rows->n, page);
}

static void move_to(struct top_ui *u, int at, const struct top_rows *rows, int page)
{
	u->at = clamp(at, 0, rows->n - 1);
	if (u->at < rows->n)
		u->chosen = rows->of[u->at].rank;
	u->back = 0;
	scroll(u, rows->n, page);
}

/* The keys that edit the filter. */
static void type(struct top_ui *u, int key)
{
	size_t n = strlen(u->order.filter);
	if (key == TOP_KEY_ENTER) {
		u->typing = false;
	} else if (key == TOP_KEY_ESCAPE) {
		u->typing = false;
		snprintf(u->order.filter, sizeof u->order.filter, "%s", u->before);
	} else if (key == TOP_KEY_BACKSPACE) {
		u->order.filter[n ? n - 1 : 0] = 0;
	} else if (key > ' ' && key < 0x7f && n + 1 < sizeof u->order.filter) {
		u->order.filter[n] = (char)key;
		u->order.filter[n + 1] = 0;
	}
}

static void enter(struct top_ui *u, const struct top_rows *rows)
{
	if (u->kind != TOP_TABLE || u->at >= rows->n) {
		u->kind = TOP_TABLE;
		return;
	}
	u->back = 0;
	if (!u->order.nodes) {
		u->kind = TOP_DETAILS;
		return;
	}
	snprintf(u->order.filter, sizeof u->order.filter, "%s", rows->of[u->at].node);
	u->order.nodes = false;
}

/* Escape leads back: from a page to the table, then from the filter to all rows. */
static void escape(struct top_ui *u)
{
	if (u->kind != TOP_TABLE)
		u->kind = TOP_TABLE;
	else
		*u->order.filter = 0;
}

static void toggle(struct top_ui *u, enum top_view_kind kind)
{
	u->kind = u->kind == kind ? TOP_TABLE : kind;
}

static void start_typing(struct top_ui *u)
{
	u->kind = TOP_TABLE;
	u->typing = true;
	snprintf(u->before, sizeof u->before, "%s", u->order.filter);
	*u->order.filter = 0;
}

static void move(struct top_ui *u, int key, const struct top_rows *rows, int page)
{
	switch (key) {
	case TOP_KEY_UP:
	case 'k':
		move_to(u, u->at - 1, rows, page);
		break;
	case TOP_KEY_DOWN:
	case 'j':
		move_to(u, u->at + 1, rows, page);
		break;
	case TOP_KEY_PAGE_UP:
		u->first -= page;
		move_to(u, u->at - page, rows, page);
		break;
	case TOP_KEY_PAGE_DOWN:
	case ' ':
		u->first += page;
		move_to(u, u->at + page, rows, page);
		break;
	case TOP_KEY_HOME:
	case 'g':
		move_to(u, 0, rows, page);
		break;
	case TOP_KEY_END:
	case 'G':
		move_to(u, rows->n - 1, rows, page);
		break;
	default:
		break;
	}
}

bool top_ui_key(struct top_ui *u, int key, const struct top_rows *rows, int page)
{
	if (u->typing) {
		type(u, key);
		return true;
	}
	if (u->kind == TOP_DETAILS && (key == TOP_KEY_PAGE_UP || key == TOP_KEY_PAGE_DOWN)) {
		u->back = clamp(u->back + (key == TOP_KEY_PAGE_UP ? page : -page), 0, 1 << 20);
		return true;
	}
	switch (key) {
	case 'q':
		return false;
	case TOP_KEY_ENTER:
		enter(u, rows);
		break;
	case TOP_KEY_ESCAPE:
	case TOP_KEY_BACKSPACE:
		escape(u);
		break;
	case 'n':
		u->order.nodes = !u->order.nodes;
		u->kind = TOP_TABLE;
		break;
	case 's':
		u->order.sort = (u->order.sort + 1) % TOP_SORT_COUNT;
		break;
	case 'r':
		u->order.reverse = !u->order.reverse;
		break;
	case 'w':
		toggle(u, TOP_MESSAGES);
		break;
	case 'h':
	case '?':
		toggle(u, TOP_HELP);
		break;
	case '/':
		start_typing(u);
		break;
	default:
		move(u, key, rows, page);
		break;
	}
	return true;
}

int top_ui_details(const struct top_ui *u)
{
	return u->kind == TOP_DETAILS ? u->chosen : -1;
}
