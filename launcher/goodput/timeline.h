/*
 * timeline — what a simulated run did when: the parts of its time in columns of equal length, and the time of
 * each fault. goodput_run_timeline() (run.h) fills it.
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_TIMELINE_H
#define MUSTER_LAUNCHER_GOODPUT_TIMELINE_H

#include "base/err.h"
#include "launcher/goodput/parts.h"

struct goodput_mark {
	double at;
	int kind; /* of the list of faults */
};

struct goodput_timeline {
	double each; /* seconds of a column */
	int n;
	double (*columns)
		[GOODPUT_PART_COUNT]; /* [n], seconds; what comes after the last one is left out */
	struct goodput_mark *marks;   /* [n_marks], in the order of their time */
	int n_marks, most;            /* more than `most` are left out */
};

/* ERR_NOMEM. An open timeline is empty. */
int goodput_timeline_open(struct goodput_timeline *t, double each, int columns, int most,
			  struct err *e);
void goodput_timeline_close(struct goodput_timeline *t);

/* For the files that simulate a run; t may be NULL. */

/* Adds `seconds` of a part, which are spread over `lasts` seconds from this time on. */
void goodput_timeline_add(struct goodput_timeline *t, enum goodput_part part, double from,
			  double lasts, double seconds);
/* So many seconds before this time were trained, and are lost: the last ones. */
void goodput_timeline_lose(struct goodput_timeline *t, double until, double seconds);
void goodput_timeline_mark(struct goodput_timeline *t, double at, int kind);

#endif
