/* report_svg_time: the first run over its time. */
#include "launcher/goodput/report_svg.h"

#include "base/human.h"

#include <math.h>
#include <stdlib.h>

enum {
	CHART = 340,
	AXIS = 44,
	HEAD = 40,
	ROW = 22,
	MARK = 14,
	ROWS_MOST = 24,
	GRIDS = 5,
	TICKS = 10
};
enum { COLUMNS_MOST = 80, KIND = 18 /* characters */ };

double goodput_svg_column(double seconds)
{
	static const double minute = 60, hour = 3600, day = 86400;
	const double round[] = { minute,   5 * minute, 15 * minute, hour,    3 * hour,
				 6 * hour, 12 * hour,  day,         2 * day, 7 * day,
				 30 * day, 90 * day,   365 * day };
	if (seconds < COLUMNS_MOST / 4 * minute)
		return seconds / COLUMNS_MOST;
	for (size_t i = 0; i < sizeof round / sizeof *round; i++)
		if (seconds <= COLUMNS_MOST * round[i])
			return round[i];
	return seconds / COLUMNS_MOST;
}

/* --- Axes ----------------------------------------------------------------------------------- */

struct time_unit {
	const char *name;
	double seconds;
};

/* That of the axis of time. */
static struct time_unit unit_of(double seconds)
{
	static const struct time_unit units[] = {
		{ "days", 86400 }, { "hours", 3600 }, { "minutes", 60 }, { "seconds", 1 }
	};
	int i = 0;
	while (i < 3 && seconds < 2 * units[i].seconds)
		i++;
	return units[i];
}

static double at_x(const struct svg_sheet *h, double seconds)
{
	return SVG_LEFT + SVG_PLOT * seconds / h->end;
}

/* Between marks: 1, 2 or 5 times a power of ten. */
static double tick_of(double all)
{
	double raw = all / TICKS, power = pow(10, floor(log10(raw)));
	return power * (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10);
}

static void put_time_axis(struct svg_sheet *h, double y)
{
	struct time_unit unit = unit_of(h->end);
	double all = h->end / unit.seconds, tick = tick_of(all);
	for (int i = 0; i * tick <= all * (1 + 1e-9); i++) {
		double x = at_x(h, i * tick * unit.seconds);
		buf_printf(
			h->out,
			"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"edge\"/>\n",
			x, y, x, y + 6);
		goodput_svg_words(h, x, y + 24, "tick", "%g", i * tick);
	}
	goodput_svg_words(h, SVG_LEFT - 12, y + 24, "side", "%s", unit.name);
}

/* --- Columns -------------------------------------------------------------------------------- */

/* The last one may be shorter. */
static double seconds_of(const struct svg_sheet *h, int column)
{
	return fmin(h->run.each, h->end - column * h->run.each);
}

static double share_of(const struct svg_sheet *h, int column, int part)
{
	return h->run.columns[column][part] / seconds_of(h, column);
}

/* Where the axis of shares begins, so that what is lost can be seen: below the worst column. In a short last
 * column a single fault is so large a share that what the others lost could not be seen. */
static double lowest(const struct svg_sheet *h)
{
	static const double spans[] = { 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5 };
	double lost = 0;
	int n = h->run.n;
	if (n > 1 && seconds_of(h, n - 1) < h->run.each / 2)
		n--;
	for (int i = 0; i < n; i++)
		lost = fmax(lost, 1 - share_of(h, i, GOODPUT_TRAINED));
	for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
		if (lost <= 0.95 * spans[i])
			return 1 - spans[i];
	return 0;
}

static void put_share_axis(struct svg_sheet *h, double y, double low)
{
	for (int i = 0; i <= GRIDS; i++) {
		double share = low + (1 - low) * i / GRIDS,
		       at = y + CHART - (double)CHART * i / GRIDS;
		buf_printf(h->out,
			   "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" class=\"grid\"/>\n",
			   SVG_LEFT, at, SVG_LEFT + SVG_PLOT, at);
		goodput_svg_words(h, SVG_LEFT - 12, at + 5, "side", "%.4g %%",
				  goodput_percent(share));
	}
}

/* A pointer shows what it is made of. */
static void put_column_title(struct svg_sheet *h, int column)
{
	struct time_unit unit = unit_of(h->end);
	double from = column * h->run.each / unit.seconds,
	       to = from + seconds_of(h, column) / unit.seconds;
	buf_printf(h->out, "<title>%s %.4g to %.4g", unit.name, from, to);
	for (int p = 0; p < GOODPUT_PART_COUNT; p++)
		if (share_of(h, column, p) >= GOODPUT_LEAST_SHARE)
			buf_printf(h->out, "%s %s %.2f %%", p ? "," : ":",
				   goodput_part_name((enum goodput_part)p),
				   goodput_percent(share_of(h, column, p)));
	buf_puts(h->out, "</title>\n");
}

static void put_column(struct svg_sheet *h, int column, double y, double low)
{
	double x = at_x(h, column * h->run.each),
	       wide = at_x(h, column * h->run.each + seconds_of(h, column)) - x, at = 0;
	buf_puts(h->out, "<g>");
	put_column_title(h, column);
	for (int p = 0; p < GOODPUT_PART_COUNT; p++) {
		double from = fmax(at, low), to = fmin(1, at + share_of(h, column, p));
		at = to;
		double height = CHART * (to - from) / (1 - low);
		if (height >= 0.05)
			buf_printf(h->out,
				   "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
				   "fill=\"%s\"/>\n",
				   x, y + CHART * (1 - to) / (1 - low), fmax(0.5, wide - 1), height,
				   goodput_svg_colour((enum goodput_part)p));
	}
	buf_puts(h->out, "</g>\n");
}

double goodput_svg_columns(struct svg_sheet *h, double y)
{
	static const double day = 86400;
	double low = lowest(h);
	char each[HUMAN];
	goodput_svg_words(h, SVG_LEFT, y, "head",
			  "Where the time of this run went, %s%s; the axis begins at %.4g %%",
			  h->run.each == day ? "each day" : human_span(h->run.each, each),
			  h->run.each == day ? "" : " a column", goodput_percent(low));
	y += HEAD / 2;
	put_share_axis(h, y, low);
	for (int i = 0; i < h->run.n; i++)
		put_column(h, i, y, low);
	put_time_axis(h, y + CHART);
	return HEAD / 2 + CHART + AXIS;
}

/* --- Faults --------------------------------------------------------------------------------- */

/* Marks of the kinds from `kind` to `last`, one for each pixel at most. */
static void put_marks(struct svg_sheet *h, double y, int kind, int last)
{
	double before = -1;
	bool begun = false;
	for (int i = 0; i < h->r->history.n_marks; i++) {
		const struct goodput_mark *m = &h->r->history.marks[i];
		double x = at_x(h, m->at);
		if (m->kind < kind || m->kind > last || x - before < 1)
			continue;
		buf_printf(h->out, "%sM%.1f %.1fv%d", begun ? "" : "<path class=\"mark\" d=\"", x,
			   y + (ROW - MARK) / 2.0, MARK);
		before = x;
		begun = true;
	}
	buf_puts(h->out, begun ? "\"/>\n" : "");
}

static void put_row(struct svg_sheet *h, double y, int kind, int last, int64_t n)
{
	const struct goodput_fault *f = &h->r->setup.faults->of[kind];
	buf_printf(h->out, "<g><title>");
	if (kind == last) {
		goodput_svg_plain(h->out, GOODPUT_DOC, *f->doc ? f->doc : f->name);
		buf_printf(h->out, " (%s)", goodput_shows_word(f->shows));
	} else {
		buf_puts(h->out, "the other kinds of the list");
	}
	buf_printf(
		h->out,
		"</title>\n<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" class=\"row\"/>\n"
		"<text x=\"%d\" y=\"%.1f\" class=\"side\">",
		SVG_LEFT, y + 2, SVG_PLOT, ROW - 4, SVG_LEFT - 12, y + ROW / 2 + 5);
	goodput_svg_plain(h->out, KIND, kind == last ? f->name : "others");
	buf_puts(h->out, "</text>\n");
	put_marks(h, y, kind, last);
	goodput_svg_words(h, SVG_LEFT + SVG_PLOT + 12, y + ROW / 2 + 5, "count", "%lld",
			  (long long)n);
	buf_puts(h->out, "</g>\n");
}

double goodput_svg_faults(struct svg_sheet *h, double y)
{
	const struct goodput_faults *f = h->r->setup.faults;
	const struct goodput_result *run = &h->r->sum.first;
	double used = HEAD / 4;
	int rows = 0, kind = 0;
	goodput_svg_words(h, SVG_LEFT, y, "head",
			  run->all_faults ? "Its faults, and how many of each kind"
					  : "It had no faults");
	for (; kind < f->n && rows < ROWS_MOST; kind++) {
		if (!run->faults[kind])
			continue;
		put_row(h, y + used, kind, kind, run->faults[kind]);
		used += ROW;
		rows++;
	}
	int64_t others = 0;
	for (int i = kind; i < f->n; i++)
		others += run->faults[i];
	if (others) {
		put_row(h, y + used, kind, f->n, others);
		used += ROW;
	}
	return used;
}
