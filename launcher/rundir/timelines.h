/*
 * timelines — the timelines that the ranks of a run measured.
 *
 * The pipeline ranks of the first replica write the timeline of their last step
 * (plan/spec/schedule/timeline.h) to trace/gen-<generation>/timeline-<rank>.json.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_TIMELINES_H
#define MUSTER_LAUNCHER_RUNDIR_TIMELINES_H

#include "base/err.h"
#include "plan/spec/schedule/timeline.h"

/* Reads the timelines of the last generation that has any into *out, which is empty. ERR_NOTFOUND:
 * there are none. ERR_USAGE: they are of another layout or number of micro-batches. */
int rundir_timelines_load(const char *run, const struct layout *l, int micros, struct timeline *out,
			  struct err *e);

#endif
