/*
 * draw — timelines of a pipeline for people: in a terminal and as SVG.
 *
 * A row a rank, time to the right, every timeline of a drawing to the same scale below the one
 * before it. A pass is a cell with its micro-batch's number; chunks differ in shade (in letters
 * without colour: upper and lower case in turn). What is empty is waiting. What does not fit is
 * cut, and a line says so.
 */
#ifndef MUSTER_PLAN_SHOW_DRAW_H
#define MUSTER_PLAN_SHOW_DRAW_H

#include "base/buf.h"
#include "plan/spec/schedule/timeline.h"

#include <stdbool.h>

enum { DRAW_PARTS = 2 };

struct drawing {
	const char *title;
	struct draw_part {
		const char *name; /* "simulated" */
		const struct timeline *timeline;
	} parts[DRAW_PARTS];
	int n_parts;
};

/* UTF-8 lines of `width` columns at the most (40 at least); colour: with a terminal's 256
 * colours. */
void show_draw_text(const struct drawing *d, int width, bool colour, struct buf *out);
/* A whole SVG document, for slides. */
void show_draw_svg(const struct drawing *d, struct buf *out);

/* What both draw by: how a kind of pass looks. NULL for steps that are not drawn. */
struct draw_look {
	char letter;
	const char *meaning;
	struct {
		int terminal;
		const char *svg;
	} shade[2]; /* of even and odd chunks */
};
const struct draw_look *show_draw_look(enum sched_op op);
bool show_draw_has(const struct drawing *d, enum sched_op op);
/* The latest end of the parts. */
double show_draw_end(const struct drawing *d);
/* "simulated: 12.3 ms, bubble 27.3 %" */
void show_draw_caption(const struct draw_part *part, struct buf *out);

#endif
