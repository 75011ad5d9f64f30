/*
 * history — what one simulated run did when: spans of its time, steps that it lost again, and its faults, in the
 * order in which they came. goodput_run_record() (run.h) fills it. A run is simulated once, and drawn from its
 * history as often as needed, in columns of any length (timeline.h).
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_HISTORY_H
#define MUSTER_LAUNCHER_GOODPUT_HISTORY_H

#include "launcher/goodput/parts.h"

#include <stdbool.h>

struct goodput_span {
	enum goodput_part part;
	bool undone; /* the last `seconds` that were trained before `from` count as GOODPUT_LOST */
	double from, lasts; /* seconds; from: since the beginning of the run */
	double seconds;     /* of the part, spread evenly over the span */
};

struct goodput_mark {
	double at;
	int kind; /* of the list of faults */
};

/* All zeros: an empty history. */
struct goodput_history {
	struct goodput_span *spans; /* [n_spans] */
	struct goodput_mark *marks; /* [n_marks], in the order of their time */
	int n_spans, n_marks;
	bool failed; /* no memory: the end is missing */
};

/* The history is empty afterwards. */
void goodput_history_fini(struct goodput_history *h);

/* For the files that simulate a run; h may be NULL. */
void goodput_history_add(struct goodput_history *h, enum goodput_part part, double from,
			 double lasts, double seconds);
/* The last `seconds` that were trained before this time are lost. */
void goodput_history_undo(struct goodput_history *h, double until, double seconds);
void goodput_history_mark(struct goodput_history *h, double at, int kind);

#endif
