/*
 * timeline — which rank ran which pass at which time: simulated from the schedule's table, or
 * measured by the executor.
 *
 * Times are seconds from the begin of the step, on one clock. A timeline contains only what
 * occupies a rank: passes and, if it was measured, the reduction. Between two events a rank waits.
 *
 * As JSON, for programs and in the run folder (one object per rank there,
 * launcher/rundir/timelines.h):
 *
 *     {"version": 1, "ranks": 4, "chunks": 2, "start": 0, "events": [[rank, "forward", chunk, micro, begin, end], …]}
 *
 * start: the rank's clock at time 0 in seconds since 1970, which aligns the measurements of several
 * ranks (as well as their hosts' clocks agree); 0: simulated.
 */
#ifndef MUSTER_PLAN_SPEC_SCHEDULE_TIMELINE_H
#define MUSTER_PLAN_SPEC_SCHEDULE_TIMELINE_H

#include "base/err.h"
#include "plan/spec/schedule/schedule.h"

#include <jansson.h>

struct timeline_event {
	int rank; /* in the pipeline */
	enum sched_op op;
	int chunk, micro;
	double begin, end;
};

struct timeline {
	int ranks, chunks;
	double start;                  /* since 1970; 0: simulated */
	struct timeline_event *events; /* each rank's events in the order of time */
	int n, room;
};

/* -1: out of memory. */
int timeline_add(struct timeline *t, const struct timeline_event *event);
void timeline_free(struct timeline *t);

/* Moves all events so that the first begins at 0. */
void timeline_begin_at_zero(struct timeline *t);
/* Mean seconds of each stage's passes, [stages of the model]. A whole backward pass counts as
 * input. A pass that did not happen has 0. */
void timeline_means(const struct timeline *t, const struct layout *l, double *forward,
		    double *input, double *weight);

/* The end of the last pass. */
double timeline_end(const struct timeline *t);
/* The share of that time in which the busiest rank does not compute. It is what a better schedule
 * could save; a plan counts it as the pipeline's part of a step (plan/spec/step_time.h). NAN: out of
 * memory. */
double timeline_bubble(const struct timeline *t);
/* The share of all ranks' time in which they do not compute: the bubble, and the waiting of ranks
 * that have less work than the busiest one. */
double timeline_idle(const struct timeline *t);

/* A new reference. */
json_t *timeline_json(const struct timeline *t);
/* Adds the events of `doc` to *t, which is empty before the first call. Times are converted to the
 * clock of the first document. ERR_PROTO, naming `name`, if `doc` is not a timeline or does not
 * match what *t has already. */
int timeline_read(json_t *doc, const char *name, struct timeline *t, struct err *e);

#endif
