/*
 * timeline — a simulated run in columns of equal length, each with the seconds of its parts.
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_TIMELINE_H
#define MUSTER_LAUNCHER_GOODPUT_TIMELINE_H

#include "base/err.h"
#include "launcher/goodput/history.h"

struct goodput_timeline {
	double each; /* seconds of a column */
	int n;
	double (*columns)[GOODPUT_PART_COUNT]; /* [n], seconds */
};

/* What comes after the last column is left out. The history is not needed afterwards. ERR_NOMEM. */
int goodput_timeline_open(struct goodput_timeline *t, const struct goodput_history *h, double each,
			  int columns, struct err *e);
void goodput_timeline_close(struct goodput_timeline *t);

#endif
