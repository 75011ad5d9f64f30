/*
 * timelines — the timelines that the ranks of a run measured.
 *
 * The pipeline ranks of the first replica write trace/gen-<generation>/timeline-<rank>.json
 * (plan/spec/schedule/timeline.h) of their last step; those of the newest generation count.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_TIMELINES_H
#define MUSTER_LAUNCHER_RUNDIR_TIMELINES_H

#include "base/err.h"
#include "plan/spec/schedule/timeline.h"

/* Reads a run's into *out, which is empty. ERR_NOTFOUND when there are none; ERR_USAGE when they
 * are not of this layout and number of micro-batches. */
int rundir_timelines_load(const char *run, const struct layout *l, int micros, struct timeline *out,
			  struct err *e);

#endif
