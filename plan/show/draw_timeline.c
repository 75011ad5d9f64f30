/* The parts of drawings that the terminal and SVG share. */
#include "plan/show/draw_timeline.h"

#include "base/human.h"

#include <math.h>
#include <stdlib.h>

/* clang-format off */
static const struct draw_look looks[SCHED_OPS] = {
	[SCHED_FORWARD] = { 'F', "forward", { { 25, "#1f5fa8" }, { 110, "#8ab8e6" } } },
	[SCHED_BACKWARD] = { 'B', "backward", { { 28, "#2a7d3f" }, { 114, "#93cfa0" } } },
	[SCHED_BACKWARD_INPUT] = { 'B', "backward, input", { { 30, "#137a7a" }, { 116, "#86cccb" } } },
	[SCHED_BACKWARD_WEIGHT] = { 'W', "backward, weights", { { 130, "#b0641a" }, { 180, "#e6bd8c" } } },
	[SCHED_REDUCE] = { 'R', "reduction", { { 240, "#777777" }, { 240, "#777777" } } },
};
/* clang-format on */

const struct draw_look *show_draw_look(enum sched_op op)
{
	return (unsigned)op < SCHED_OPS && looks[op].letter ? &looks[op] : NULL;
}

bool show_draw_has(const struct drawing *d, enum sched_op op)
{
	for (int p = 0; p < d->n_parts; p++)
		for (int i = 0; i < d->parts[p].timeline->n; i++)
			if (d->parts[p].timeline->events[i].op == op)
				return true;
	return false;
}

double show_draw_end(const struct drawing *d)
{
	double end = 0;
	for (int p = 0; p < d->n_parts; p++) {
		double mine = timeline_end(d->parts[p].timeline);
		end = mine > end ? mine : end;
	}
	return end;
}

static int by_length(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double show_draw_typical(const struct drawing *d)
{
	int n = 0, most = 1;
	for (int p = 0; p < d->n_parts; p++)
		most += d->parts[p].timeline->n;
	double *lengths = calloc((size_t)most, sizeof *lengths), typical = 0;
	for (int p = 0; lengths && p < d->n_parts; p++)
		for (int i = 0; i < d->parts[p].timeline->n; i++) {
			const struct timeline_event *v = &d->parts[p].timeline->events[i];
			if (v->op != SCHED_REDUCE)
				lengths[n++] = v->end - v->begin;
		}
	if (n) {
		qsort(lengths, (size_t)n, sizeof *lengths, by_length);
		typical = lengths[(n - 1) / 2];
	}
	free(lengths);
	return typical;
}

double show_draw_bubble(const struct draw_part *part)
{
	return part->step > 0 ? part->bubble / part->step : timeline_bubble(part->timeline);
}

void show_draw_caption(const struct draw_part *part, struct buf *out)
{
	char text[HUMAN];
	double bubble = show_draw_bubble(part), idle = timeline_idle(part->timeline);
	buf_printf(out, "%s: %s", part->name, human_seconds(timeline_end(part->timeline), text));
	if (part->step > 0)
		buf_printf(out, " of a step of %s", human_seconds(part->step, text));
	buf_printf(out, ", bubble %.1f %%", 100 * bubble);
	/* Ranks with less work than the busiest one wait, too. */
	if (fabs(idle - bubble) >= 0.0005)
		buf_printf(out, ", ranks idle %.1f %%", 100 * idle);
}

/* Adds the seconds between `from` and `to` to the columns that they are in. */
static void add_pass(double from, double to, double each, int columns, struct draw_column *row,
		     enum sched_op op, bool odd)
{
	for (int c = (int)fmin(from / each, columns); c < columns && c * each < to; c++) {
		double part = fmin(to, (c + 1) * each) - fmax(from, c * each);
		row[c].share[op][odd] += part > 0 ? part / each : 0;
	}
}

void show_draw_merge(const struct timeline *t, double end, int columns, struct draw_column *out)
{
	double each = end / columns;
	for (int i = 0; each > 0 && i < t->n; i++) {
		const struct timeline_event *v = &t->events[i];
		if (show_draw_look(v->op))
			add_pass(v->begin, v->end, each, columns,
				 out + (size_t)v->rank * (size_t)columns, v->op,
				 v->chunk > 0 && v->chunk % 2);
	}
}
