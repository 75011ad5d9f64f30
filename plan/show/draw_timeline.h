/*
 * draw_timeline — draws timelines of a pipeline for people: in a terminal and as SVG.
 *
 * Each rank has a row; time goes to the right. All timelines of a drawing have the same scale and
 * are below one another. A pass is a cell with the number of its micro-batch. Chunks differ in
 * shade (without colour: in upper and lower case). An empty cell is waiting. Text that is too wide
 * for the terminal is cut, and a line says so. A picture always shows the whole time: if its passes
 * are too narrow to be seen, or too many for a program to open, each row is divided into columns,
 * and the colours of a column are the shares of its time.
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
		/* seconds of the step that a plan predicts around these passes, and of the bubble
		 * in it; 0: what the timeline says about itself */
		double step, bubble;
	} parts[DRAW_PARTS];
	int n_parts;
};

/* UTF-8 lines of at most `width` columns (at least 40). colour: use a terminal's 256 colours. */
void show_draw_text(const struct drawing *d, int width, bool colour, struct buf *out);
/* A complete SVG document. */
void show_draw_svg(const struct drawing *d, struct buf *out);

/* Appends a text with the characters escaped that SVG reserves. What XML does not permit becomes a question
 * mark: control characters, and bytes that are part of no character. */
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
/* The seconds of the median pass; the passes of the first and the last stage may be much longer. 0:
 * there are none, or memory is lacking. */
double show_draw_typical(const struct drawing *d);
/* The bubble as a share of the step if that is known, otherwise of the drawn passes' time. */
double show_draw_bubble(const struct draw_part *part);
/* "simulated: 12.3 ms, bubble 27.3 %" */
void show_draw_caption(const struct draw_part *part, struct buf *out);

/* For passes that are too narrow to draw one by one: the shares of a column's time, by kind of pass
 * and by parity of the chunk. The rest is waiting. */
struct draw_column {
	double share[SCHED_OPS][2];
};
/* out: [ranks][columns] of the timeline, all 0 before; the columns together are `end` seconds. */
void show_draw_merge(const struct timeline *t, double end, int columns, struct draw_column *out);

#endif
