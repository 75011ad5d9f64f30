/*
 * timeline — which rank did which pass when: simulated from the schedule's table, or measured by
 * the walker.
 *
 * Times are seconds from the begin of the step, on one clock. Only what occupies a rank is in it:
 * passes and, in a measured one, the reduction; what lies between two events of a rank is waiting.
 *
 * As JSON, for programs and in the run folder (one object a rank there,
 * launcher/rundir/timelines.h):
 *
 *     {"version": 1, "ranks": 4, "chunks": 2, "start": 0, "events": [[rank, "forward", chunk, micro, begin, end], …]}
 *
 * start: seconds since 1970 by the rank's clock at time 0, so that ranks' measurements lie right
 * beside one another (as right as their hosts' clocks); 0 when it was simulated.
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
	struct timeline_event *events; /* a rank's in the order of their times */
	int n, room;
};

/* -1: no memory. */
int timeline_add(struct timeline *t, const struct timeline_event *event);
void timeline_free(struct timeline *t);

/* Moves all events so that the first begins at 0. */
void timeline_begin_at_zero(struct timeline *t);
/* Mean seconds of each stage's passes, [stages of the model]; a whole backward counts as
 * input's. What did not happen is 0. */
void timeline_means(const struct timeline *t, const struct layout *l, double *forward,
		    double *input, double *weight);

/* The end of the last pass. */
double timeline_end(const struct timeline *t);
/* The share of the ranks' time until then in which they do not compute. */
double timeline_bubble(const struct timeline *t);

/* A new reference. */
json_t *timeline_json(const struct timeline *t);
/* Adds what `doc` holds to *t, which is empty at first; times become those of the first one's
 * clock. ERR_PROTO, naming `name`, when it is none or does not go with what *t has already. */
int timeline_read(json_t *doc, const char *name, struct timeline *t, struct err *e);

#endif
