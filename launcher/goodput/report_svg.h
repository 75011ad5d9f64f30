/*
 * report_svg — declarations shared by the files that draw a report; for launcher/goodput only.
 *
 *     report_svg.c       the document: title, comparison with other launchers, legend
 *     report_svg_time.c  the first run over its time: columns of its parts, and its faults by kind
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_REPORT_SVG_H
#define MUSTER_LAUNCHER_GOODPUT_REPORT_SVG_H

#include "launcher/goodput/report.h"

/* Pixels of a slide. */
enum {
	SVG_WIDTH = 1600,
	SVG_LEFT = 270,
	SVG_RIGHT = 80,
	SVG_PLOT = SVG_WIDTH - SVG_LEFT - SVG_RIGHT
};

struct svg_sheet {
	const struct goodput_report *r;
	struct buf *out;
	struct goodput_timeline run; /* the first run */
	double end;                  /* its seconds */
};

const char *goodput_svg_colour(enum goodput_part p);
/* Text from outside, at most `most` characters; it stays XML whatever the text is. */
void goodput_svg_plain(struct buf *out, int most, const char *text);
/* Formatted text of muster itself. */
void goodput_svg_words(struct svg_sheet *h, double x, double y, const char *class, const char *fmt,
		       ...) __attribute__((format(printf, 5, 6)));

/* Each draws at y, and returns the height that it used. */
double goodput_svg_columns(struct svg_sheet *h, double y);
double goodput_svg_faults(struct svg_sheet *h, double y);

/* The seconds of a column for a run of this length: round ones, a day for some weeks. */
double goodput_svg_column(double seconds);

#endif
