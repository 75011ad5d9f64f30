#include "launcher/report/plot.h"

#include <string.h>

enum { X_TICKS = 7, Y_TICKS = 6, MANY_MARKS = 12 };

/* "80.0 k": "80 k". */
static const char *shorten(char word[REPORT_WORD])
{
	char *point = strchr(word, '.'), *end = point ? point + 1 : NULL;
	if (!point)
		return word;
	end += strspn(end, "0123456789");
	if (*end == 'e')
		return word;
	char *cut = end;
	while (cut[-1] == '0')
		cut--;
	cut -= cut[-1] == '.';
	memmove(cut, end, strlen(end) + 1);
	return word;
}

static const char *tick_word(plot_format format, double v, char word[REPORT_WORD])
{
	format(v, word);
	return v == 0 ? strcpy(word, "0") : shorten(word);
}

void report_figure_open(struct buf *out, const char *run, const char *id, const char *title)
{
	buf_printf(out, "<figure id=\"%s%s%s\" class=\"%s\">\n<figcaption><h3>", run ? run : "",
		   run ? "-" : "", id, id);
	report_text(out, title);
	buf_puts(out, "</h3></figcaption>\n");
}

void report_figure_close(struct buf *out)
{
	buf_puts(out, "</figure>\n");
}

double report_plot_x(const struct plot *p, double v)
{
	return PLOT_WIDTH * report_scale_at(&p->x, v);
}

double report_plot_y(const struct plot *p, double v)
{
	return PLOT_HEIGHT * (1 - report_scale_at(&p->y, v));
}

static void put_y_axis(struct buf *out, const struct plot *p, const double *ticks, int n)
{
	char word[REPORT_WORD];
	buf_puts(out, "<div class=\"y\" aria-hidden=\"true\">");
	for (int i = 0; i < n; i++)
		buf_printf(out, "<span style=\"top:%.2f%%\">%s</span>",
			   100 * (1 - report_scale_at(&p->y, ticks[i])),
			   tick_word(p->y_format, ticks[i], word));
	buf_puts(out, "</div>");
}

/* Names of equal rows. shift: of a row's height. */
static void put_names(struct buf *out, const char *kind, const char *const *names, int n,
		      double shift)
{
	if (!n)
		return;
	buf_printf(out, "<div class=\"%s\" aria-hidden=\"true\">", kind);
	for (int i = 0; i < n; i++) {
		buf_printf(out, "<span style=\"top:%.2f%%\">", 100 * (i + shift) / n);
		report_text(out, names[i]);
		buf_puts(out, "</span>");
	}
	buf_puts(out, "</div>");
}

void report_plot_open(struct buf *out, const struct plot *p)
{
	double ticks[SCALE_TICKS];
	int n = p->y_format ? report_scale_ticks(&p->y, Y_TICKS, ticks) : 0;
	buf_printf(out, "<div class=\"plot%s\">", n || p->n_rows ? "" : " wide");
	if (n)
		put_y_axis(out, p, ticks, n);
	put_names(out, "y", p->rows, p->n_rows, 0.5);
	buf_printf(out, "<div class=\"area%s\" style=\"height:%dpx\">", n ? "" : " strips",
		   p->height);
	put_names(out, "lanes", p->lanes, p->n_lanes, 0);
	buf_printf(out,
		   "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" role=\"img\" "
		   "aria-label=\"",
		   PLOT_WIDTH, PLOT_HEIGHT);
	report_text(out, p->label);
	buf_puts(out, "\">\n");
	if (!n)
		return;
	buf_puts(out, "<path class=\"grid\" d=\"");
	for (int i = 0; i < n; i++)
		buf_printf(out, "M0 %.1fH%d", report_plot_y(p, ticks[i]), PLOT_WIDTH);
	buf_puts(out, "\"/>\n");
}

void report_plot_close(struct buf *out, const struct plot *p)
{
	double ticks[SCALE_TICKS];
	char word[REPORT_WORD];
	int n = report_scale_ticks(&p->x, X_TICKS, ticks);
	buf_puts(out, "</svg></div>\n<div class=\"x\" aria-hidden=\"true\">");
	for (int i = 0; i < n; i++)
		buf_printf(out, "<span%s style=\"left:%.2f%%\">%s</span>",
			   i % 2 ? " class=\"alt\"" : "", 100 * report_scale_at(&p->x, ticks[i]),
			   tick_word(p->x_format, ticks[i], word));
	buf_puts(out, "</div><p class=\"x-name\" aria-hidden=\"true\">");
	report_text(out, p->x_name);
	buf_puts(out, "</p></div>\n");
}

void report_plot_marks(struct buf *out, const struct plot *p, const double *x, size_t n)
{
	bool many = n > MANY_MARKS;
	if (!n)
		return;
	buf_printf(out, "<path class=\"mark%s\" d=\"", many ? " many" : "");
	for (size_t i = 0; i < n; i++)
		buf_printf(out, "M%.1f %dV%d", report_plot_x(p, x[i]),
			   many ? PLOT_HEIGHT - PLOT_HEIGHT / 20 : 0, PLOT_HEIGHT);
	buf_puts(out, "\"/>\n");
}
