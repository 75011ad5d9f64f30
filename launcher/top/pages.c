/* pages: what takes the table's place: one rank, all messages, help. */
#include "launcher/top/layout.h"
#include "launcher/top/text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LABEL = 12, DATE = 11 /* the date at the begin of a line of a log */, ROOMY = 100 };

/* --- one rank ----------------------------------------------------------------------------- */

/* Prints "LABEL  TEXT" and returns the next row; end: no row is left there. */
static int field(struct top_page *p, int row, int end, enum top_style style, const char *label,
		 const char *fmt, ...) __attribute__((format(printf, 6, 7)));

static int field(struct top_page *p, int row, int end, enum top_style style, const char *label,
		 const char *fmt, ...)
{
	char text[512];
	va_list ap;
	if (row >= end)
		return row;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	top_page_put(p, row, 1, LABEL, TOP_DIM, label);
	top_page_put(p, row, 1 + LABEL, p->cols - LABEL - 2, style, text);
	return row + 1;
}

static int draw_numbers(const struct top_view *v, struct top_page *p, int rank, int row, int end)
{
	const struct top_rank *r = &v->facts->ranks[rank];
	char what[300], a[HUMAN], b[HUMAN], c[HUMAN];
	enum top_mark mark = top_rows_mark(v->facts, rank, what, sizeof what);
	if (r->heard && *r->phase)
		row = field(p, row, end, TOP_PLAIN, "does", "%s of step %lld; moved %s ago",
			    r->phase, (long long)r->step, top_text_seconds(r->still_s, a));
	if (!isnan(r->own_s))
		row = field(p, row, end, TOP_PLAIN, "per step", "own %s, its peers %s; waits %s",
			    top_text_seconds(r->own_s, a), top_text_seconds(r->peers_s, b),
			    top_text_seconds(r->wait_s, c));
	if (!isnan(r->peak_bytes))
		row = field(p, row, end, TOP_PLAIN, "memory", "%s at most",
			    top_text_bytes(r->peak_bytes, a));
	if (mark)
		row = field(p, row, end, mark == TOP_MARK_BAD ? TOP_BAD : TOP_WARN, "stands out",
			    "%s", what);
	return row;
}

static enum top_style log_style(const char *line, size_t n)
{
	static const struct {
		const char *word;
		enum top_style style;
	} levels[] = { { " error ", TOP_BAD }, { " warn ", TOP_WARN }, { " debug ", TOP_DIM } };
	size_t begin = n < 40 ? n : 40; /* the level is among the first words */
	for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
		if (memmem(line, begin, levels[i].word, strlen(levels[i].word)))
			return levels[i].style;
	return TOP_PLAIN;
}

/* A line without its date where there is little room. */
static void draw_log_line(struct top_page *p, int row, const char *line, size_t n)
{
	char text[1024];
	bool dated = n > DATE && isdigit((unsigned char)line[0]) && line[4] == '-' &&
		     line[7] == '-' && line[10] == ' ';
	size_t skip = dated && p->cols < ROOMY ? DATE : 0;
	snprintf(text, sizeof text, "%.*s", (int)(n - skip), line + skip);
	top_page_put(p, row, 1, p->cols - 2, log_style(line, n), text);
}

/* The begin of the line before `at`; the text's, if there is none. */
static const char *line_before(const char *text, const char *at)
{
	const char *stop = at > text && at[-1] == '\n' ? at - 1 : at;
	const char *end = stop > text ? memrchr(text, '\n', (size_t)(stop - text)) : NULL;
	return end ? end + 1 : text;
}

/* The last lines of the log that fit, or earlier ones. */
static void draw_log(const struct top_view *v, struct top_page *p, int row, int end)
{
	const char *text = v->facts->log, *from = text + strlen(text);
	for (int i = 0; i < v->ui->back + end - row && from > text; i++)
		from = line_before(text, from);
	for (; row < end && *from; row++) {
		const char *stop = strchrnul(from, '\n');
		draw_log_line(p, row, from, (size_t)(stop - from));
		from = *stop ? stop + 1 : stop;
	}
}

void top_pages_draw_details(const struct top_view *v, struct top_page *p, int row, int most)
{
	const struct top_facts *f = v->facts;
	int rank = v->ui->chosen, end = row + most;
	char head[400];
	if (rank >= f->world)
		return;
	const struct top_rank *r = &f->ranks[rank];
	snprintf(head, sizeof head, " rank %d on %s%s%s%s%s", rank, r->node, *r->place ? ", " : "",
		 *r->place ? f->place_head : "", *r->place ? " = " : "", r->place);
	top_page_paint(p, row, 0, p->cols, TOP_HEAD);
	top_page_put(p, row++, 0, p->cols, TOP_HEAD, head);
	row = draw_numbers(v, p, rank, row, end);
	if (f->log_rank != rank)
		field(p, row, end, TOP_DIM, "log", "is being read");
	else if (!f->log || !*f->log)
		field(p, row, end, TOP_DIM, "log", "%s",
		      *f->log_trouble ? f->log_trouble : "is empty");
	else
		draw_log(v, p, row + (row < end - 4), end);
}

/* --- messages ----------------------------------------------------------------------------- */

void top_pages_draw_messages(const struct top_view *v, struct top_page *p, int row, int most)
{
	const struct rundir_state *s = &v->facts->look.state;
	int end = row + most;
	char text[1024];
	size_t i;
	json_t *of;
	top_page_paint(p, row, 0, p->cols, TOP_HEAD);
	top_page_put(p, row++, 1, p->cols, TOP_HEAD, "Warnings, and what stands out");
	int begin = row;
	json_array_foreach(s->warnings, i, of)
	{
		snprintf(text, sizeof text, "! %s",
			 json_string_value(of) ? json_string_value(of) : "");
		row += top_page_wrap(p, row, 1, p->cols - 2, end - row, TOP_WARN, text);
	}
	json_array_foreach(s->stand_out, i, of)
	{
		struct rundir_state_spot spot;
		if (rundir_state_spot_read(of, &spot, NULL))
			continue;
		if (spot.has_rank)
			snprintf(text, sizeof text, "rank %d on %s: %s", spot.rank, spot.node,
				 spot.what);
		else
			snprintf(text, sizeof text, "node %s: %s", spot.node, spot.what);
		row += top_page_wrap(p, row, 1, p->cols - 2, end - row, TOP_PLAIN, text);
	}
	if (row == begin)
		top_page_put(p, row, 1, p->cols, TOP_DIM, "none");
}

/* --- help --------------------------------------------------------------------------------- */

/* In the order of their use: a small screen shows the first ones. */
static const struct {
	const char *keys, *what;
} helps[] = {
	{ "q", "quit; the run goes on" },
	{ "up down", "choose a row; also k and j" },
	{ "PgUp PgDn", "a screen up or down; also space" },
	{ "Home End", "the first and the last row; also g and G" },
	{ "Enter", "a rank's numbers and log (PgUp: earlier lines); a node's ranks" },
	{ "Esc", "back; in the table: all rows again" },
	{ "n", "a row per node, or per rank" },
	{ "s", "sort by the next column;  r  the other way round" },
	{ "/", "show the nodes whose name has the text" },
	{ "w", "all warnings, and what stands out" },
	{ "OWN", "seconds of a step in which the rank waits for no other" },
	{ "WAIT", "seconds of a step in which it waits; of a node: the longest" },
	{ "curves", "the last 600 steps, each between its least and greatest value" },
};

void top_pages_draw_help(const struct top_view *v, struct top_page *p, int row, int most)
{
	int end = row + most;
	(void)v;
	top_page_paint(p, row, 0, p->cols, TOP_HEAD);
	top_page_put(p, row++, 1, p->cols, TOP_HEAD, "Keys and words");
	for (size_t i = 0; i < sizeof helps / sizeof *helps && row < end; i++, row++) {
		top_page_put(p, row, 1, LABEL - 1, TOP_STRONG, helps[i].keys);
		top_page_put(p, row, 1 + LABEL, p->cols - LABEL - 2, TOP_PLAIN, helps[i].what);
	}
}
