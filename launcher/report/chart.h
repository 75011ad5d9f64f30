/*
 * chart — a figure of lines over the steps.
 *
 * Each line has an entry in the list below the title: its key, its name, its last value and its
 * range. The list is the legend, and what people read who cannot see the picture. A long line is
 * drawn as the mean of its parts with a band from the least to the greatest value
 * (launcher/report/sample.h). The points are in the page once more as numbers, for the script that
 * shows values under the pointer.
 */
#ifndef MUSTER_LAUNCHER_REPORT_CHART_H
#define MUSTER_LAUNCHER_REPORT_CHART_H

#include "launcher/report/plot.h"

#include <stdbool.h>

enum { CHART_COLOURS = 8, CHART_LINES = 32 };

enum chart_style { CHART_LINE, CHART_DASHED, CHART_POINTS };

struct chart_line {
	const char *name;
	const char *field; /* the class of the <data> of its last value; NULL: it has none */
	int colour;        /* from 0; taken modulo CHART_COLOURS */
	enum chart_style style;
	const double *x, *y; /* [n], x ascends; borrowed */
	size_t n;
};

struct chart {
	const char *id, *title, *x_name;
	const char *note; /* a sentence below the title; NULL: none */
	plot_format format;
	struct chart_line lines[CHART_LINES];
	int n_lines;
	const double *marks; /* x of restarts */
	size_t n_marks;
	bool from_zero;
};

/* Nothing is written if no line has a finite value. */
void report_chart(struct buf *out, const struct chart *c);

#endif
