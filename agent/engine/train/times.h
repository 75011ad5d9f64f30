/*
 * times — where the time of the training thread went since the rank was ready (base/time_parts.h).
 *
 * The sums are cumulative. Each microsecond since train_times_begin() is in exactly one part, so the
 * parts add up to the time from there to `until`: what belongs to no known part is TIME_OTHER. If what
 * was measured is more than the time that has passed, because parts overlap, all are reduced alike.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_TIMES_H
#define MUSTER_AGENT_ENGINE_TRAIN_TIMES_H

#include "agent/engine/train/step_report.h"
#include "base/time_parts.h"

#include <stdint.h>

struct train_times {
	int64_t step; /* finished steps */
	int64_t peak_bytes;
	int64_t us[TIME_REPORTED]; /* microseconds; 0: TIME_STEP */
	int64_t until;             /* microseconds of the monotonic clock */
};

/* The rank is ready after this step. now: microseconds of the monotonic clock, here and below. */
void train_times_begin(struct train_times *t, int64_t step, int64_t now);
/* A step has ended; r: its parts, of which the checkpoint and the rest belong to the time before it. */
void train_times_step(struct train_times *t, const struct step_report *r, int64_t now);
/* The work between two steps has ended. Both times are in seconds: in evaluations, and held up by a
 * checkpoint. */
void train_times_between(struct train_times *t, double evaluation, double checkpoint, int64_t now);

#endif
