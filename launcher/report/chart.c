#include "launcher/report/chart.h"

#include "launcher/report/sample.h"

#include <math.h>
#include <stdlib.h>

enum {
	PARTS = 500,  /* points of a line */
	FEW = 60,     /* so many points are drawn as points */
	RARE = 100,   /* one point of so many may be beyond the scale … */
	BEYOND = 3,   /* … if it is so many times the range of the others away */
	HEIGHT = 230, /* pixels */
};

struct drawn {
	struct sample *points;
	size_t n;
	double least, most;
};

/* A chart while it is written. */
struct sheet {
	const struct chart *c;
	struct plot plot;
	struct drawn lines[CHART_LINES];
};

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The range that most points of all lines need. A few that are far beyond it must not flatten the
 * others: they are drawn at the edge, and the legend names them. */
static void find_range(const struct sheet *s, double *lo, double *hi)
{
	size_t n = 0;
	double *least = calloc((size_t)s->c->n_lines * PARTS, 2 * sizeof *least);
	double *most = least ? least + s->c->n_lines * PARTS : NULL;
	if (!least)
		return;
	for (int i = 0; i < s->c->n_lines; i++)
		for (size_t k = 0; k < s->lines[i].n; k++) {
			least[n] = s->lines[i].points[k].least;
			most[n++] = s->lines[i].points[k].most;
		}
	qsort(least, n, sizeof *least, ascending);
	qsort(most, n, sizeof *most, ascending);
	size_t few = n / RARE;
	double low = least[few], high = most[n - 1 - few], wide = high - low;
	*lo = *lo < low - BEYOND * wide && wide > 0 ? low - wide / 4 : *lo;
	*hi = *hi > high + BEYOND * wide && wide > 0 ? high + wide / 4 : *hi;
	free(least);
}

static bool sample_lines(struct sheet *s)
{
	const struct chart *c = s->c;
	double x_lo = NAN, x_hi = NAN, lo = NAN, hi = NAN;
	for (int i = 0; i < c->n_lines; i++) {
		const struct chart_line *l = &c->lines[i];
		struct drawn *d = &s->lines[i];
		d->points = calloc(PARTS, sizeof *d->points);
		d->n = d->points ? report_sample(l->x, l->y, l->n, PARTS, d->points) : 0;
		report_range(l->y, l->n, &d->least, &d->most);
		if (!d->n)
			continue;
		x_lo = fmin(x_lo, d->points[0].first);
		x_hi = fmax(x_hi, d->points[d->n - 1].last);
		lo = fmin(lo, d->least);
		hi = fmax(hi, d->most);
	}
	if (isnan(lo))
		return false;
	find_range(s, &lo, &hi);
	s->plot = (struct plot){
		.label = c->title,
		.x_name = c->x_name,
		.x = report_scale(x_lo, x_hi, false),
		.y = report_scale(c->from_zero ? fmin(lo, 0) : lo, hi, true),
		.x_format = report_rate,
		.y_format = c->format,
		.height = HEIGHT,
	};
	return true;
}

static void put_key(struct buf *out, const struct chart_line *l)
{
	static const char *const kinds[] = { "line", "dash", "dot" };
	buf_printf(out, "<i class=\"key %s c%d\"></i>", kinds[l->style], l->colour % CHART_COLOURS);
}

static double mid(const struct sample *p)
{
	return (p->first + p->last) / 2;
}

static void put_entry(struct buf *out, const struct chart *c, const struct chart_line *l,
		      const struct drawn *d)
{
	char a[REPORT_WORD], b[REPORT_WORD];
	double last = l->n ? l->y[l->n - 1] : NAN;
	buf_puts(out, "<li>");
	put_key(out, l);
	buf_puts(out, "<span class=\"name\">");
	report_text(out, l->name);
	buf_puts(out, "</span> ");
	if (!d->n) {
		buf_puts(out, "no value</li>\n");
		return;
	}
	if (l->field) {
		buf_puts(out, "<b>");
		report_data(out, l->field, last, c->format(last, a));
		buf_puts(out, "</b>");
		if (d->least < d->most)
			buf_printf(out, " <small>%s to %s</small>", c->format(d->least, a),
				   c->format(d->most, b));
	} else {
		buf_printf(out, "<b>%s</b>", c->format(last, a));
	}
	buf_puts(out, "</li>\n");
}

/* The value that is farthest beyond the scale, and where. */
static void put_beyond(struct buf *out, const struct sheet *s)
{
	char a[REPORT_WORD], b[REPORT_WORD];
	for (int i = 0; i < s->c->n_lines; i++) {
		const struct chart_line *l = &s->c->lines[i];
		const struct drawn *d = &s->lines[i];
		double what = d->most > s->plot.y.hi    ? d->most
			      : d->least < s->plot.y.lo ? d->least
							: NAN;
		size_t k = 0;
		while (k < l->n && l->y[k] != what)
			k++;
		if (k == l->n)
			continue;
		buf_printf(out, "<li><i class=\"key beyond\"></i>beyond the scale: ");
		if (s->c->n_lines > 1) {
			report_text(out, l->name);
			buf_puts(out, " ");
		}
		buf_printf(out, "%s at step %s</li>\n", s->c->format(what, a),
			   report_count((int64_t)l->x[k], b));
	}
}

static void put_legend(struct buf *out, const struct sheet *s)
{
	const struct chart *c = s->c;
	buf_puts(out, "<ul class=\"legend\">\n");
	for (int i = 0; i < c->n_lines; i++)
		put_entry(out, c, &c->lines[i], &s->lines[i]);
	put_beyond(out, s);
	if (c->n_marks)
		buf_puts(out, "<li><i class=\"key mark\"></i>restart</li>\n");
	buf_puts(out, "</ul>\n");
}

/* From the least to the greatest value of each point, and back. */
static void put_band(struct buf *out, const struct sheet *s, const struct drawn *d, int colour)
{
	const struct plot *p = &s->plot;
	buf_printf(out, "<path class=\"band c%d\" d=\"", colour);
	for (size_t i = 0; i < d->n; i++)
		buf_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', report_plot_x(p, mid(&d->points[i])),
			   report_plot_y(p, d->points[i].most));
	for (size_t i = d->n; i-- > 0;)
		buf_printf(out, "L%.1f %.1f", report_plot_x(p, mid(&d->points[i])),
			   report_plot_y(p, d->points[i].least));
	buf_puts(out, "Z\"/>\n");
}

/* Dots at the edge for what is beyond the scale. */
static void put_edges(struct buf *out, const struct sheet *s, const struct drawn *d)
{
	bool any = false;
	for (size_t i = 0; i < d->n; i++) {
		bool high = d->points[i].most > s->plot.y.hi,
		     low = d->points[i].least < s->plot.y.lo;
		if (!high && !low)
			continue;
		buf_puts(out, any ? "" : "<path class=\"dots beyond\" d=\"");
		buf_printf(out, "M%.1f %dh0", report_plot_x(&s->plot, mid(&d->points[i])),
			   high ? 0 : PLOT_HEIGHT);
		any = true;
	}
	buf_puts(out, any ? "\"/>\n" : "");
}

static void put_line(struct buf *out, const struct sheet *s, int i)
{
	const struct chart_line *l = &s->c->lines[i];
	const struct drawn *d = &s->lines[i];
	const struct plot *p = &s->plot;
	int colour = l->colour % CHART_COLOURS;
	bool dots = l->style == CHART_POINTS && d->n <= FEW, banded = false;
	for (size_t k = 0; k < d->n; k++)
		banded |= d->points[k].n > 1;
	if (banded && l->style != CHART_DASHED)
		put_band(out, s, d, colour);
	buf_printf(out, "<path class=\"%s c%d\" d=\"",
		   l->style == CHART_DASHED ? "line dash" : "line", colour);
	for (size_t k = 0; k < d->n; k++)
		buf_printf(out, "%c%.1f %.1f", k ? 'L' : 'M', report_plot_x(p, mid(&d->points[k])),
			   report_plot_y(p, d->points[k].mean));
	if (d->n == 1)
		buf_puts(out, "h0");
	buf_puts(out, "\"/>\n");
	put_edges(out, s, d);
	if (!dots)
		return;
	buf_printf(out, "<path class=\"dots c%d\" d=\"", colour);
	for (size_t k = 0; k < d->n; k++)
		buf_printf(out, "M%.1f %.1fh0", report_plot_x(p, mid(&d->points[k])),
			   report_plot_y(p, d->points[k].mean));
	buf_puts(out, "\"/>\n");
}

/* [x, y] of a value, [first x, last x, mean, least, greatest] of several. */
static void put_numbers(struct buf *out, const struct sheet *s)
{
	const struct plot *p = &s->plot;
	char a[REPORT_WORD], b[REPORT_WORD];
	buf_printf(out, "<script type=\"application/json\">{\"x\":[%s,%s],\"lines\":[",
		   report_exact(p->x.lo, a), report_exact(p->x.hi, b));
	for (int i = 0; i < s->c->n_lines; i++) {
		buf_puts(out, i ? ",[" : "[");
		for (size_t k = 0; k < s->lines[i].n; k++) {
			const struct sample *v = &s->lines[i].points[k];
			buf_puts(out, k ? "," : "");
			if (v->n > 1)
				buf_printf(out, "[%.10g,%.10g,%.6g,%.6g,%.6g]", v->first, v->last,
					   v->mean, v->least, v->most);
			else
				buf_printf(out, "[%.10g,%s]", v->first, report_exact(v->mean, a));
		}
		buf_puts(out, "]");
	}
	buf_puts(out, "]}</script>\n");
}

void report_chart(struct buf *out, const struct chart *c)
{
	struct sheet *s = calloc(1, sizeof *s);
	if (s)
		s->c = c;
	if (s && sample_lines(s)) {
		report_figure_open(out, NULL, c->id, c->title);
		if (c->note)
			buf_printf(out, "<p class=\"note\">%s</p>\n", c->note);
		put_legend(out, s);
		report_plot_open(out, &s->plot);
		report_plot_marks(out, &s->plot, c->marks, c->n_marks);
		for (int i = 0; i < c->n_lines; i++)
			put_line(out, s, i);
		report_plot_close(out, &s->plot);
		put_numbers(out, s);
		report_figure_close(out);
	}
	for (int i = 0; s && i < c->n_lines; i++)
		free(s->lines[i].points);
	free(s);
}
