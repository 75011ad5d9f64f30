/* story: generations, losses and recoveries on a time line. */
#include "launcher/report/plot.h"
#include "launcher/report/sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	LANES = 4,
	LANE_HEIGHT = 46, /* pixels, with the name of the lane */
	MANY = 200,       /* so many marks of a lane are drawn thin */
};

/* The part of a lane below its name, of 1. */
static const double strip_top = 0.46, strip_bottom = 0.9;

static const char *const lanes[LANES] = { "Generations", "Losses", "Checkpoints",
					  "Warnings and decisions" };

/* The unit of the time line. */
struct unit {
	double seconds;
	const char *name;
};

static struct unit unit_of(double seconds)
{
	static const struct unit units[] = {
		{ 86400, "days since the start" },
		{ 3600, "hours since the start" },
		{ 60, "minutes since the start" },
	};
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (seconds >= 3 * units[i].seconds)
			return units[i];
	return (struct unit){ 1, "seconds since the start" };
}

/* A time line while it is written. */
struct line {
	struct buf *out;
	const struct report_run *r;
	struct plot plot;
	struct unit unit;
};

static double x_of(const struct line *l, double time)
{
	return report_plot_x(&l->plot, (time - l->r->history.begin) / l->unit.seconds);
}

static double y_of(int lane, double at)
{
	return PLOT_HEIGHT * (lane + at) / LANES;
}

static void put_span(struct line *l, double from, double to, const char *look, const char *what,
		     int64_t generation)
{
	char word[REPORT_WORD];
	if (!(to >= from))
		return;
	double x = x_of(l, from), wide = x_of(l, to) - x;
	buf_printf(l->out,
		   "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"><title>"
		   "generation %lld: %s, %s</title></rect>\n",
		   look, x, y_of(0, strip_top), fmax(wide, 0.4),
		   y_of(0, strip_bottom) - y_of(0, strip_top), (long long)generation, what,
		   report_duration(to - from, word));
}

static void put_generations(struct line *l)
{
	const struct rundir_history *h = &l->r->history;
	for (size_t i = 0; i < h->n_generations; i++) {
		const struct rundir_generation *g = &h->generations[i];
		double end = !isnan(g->end)             ? g->end
			     : i + 1 < h->n_generations ? g->last_line
							: h->end;
		double ready = !isnan(g->ready) ? g->ready : isnan(g->last_line) ? end : g->begin;
		double before = i && h->generations[i - 1].lost ? h->generations[i - 1].end : NAN;
		if (!isnan(before))
			put_span(l, before, ready, "p-restart", "restart", g->number);
		else
			put_span(l, g->begin, ready, "p-start", "start", g->number);
		put_span(l, ready, end, i % 2 ? "g1" : "g0", "training", g->number);
	}
}

/* Marks that fall on the same place are drawn once. */
static void put_ticks(struct line *l, int lane, const char *look, const double *times, size_t n)
{
	long last = -1;
	if (!n)
		return;
	buf_printf(l->out, "<path class=\"tick %s%s\" d=\"", look, n > MANY ? " many" : "");
	for (size_t i = 0; i < n; i++) {
		double x = x_of(l, times[i]);
		if (lround(x * 5) != last)
			buf_printf(l->out, "M%.1f %.1fV%.1f", x, y_of(lane, strip_top),
				   y_of(lane, strip_bottom));
		last = lround(x * 5);
	}
	buf_puts(l->out, "\"/>\n");
}

static void put_marks(struct line *l)
{
	const struct rundir_history *h = &l->r->history;
	size_t most = h->n_losses;
	most = h->n_checkpoints > most ? h->n_checkpoints : most;
	most = h->n_marks > most ? h->n_marks : most;
	double *times = calloc(most ? most : 1, sizeof *times);
	if (!times)
		return;
	for (size_t i = 0; i < h->n_losses; i++)
		times[i] = h->losses[i].time;
	put_ticks(l, 1, "bad", times, h->n_losses);
	for (size_t i = 0; i < h->n_checkpoints; i++)
		times[i] = h->checkpoints[i].time;
	put_ticks(l, 2, "good", times, h->n_checkpoints);
	for (size_t i = 0; i < h->n_marks; i++)
		times[i] = h->marks[i].time;
	put_ticks(l, 3, "warn", times, h->n_marks);
	free(times);
}

static const char *plain(double v, char out[REPORT_WORD])
{
	snprintf(out, REPORT_WORD, "%.4g", v);
	return out;
}

static void put_line(struct buf *out, const struct report_run *r)
{
	const struct rundir_history *h = &r->history;
	double long_s = fmax(h->end - h->begin, 1e-3);
	struct line l = { .out = out, .r = r, .unit = unit_of(long_s) };
	char label[200];
	snprintf(label, sizeof label,
		 "Time line of %zu generation%s, %zu loss%s and %zu checkpoint%s", h->n_generations,
		 h->n_generations == 1 ? "" : "s", h->n_losses, h->n_losses == 1 ? "" : "es",
		 h->n_checkpoints, h->n_checkpoints == 1 ? "" : "s");
	l.plot = (struct plot){ .label = label,
				.x_name = l.unit.name,
				.x = report_scale(0, long_s / l.unit.seconds, false),
				.x_format = plain,
				.height = LANES * LANE_HEIGHT,
				.lanes = lanes,
				.n_lanes = LANES };
	report_figure_open(out, r->id, "time-line", "Time line");
	buf_puts(out, "<ul class=\"legend\"><li><i class=\"key square p-start\"></i>start</li>"
		      "<li><i class=\"key square g0\"></i><i class=\"key square g1\"></i>training"
		      "</li><li><i class=\"key square p-restart\"></i>restart</li></ul>\n");
	report_plot_open(out, &l.plot);
	for (int i = 0; i < LANES; i++)
		buf_printf(
			out,
			"<rect class=\"strip\" x=\"0\" y=\"%.1f\" width=\"%d\" height=\"%.1f\"/>\n",
			y_of(i, strip_top), PLOT_WIDTH, y_of(i, strip_bottom) - y_of(i, strip_top));
	put_generations(&l);
	put_marks(&l);
	report_plot_close(out, &l.plot);
	report_figure_close(out);
}

void report_story(struct buf *out, const struct report_run *r)
{
	report_section_open(out, r, "story", "Generations, losses and recoveries");
	if (r->history.n_generations) {
		put_line(out, r);
		report_losses(out, r);
		report_warnings(out, r);
		report_generations(out, r);
	} else {
		buf_puts(out, "<p class=\"note\">No generation has started.</p>\n");
	}
	report_section_close(out);
}
