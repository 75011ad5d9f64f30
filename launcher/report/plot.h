/*
 * plot — the frame of a drawing: a figure with its title, axes, and an SVG that fills it.
 *
 * The SVG is stretched to the figure (preserveAspectRatio="none", strokes keep their width), and
 * the labels are HTML that is placed in per cent. So a page is readable at any width without a
 * script.
 */
#ifndef MUSTER_LAUNCHER_REPORT_PLOT_H
#define MUSTER_LAUNCHER_REPORT_PLOT_H

#include "base/buf.h"
#include "launcher/report/page.h"
#include "launcher/report/scale.h"

#include <stddef.h>

/* The size of the SVG in its own units. */
enum { PLOT_WIDTH = 1000, PLOT_HEIGHT = 300 };

/* Writes a value for people. */
typedef const char *(*plot_format)(double v, char out[REPORT_WORD]);

struct plot {
	const char *label;  /* what a screen reader says the picture shows */
	const char *x_name; /* "step" */
	struct scale x, y;
	plot_format x_format, y_format; /* y_format NULL: the y axis has no labels */
	int height;                     /* pixels on the screen */
	/* NULL: none. Names of equal rows, from the top: beside them, or at the top of each. */
	const char *const *rows, *const *lanes;
	int n_rows, n_lanes;
};

/* Opens <figure> with its title; the caller adds what belongs between title and picture. run: begins
 * the id; NULL: the figure is of all runs. */
void report_figure_open(struct buf *out, const char *run, const char *id, const char *title);
void report_figure_close(struct buf *out);

/* The picture up to the content of its SVG, and from there to its end. */
void report_plot_open(struct buf *out, const struct plot *p);
void report_plot_close(struct buf *out, const struct plot *p);

double report_plot_x(const struct plot *p, double v);
double report_plot_y(const struct plot *p, double v);
/* Vertical lines at these x; short ones at the bottom if there are many. */
void report_plot_marks(struct buf *out, const struct plot *p, const double *x, size_t n);

#endif
