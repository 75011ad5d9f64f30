/* curves: what the run has learned and how fast, over its steps. */
#include "launcher/report/chart.h"
#include "launcher/report/sections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A chart while lines are added to it, with the memory that they use. */
struct curve {
	struct chart chart;
	char names[CHART_LINES][320];
	double *owned[CHART_LINES];
};

static struct chart_line *add_line(struct curve *v, const struct report_run *r, bool alone,
				   const char *name)
{
	if (v->chart.n_lines == CHART_LINES)
		return NULL;
	int i = v->chart.n_lines++;
	if (alone)
		snprintf(v->names[i], sizeof v->names[i], "%s", name);
	else
		snprintf(v->names[i], sizeof v->names[i], "%s, %s", r->name, name);
	v->chart.lines[i] = (struct chart_line){ .name = v->names[i],
						 .colour = r->number,
						 .x = report_column(r, COLUMN_STEP),
						 .n = r->history.steps.n };
	return &v->chart.lines[i];
}

static struct curve *new_curve(const struct report_run *runs, int n, const char *id,
			       const char *title, plot_format format)
{
	struct curve *v = calloc(1, sizeof *v);
	if (!v)
		return NULL;
	v->chart = (struct chart){ .id = id, .title = title, .x_name = "step", .format = format };
	if (n == 1) {
		v->chart.marks = runs->restarts;
		v->chart.n_marks = runs->n_restarts;
	}
	return v;
}

static void end_curve(struct buf *out, struct curve *v)
{
	report_chart(out, &v->chart);
	for (int i = 0; i < CHART_LINES; i++)
		free(v->owned[i]);
	free(v);
}

/* The evaluations as a line of the chart, which owns the copy. */
static void add_evaluations(struct curve *v, const struct report_run *r, bool alone)
{
	size_t n = r->history.n_evaluations;
	double *copy = n ? calloc(n, 2 * sizeof *copy) : NULL;
	struct chart_line *l = copy ? add_line(v, r, alone, "validation") : NULL;
	if (!l) {
		free(copy);
		return;
	}
	v->owned[v->chart.n_lines - 1] = copy;
	for (size_t i = 0; i < n; i++) {
		copy[i] = (double)r->history.evaluations[i].step;
		copy[n + i] = r->history.evaluations[i].loss;
	}
	l->x = copy;
	l->y = copy + n;
	l->n = n;
	l->style = CHART_POINTS;
	l->field = "eval_loss";
	l->colour += alone;
}

static void put_loss(struct buf *out, const struct report_run *runs, int n)
{
	struct curve *v = new_curve(runs, n, "loss", "Loss", report_value);
	for (int i = 0; v && i < n; i++) {
		struct chart_line *l = add_line(v, &runs[i], n == 1, "training");
		if (!l)
			break;
		l->y = report_column(&runs[i], COLUMN_LOSS);
		l->field = "loss";
		add_evaluations(v, &runs[i], n == 1);
	}
	if (v)
		end_curve(out, v);
}

static void put_column(struct buf *out, const struct report_run *runs, int n, const char *id,
		       const char *title, enum rundir_column column)
{
	struct curve *v = new_curve(runs, n, id, title, report_value);
	for (int i = 0; v && i < n; i++) {
		struct chart_line *l = add_line(v, &runs[i], n == 1, rundir_column_key(column));
		if (!l)
			break;
		snprintf(v->names[v->chart.n_lines - 1], sizeof *v->names, "%s",
			 n == 1 ? "every step" : runs[i].name);
		l->y = report_column(&runs[i], column);
		l->field = rundir_column_key(column);
	}
	if (v)
		end_curve(out, v);
}

static void put_speed(struct buf *out, const struct report_run *runs, int n)
{
	struct curve *v = new_curve(runs, n, "speed", "Tokens per second", report_rate);
	for (int i = 0; v && i < n; i++) {
		struct chart_line *l = add_line(v, &runs[i], n == 1, "measured");
		if (!l)
			break;
		l->y = runs[i].tokens_s;
		l->field = "tokens_s";
		v->chart.from_zero = true;
		if ((l = add_line(v, &runs[i], n == 1, "predicted by the plan"))) {
			l->y = runs[i].planned_s;
			l->style = CHART_DASHED;
			l->colour += n == 1;
		}
	}
	if (v)
		end_curve(out, v);
}

void report_curves(struct buf *out, const struct report_run *runs, int n)
{
	size_t steps = 0;
	for (int i = 0; i < n; i++)
		steps += runs[i].history.steps.n;
	buf_puts(out, "<section id=\"curves\"><h2>Training</h2>\n");
	if (!steps)
		buf_printf(out, "<p class=\"note\">%s</p>\n",
			   n == 1 && report_is_opaque(runs) ? "The program has reported no step."
							    : "No step is done yet.");
	buf_puts(out, "<div class=\"grid\">\n");
	if (steps) {
		put_loss(out, runs, n);
		put_speed(out, runs, n);
		put_column(out, runs, n, "grad-norm", "Gradient norm", COLUMN_GRAD_NORM);
		put_column(out, runs, n, "lr", "Learning rate", COLUMN_LR);
	}
	buf_puts(out, "</div></section>\n");
}
