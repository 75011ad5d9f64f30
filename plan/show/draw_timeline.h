/*
 * draw_timeline — draws timelines of a pipeline for people: in a terminal and as SVG.
 *
 * Each rank has a row; time goes to the right. All timelines of a drawing have the same scale and
 * are below one another. A pass is a cell with the number of its micro-batch. Chunks differ in
 * shade (without colour: in upper and lower case). An empty cell is waiting. If the drawing is too
 * large, it is cut, and a line says so.
 */
#ifndef MUSTER_PLAN_SHOW_DRAW_TIMELINE_H
#define MUSTER_PLAN_SHOW_DRAW_TIMELINE_H

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

/* UTF-8 lines of at most `width` columns (at least 40). colour: use a terminal's 256 colours. */
void show_draw_text(const struct drawing *d, int width, bool colour, struct buf *out);
/* A complete SVG document. */
void show_draw_svg(const struct drawing *d, struct buf *out);

/* Appends a text with the characters escaped that SVG reserves. */
void show_svg_escape(struct buf *out, const char *text);

/* How both draw a kind of pass. */
struct draw_look {
	char letter;
	const char *meaning;
	struct {
		int terminal;
		const char *svg;
	} shade[2]; /* of even chunks, of odd chunks */
};
/* NULL for steps that are not drawn. */
const struct draw_look *show_draw_look(enum sched_op op);
bool show_draw_has(const struct drawing *d, enum sched_op op);
/* The latest end of the parts. */
double show_draw_end(const struct drawing *d);
/* "simulated: 12.3 ms, bubble 27.3 %" */
void show_draw_caption(const struct draw_part *part, struct buf *out);

#endif
