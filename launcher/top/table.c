/* table: a row per rank or per node. */
#include "launcher/top/layout.h"
#include "launcher/top/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NODE_MOST = 24, WHAT_LEAST = 8, PHASE = 16, PHASE_NARROW = 10, NARROW = 60, TEXT = 320 };

struct column {
	const char *head;
	enum top_sort sort; /* TOP_SORT_COUNT: by none */
	int keep;           /* columns of a lower number leave first when there is no room */
	bool right;
	int (*width)(const struct top_view *v); /* 0: nobody has numbers for it */
	void (*text)(const struct top_row *r, char out[TEXT]);
};

/* --- widths ------------------------------------------------------------------------------- */

static int rank_width(const struct top_view *v)
{
	int digits = snprintf(NULL, 0, "%d", v->facts->world);
	int least = v->ui->order.nodes ? 6 : 5; /* "RANKS", "RANK", and the arrow */
	return digits < least ? least : digits;
}

static int node_width(const struct top_view *v)
{
	size_t longest = 4;
	for (int i = 0; i < v->rows->n; i++) {
		size_t n = strlen(v->rows->of[i].node);
		longest = n > longest ? n : longest;
	}
	return longest < NODE_MOST ? (int)longest : NODE_MOST;
}

static int place_width(const struct top_view *v)
{
	return v->ui->order.nodes ? 0 : (int)strlen(v->facts->place_head);
}

static int phase_width(const struct top_view *v)
{
	return v->rows->has_phase ? PHASE : 0;
}

static int step_width(const struct top_view *v)
{
	return v->rows->has_phase ? 7 : 0;
}

static int own_width(const struct top_view *v)
{
	return v->rows->has_own ? 7 : 0;
}

static int wait_width(const struct top_view *v)
{
	return v->rows->has_wait ? 7 : 0;
}

static int memory_width(const struct top_view *v)
{
	return v->rows->has_memory ? 8 : 0;
}

/* --- texts -------------------------------------------------------------------------------- */

static void rank_text(const struct top_row *r, char out[TEXT])
{
	if (r->ranks > 1)
		snprintf(out, TEXT, "%d", r->ranks);
	else
		snprintf(out, TEXT, "%d", r->rank);
}

static void node_text(const struct top_row *r, char out[TEXT])
{
	snprintf(out, TEXT, "%s", r->node);
}

static void place_text(const struct top_row *r, char out[TEXT])
{
	snprintf(out, TEXT, "%s", r->place);
}

static void phase_text(const struct top_row *r, char out[TEXT])
{
	snprintf(out, TEXT, "%s", *r->phase ? r->phase : "-");
}

static void step_text(const struct top_row *r, char out[TEXT])
{
	if (r->step >= 0)
		snprintf(out, TEXT, "%lld", (long long)r->step);
	else
		snprintf(out, TEXT, "-");
}

static void own_text(const struct top_row *r, char out[TEXT])
{
	char text[HUMAN];
	snprintf(out, TEXT, "%s", top_text_seconds(r->own_s, text));
}

static void wait_text(const struct top_row *r, char out[TEXT])
{
	char text[HUMAN];
	snprintf(out, TEXT, "%s", top_text_seconds(r->wait_s, text));
}

static void memory_text(const struct top_row *r, char out[TEXT])
{
	char text[HUMAN];
	snprintf(out, TEXT, "%s", top_text_bytes(r->peak_bytes, text));
}

static const struct column columns[] = {
	{ "RANK", TOP_BY_RANK, 9, true, rank_width, rank_text },
	{ "NODE", TOP_BY_NODE, 8, false, node_width, node_text },
	{ NULL, TOP_SORT_COUNT, 1, false, place_width, place_text },
	{ "PHASE", TOP_SORT_COUNT, 7, false, phase_width, phase_text },
	{ "STEP", TOP_BY_STEP, 5, true, step_width, step_text },
	{ "OWN", TOP_BY_OWN, 4, true, own_width, own_text },
	{ "WAIT", TOP_BY_WAIT, 3, true, wait_width, wait_text },
	{ "MEMORY", TOP_BY_MEMORY, 2, true, memory_width, memory_text },
};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* --- drawing ------------------------------------------------------------------------------ */

/* Sets the widths, 0 of columns that are not shown, and returns where the last column begins. */
static int plan_columns(const struct top_view *v, int cols, int widths[COLUMNS])
{
	int used = 1;
	for (int i = 0; i < COLUMNS; i++) {
		widths[i] = columns[i].width(v);
		if (widths[i] == PHASE && cols < NARROW)
			widths[i] = PHASE_NARROW;
		used += widths[i] ? widths[i] + 1 : 0;
	}
	for (int keep = 0; used + WHAT_LEAST > cols && keep < 8; keep++)
		for (int i = 0; i < COLUMNS; i++)
			if (columns[i].keep == keep && widths[i]) {
				used -= widths[i] + 1;
				widths[i] = 0;
			}
	return used;
}

static void put(struct top_page *p, int row, int col, int width, bool right, enum top_style style,
		const char *text)
{
	if (right)
		top_page_put_right(p, row, col, width, style, text);
	else
		top_page_put(p, row, col, width, style, text);
}

static void draw_head(const struct top_view *v, struct top_page *p, int row,
		      const int widths[COLUMNS], int what)
{
	const struct top_order *o = &v->ui->order;
	int col = 1;
	top_page_paint(p, row, 0, p->cols, TOP_HEAD);
	for (int i = 0; i < COLUMNS; i++) {
		const struct column *c = &columns[i];
		char head[TOP_PLACE + 8];
		if (!widths[i])
			continue;
		snprintf(head, sizeof head, "%s%s%s", c->head ? c->head : v->facts->place_head,
			 !i && o->nodes ? "S" : "",
			 c->sort != o->sort ? ""
			 : o->reverse       ? "▲"
					    : "▼");
		put(p, row, col, widths[i], c->right, TOP_HEAD, head);
		col += widths[i] + 1;
	}
	top_page_print(p, row, what, TOP_HEAD, "NOTES%s",
		       o->sort != TOP_BY_MARK ? ""
		       : o->reverse           ? "▲"
					      : "▼");
}

static void draw_row(const struct top_view *v, struct top_page *p, int row, const struct top_row *r,
		     const int widths[COLUMNS], int what)
{
	static const enum top_style marks[] = {
		[TOP_MARK_NONE] = TOP_PLAIN, [TOP_MARK_WARN] = TOP_WARN, [TOP_MARK_BAD] = TOP_BAD
	};
	bool past = rundir_state_active(v->facts->look.id) && !v->facts->look.live;
	enum top_style style = past ? TOP_DIM : marks[r->mark];
	char text[TEXT];
	int col = 1;
	for (int i = 0; i < COLUMNS; i++) {
		if (!widths[i])
			continue;
		columns[i].text(r, text);
		put(p, row, col, widths[i], columns[i].right, style, text);
		col += widths[i] + 1;
	}
	top_page_put(p, row, what, p->cols - what, style, r->what);
}

void top_table_draw(const struct top_view *v, struct top_page *p, int row, int most)
{
	int widths[COLUMNS], what = plan_columns(v, p->cols, widths);
	draw_head(v, p, row++, widths, what);
	if (!v->rows->n)
		top_page_put(p, row, 1, p->cols - 2, TOP_DIM,
			     *v->ui->order.filter    ? "no node has this in its name"
			     : v->facts->look.object ? "no rank is known"
						     : "nothing is known of its ranks yet");
	for (int i = 0; i < most - 1 && v->ui->first + i < v->rows->n; i++) {
		int at = v->ui->first + i;
		draw_row(v, p, row + i, &v->rows->of[at], widths, what);
		if (at == v->ui->at)
			top_page_paint(p, row + i, 0, p->cols, TOP_CHOSEN);
	}
}
