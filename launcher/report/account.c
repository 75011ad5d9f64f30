/* account: where the time went, of the whole run and step by step. */
#include "launcher/report/plot.h"
#include "launcher/report/sample.h"
#include "launcher/report/sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_PARTS = 300, STACK_HEIGHT = 230 };

static enum time_part part_of(int column)
{
	return (enum time_part)(TIME_STEP + column - COLUMN_PARTS);
}

/* A row for each part, and their sum. unit: "Device hours". */
static void put_rows(struct buf *out, const double values[TIME_PART_COUNT], double sum,
		     const char *unit, plot_format format)
{
	char time[REPORT_WORD], share[REPORT_WORD];
	buf_printf(out,
		   "<table class=\"parts\"><thead><tr><th scope=\"col\">Part</th><th "
		   "scope=\"col\" class=\"n\">Share</th><th scope=\"col\" class=\"n\">%s</th></tr>"
		   "</thead><tbody>\n",
		   unit);
	for (int i = 0; i < TIME_PART_COUNT; i++) {
		enum time_part part = report_parts[i];
		if (!(values[part] > 0))
			continue;
		buf_puts(out, "<tr><th scope=\"row\">");
		report_part_key(out, part);
		buf_printf(out, "%s</th><td class=\"n\">", time_part_name(part));
		report_data(out, report_part_word(part), values[part] / sum,
			    report_percent(values[part] / sum, share));
		buf_printf(out, "</td><td class=\"n\">%s</td></tr>\n", format(values[part], time));
	}
	buf_printf(out,
		   "</tbody><tfoot><tr><th scope=\"row\">Sum</th><td class=\"n\">100 %%</td><td "
		   "class=\"n\">%s</td></tr></tfoot></table>\n",
		   format(sum, time));
}

static void put_whole(struct buf *out, const struct report_run *r)
{
	char a[REPORT_WORD], b[REPORT_WORD], c[REPORT_WORD];
	report_figure_open(out, r->id, "time-all", "All ranks, the whole run");
	buf_printf(out, "<p class=\"note\">%s of %s devices.", report_duration(r->time.wall_s, a),
		   report_count(r->time.devices, b));
	if (report_is_opaque(r))
		buf_puts(out, " The program has reported no step, so what it did is not known.");
	else
		buf_printf(out, " %s of it was training that counts.",
			   report_percent(r->time.goodput, c));
	buf_puts(out, "</p>\n");
	report_part_bar(out, "Shares of the time of all ranks", r->time.parts);
	if (r->time.sum >= 3600)
		put_rows(out, r->time.parts, r->time.sum, "Device hours", report_hours);
	else
		put_rows(out, r->time.parts, r->time.sum, "Device time", report_seconds);
	report_figure_close(out);
}

/* Without time.jsonl only the steps of the rank that sends metrics are known. */
static void put_steps_only(struct buf *out, const struct report_run *r)
{
	double values[TIME_PART_COUNT] = { 0 }, sum = 0;
	for (int i = COLUMN_PARTS; i < COLUMN_COUNT; i++) {
		const double *y = report_column(r, (enum rundir_column)i);
		double *value = &values[part_of(i)];
		for (size_t k = 0; k < r->history.steps.n; k++)
			*value += y[k] > 0 && isfinite(y[k]) ? y[k] : 0;
		sum += *value;
	}
	buf_puts(out, "<p class=\"note\">The run has no time.jsonl, so the time of all ranks, with "
		      "starts, restarts and lost steps, is unknown. These are the steps alone, as "
		      "the rank saw them that reports the loss.</p>\n");
	if (!(sum > 0))
		return;
	report_figure_open(out, r->id, "time-all", "Steps of one rank");
	report_part_bar(out, "Shares of the time of the steps", values);
	put_rows(out, values, sum, "Time", report_seconds);
	report_figure_close(out);
}

/* --- Step by step -------------------------------------------------------------------------- */

/* The means of the parts in equal ranges of steps. */
struct stack {
	size_t n;
	double x[STACK_PARTS];                     /* the middle of each range */
	double upto[STACK_PARTS][STEP_PART_COUNT]; /* sums of the parts so far, in stack order */
	int order[STEP_PART_COUNT];                /* columns that are drawn, in stack order */
	int n_parts;
	double top, slowest, slowest_at;
};

static void order_parts(const struct report_run *r, struct stack *s)
{
	for (int i = 0; i < TIME_PART_COUNT; i++) {
		int part = (int)report_parts[i] - TIME_STEP;
		double least, most;
		if (part < 0 || part >= STEP_PART_COUNT)
			continue;
		report_range(report_column(r, COLUMN_PARTS + part), r->history.steps.n, &least,
			     &most);
		if (most > 0)
			s->order[s->n_parts++] = COLUMN_PARTS + part;
	}
}

static void add_to_stack(const struct report_run *r, struct stack *s)
{
	const double *x = report_column(r, COLUMN_STEP), *whole = report_column(r, COLUMN_STEP_S);
	size_t n = r->history.steps.n, counts[STACK_PARTS] = { 0 };
	double wide = x[n - 1] - x[0];
	s->n = n < STACK_PARTS ? n : STACK_PARTS;
	for (size_t i = 0; i < n; i++) {
		size_t at = n <= STACK_PARTS ? i : (size_t)((x[i] - x[0]) / wide * STACK_PARTS);
		double sum = 0;
		at = at < s->n ? at : s->n - 1;
		double share = 1 / (double)++counts[at];
		s->x[at] += (x[i] - s->x[at]) * share;
		for (int k = 0; k < s->n_parts; k++) {
			double v = r->history.steps.of[s->order[k]][i];
			sum += v > 0 && isfinite(v) ? v : 0;
			s->upto[at][k] += (sum - s->upto[at][k]) * share;
		}
		if (whole[i] > s->slowest) {
			s->slowest = whole[i];
			s->slowest_at = x[i];
		}
	}
	size_t used = 0; /* ranges without a step are left out */
	for (size_t i = 0; i < s->n; i++) {
		if (!counts[i])
			continue;
		s->x[used] = s->x[i];
		memmove(s->upto[used++], s->upto[i], sizeof *s->upto);
	}
	s->n = used;
	for (size_t i = 0; i < used && s->n_parts; i++)
		s->top = fmax(s->top, s->upto[i][s->n_parts - 1]);
}

static void put_layer(struct buf *out, const struct plot *p, const struct stack *s, int k)
{
	buf_printf(out, "<path class=\"p-%s\" d=\"", report_part_word(part_of(s->order[k])));
	for (size_t i = 0; i < s->n; i++)
		buf_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', report_plot_x(p, s->x[i]),
			   report_plot_y(p, s->upto[i][k]));
	for (size_t i = s->n; i-- > 0;)
		buf_printf(out, "L%.1f %.1f", report_plot_x(p, s->x[i]),
			   report_plot_y(p, k ? s->upto[i][k - 1] : 0));
	buf_puts(out, "Z\"/>\n");
}

static void put_stack(struct buf *out, const struct report_run *r, const struct stack *s)
{
	char a[REPORT_WORD], b[REPORT_WORD];
	/* Few slow steps must not flatten all others: they go beyond the top. */
	double top = s->top > 3 * r->step_s ? 2 * r->step_s : s->top;
	struct plot p = {
		.label = "Seconds of a step, part by part",
		.x_name = "step",
		.x = report_scale(s->x[0], s->x[s->n - 1], false),
		.y = report_scale(0, top, true),
		.x_format = report_rate,
		.y_format = report_seconds,
		.height = STACK_HEIGHT,
	};
	report_figure_open(out, r->id, "time-steps", "Step by step");
	buf_printf(out,
		   "<p class=\"note\">Seconds of a step, as the rank saw it that reports the loss. "
		   "Usually %s; the slowest step took %s, at step %s.</p>\n<ul class=\"legend\">",
		   report_seconds(r->step_s, a), report_seconds(s->slowest, b),
		   report_count((int64_t)s->slowest_at, (char[REPORT_WORD]){ 0 }));
	for (int k = 0; k < s->n_parts; k++) {
		enum time_part part = part_of(s->order[k]);
		buf_puts(out, "<li>");
		report_part_key(out, part);
		buf_printf(out, "<span class=\"name\">%s</span></li>\n", time_part_name(part));
	}
	buf_puts(out, "</ul>\n");
	report_plot_open(out, &p);
	for (int k = 0; k < s->n_parts; k++)
		put_layer(out, &p, s, k);
	report_plot_marks(out, &p, r->restarts, r->n_restarts);
	report_plot_close(out, &p);
	buf_printf(out, "<script type=\"application/json\">{\"x\":[%s,%s],\"stack\":[",
		   report_exact(p.x.lo, a), report_exact(p.x.hi, b));
	for (size_t i = 0; i < s->n; i++) {
		buf_printf(out, "%s[%.10g", i ? "," : "", s->x[i]);
		for (int k = 0; k < s->n_parts; k++)
			buf_printf(out, ",%.4g", s->upto[i][k] - (k ? s->upto[i][k - 1] : 0));
		buf_puts(out, "]");
	}
	buf_puts(out, "]}</script>\n");
	report_figure_close(out);
}

void report_account(struct buf *out, const struct report_run *r)
{
	struct stack *s = r->history.steps.n ? calloc(1, sizeof *s) : NULL;
	report_section_open(out, r, "time", "Where the time went");
	if (r->time.known)
		put_whole(out, r);
	else if (r->history.steps.n)
		put_steps_only(out, r);
	else
		buf_puts(out, "<p class=\"note\">No step is done yet.</p>\n");
	if (s) {
		order_parts(r, s);
		add_to_stack(r, s);
		if (s->n_parts)
			put_stack(out, r, s);
	}
	free(s);
	if (r->time.known && !report_is_opaque(r))
		report_goodput(out, r);
	report_section_close(out);
}
