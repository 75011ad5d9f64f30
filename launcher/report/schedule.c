/* schedule: the pipeline of one step, as simulated with the measured passes, and as measured. */
#include "base/human.h"
#include "launcher/report/plot.h"
#include "launcher/report/sections.h"
#include "launcher/rundir/timelines.h"
#include "plan/show/draw_timeline.h"
#include "plan/spec/schedule/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More passes are merged into columns; only the first rows are drawn. */
enum { PASSES = 8000, ROWS = 64, ROW_HEIGHT = 22, COLUMNS = 250 };

static int rows_of(const struct timeline *t)
{
	return t->ranks < ROWS ? t->ranks : ROWS;
}

static void put_pass(struct buf *out, const struct plot *p, const struct timeline_event *v,
		     int rows)
{
	const struct draw_look *look = show_draw_look(v->op);
	char from[HUMAN], to[HUMAN];
	if (!look || v->rank >= rows || v->begin >= p->x.hi)
		return;
	double x = report_plot_x(p, v->begin), row = (double)PLOT_HEIGHT / rows;
	buf_printf(out,
		   "<rect class=\"pass\" style=\"fill:%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
		   "height=\"%.2f\"><title>%s",
		   look->shade[v->chunk > 0 && v->chunk % 2].svg, x, (v->rank + 0.1) * row,
		   report_plot_x(p, v->end) - x, 0.8 * row, look->meaning);
	if (v->micro >= 0)
		buf_printf(out, ", chunk %d, micro-batch %d", v->chunk, v->micro);
	buf_printf(out, ": %s to %s</title></rect>\n", human_seconds(v->begin, from),
		   human_seconds(v->end, to));
}

/* Draws the columns of a row from its top: one path for each colour. */
static void put_row(struct buf *out, const struct draw_column *row, double top, double height)
{
	double at[COLUMNS], each = (double)PLOT_WIDTH / COLUMNS;
	for (int c = 0; c < COLUMNS; c++)
		at[c] = top;
	for (int colour = 0; colour < 2 * SCHED_OPS; colour++) {
		const struct draw_look *look = show_draw_look((enum sched_op)(colour / 2));
		bool begun = false;
		for (int c = 0; look && c < COLUMNS; c++) {
			double h = height * fmin(1, row[c].share[colour / 2][colour % 2]);
			if (h < 0.01)
				continue;
			if (!begun)
				buf_printf(out, "<path class=\"pass\" style=\"fill:%s\" d=\"",
					   look->shade[colour % 2].svg);
			begun = true;
			buf_printf(out, "M%g %.2fh%gv%.2fh-%gz", c * each, at[c], each, h, each);
			at[c] += h;
		}
		buf_puts(out, begun ? "\"/>\n" : "");
	}
}

static void put_columns(struct buf *out, const struct timeline *t, double end, int rows)
{
	struct draw_column *all = calloc((size_t)t->ranks * COLUMNS, sizeof *all);
	if (!all) {
		out->failed = true;
		return;
	}
	show_draw_merge(t, end, COLUMNS, all);
	for (int r = 0; r < rows; r++)
		put_row(out, all + (size_t)r * COLUMNS, (r + 0.1) * PLOT_HEIGHT / rows,
			0.8 * PLOT_HEIGHT / rows);
	free(all);
}

static void put_part(struct buf *out, const struct draw_part *part, double end)
{
	char names[ROWS][16], label[128];
	const char *rows[ROWS];
	int n = rows_of(part->timeline);
	struct buf caption = BUF_INIT;
	for (int i = 0; i < n; i++) {
		snprintf(names[i], sizeof names[i], "%d", i);
		rows[i] = names[i];
	}
	show_draw_caption(part, &caption);
	snprintf(label, sizeof label, "%s", buf_str(&caption));
	buf_fini(&caption);
	buf_puts(out, "<p class=\"part\">");
	report_text(out, label);
	buf_puts(out, "</p>\n");
	struct plot p = { .label = label,
			  .x_name = "time in the step, one row per pipeline rank",
			  .x = report_scale(0, end, false),
			  .x_format = report_seconds,
			  .height = n * ROW_HEIGHT,
			  .rows = rows,
			  .n_rows = n };
	report_plot_open(out, &p);
	for (int i = 0; i < n; i++)
		buf_printf(out,
			   "<rect class=\"strip\" x=\"0\" y=\"%.2f\" width=\"%.2f\" "
			   "height=\"%.2f\"/>\n",
			   (i + 0.1) * PLOT_HEIGHT / n,
			   report_plot_x(&p, timeline_end(part->timeline)), 0.8 * PLOT_HEIGHT / n);
	if (part->timeline->n > PASSES)
		put_columns(out, part->timeline, p.x.hi, n);
	for (int i = 0; part->timeline->n <= PASSES && i < part->timeline->n; i++)
		put_pass(out, &p, &part->timeline->events[i], n);
	report_plot_close(out, &p);
}

static void put_legend(struct buf *out, const struct drawing *d, int chunks)
{
	buf_puts(out, "<ul class=\"legend\">");
	for (int op = 0; op < SCHED_OPS; op++) {
		const struct draw_look *look = show_draw_look((enum sched_op)op);
		if (!look || !show_draw_has(d, (enum sched_op)op))
			continue;
		buf_printf(out, "<li><i class=\"key square\" style=\"background:%s\"></i>%s</li>",
			   look->shade[0].svg, look->meaning);
	}
	buf_printf(out, "<li><i class=\"key square waiting\"></i>waiting</li>%s</ul>\n",
		   chunks > 1 ? "<li>lighter: odd chunks</li>" : "");
}

static void put_drawing(struct buf *out, const struct report_run *r, const struct drawing *d)
{
	double end = show_draw_end(d);
	int most = 0, ranks = d->parts[0].timeline->ranks;
	for (int p = 0; p < d->n_parts; p++)
		most = d->parts[p].timeline->n > most ? d->parts[p].timeline->n : most;
	report_figure_open(out, r->id, "schedule", d->title);
	if (most > PASSES)
		buf_puts(out, "<p class=\"note\">The passes are too many to draw one by one: the "
			      "colours of a column are the shares of its time.</p>\n");
	if (ranks > ROWS)
		buf_printf(out, "<p class=\"note\">The first %d of %d pipeline ranks.</p>\n", ROWS,
			   ranks);
	put_legend(out, d, d->parts[0].timeline->chunks);
	for (int p = 0; p < d->n_parts; p++)
		put_part(out, &d->parts[p], end);
	report_figure_close(out);
}

/* Simulates with the measured times of the passes, so that only the waiting differs. */
static bool simulate(const struct schedule *s, const struct timeline *measured,
		     struct timeline *simulated)
{
	int stages = layout_n_stages(&s->layout);
	double *seconds = calloc(3 * (size_t)stages, sizeof *seconds);
	if (!seconds)
		return false;
	timeline_means(measured, &s->layout, seconds, seconds + stages, seconds + 2 * stages);
	struct sched_costs costs = { .forward = seconds,
				     .input = seconds + stages,
				     .weight = seconds + 2 * stages };
	double end = schedule_simulate(s, &costs, simulated, NULL);
	free(seconds);
	return end > 0;
}

/* The micro-batches of the first replica. */
static int micros_of(const json_t *plan)
{
	const json_t *of = json_array_get(json_object_get(plan, "replica_micros"), 0);
	json_int_t n = json_integer_value(of ? of : json_object_get(plan, "micros"));
	return n > 0 && n < 1 << 20 ? (int)n : 0;
}

static void put_schedule(struct buf *out, const struct report_run *r, const struct layout *l)
{
	struct schedule s = { 0 };
	struct timeline measured = { 0 }, simulated = { 0 };
	struct err why = ERR_INIT;
	char title[128];
	int micros = micros_of(r->plan);
	if (!micros || schedule_build(r->keys->parallel.schedule, l, micros, &s, &why) ||
	    rundir_timelines_load(r->path, l, micros, &measured, &why) ||
	    !simulate(&s, &measured, &simulated)) {
		buf_puts(out,
			 "<p class=\"note\">There is no measured schedule: the ranks of the first "
			 "replica write theirs at the end of a run.</p>\n");
	} else {
		snprintf(title, sizeof title, "%s, %d ranks, %d micro-batch%s",
			 job_word(r->keys, offsetof(struct job, parallel.schedule)), l->pp, micros,
			 micros == 1 ? "" : "es");
		const struct drawing d = {
			.title = title,
			.n_parts = 2,
			.parts = { { .name = "simulated with the measured passes",
				     .timeline = &simulated },
				   { .name = "measured in the last step", .timeline = &measured } },
		};
		put_drawing(out, r, &d);
	}
	schedule_free(&s);
	timeline_free(&measured);
	timeline_free(&simulated);
}

void report_schedule(struct buf *out, const struct report_run *r)
{
	const struct rundir_generation *g = report_last_generation(r);
	if (!g || g->pp <= 1)
		return;
	report_section_open(out, r, "schedule-section", "Schedule of the pipeline");
	if (r->keys && r->plan && g->dp > 0) {
		struct layout l = layout_of(r->keys, g->dp);
		put_schedule(out, r, &l);
	} else {
		buf_puts(out,
			 "<p class=\"note\">The job or the plan of the run cannot be read.</p>\n");
	}
	report_section_close(out);
}
