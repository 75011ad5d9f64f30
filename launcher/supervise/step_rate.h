/*
 * step_rate — how many steps a program finishes in a time, from samples of its last step.
 *
 * A stop must reach all ranks before any of them has finished the step after which they stop. A
 * program is fast again after an evaluation or a save, so the fastest 2 seconds of the last minutes
 * count, with half the weight after each minute.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_STEP_RATE_H
#define MUSTER_LAUNCHER_SUPERVISE_STEP_RATE_H

#include <stdint.h>

enum { STEP_RATE_SAMPLES = 24 };

/* Zero-initialized. Times are seconds of one monotonic clock. */
struct step_rate {
	struct {
		double at;
		int64_t step;
	} seen[STEP_RATE_SAMPLES]; /* a ring: the last samples */
	int n, last;
	double most; /* steps per second, at the time of the last sample */
};

/* The last step that any rank has finished. It may be called at any time; samples are 0.1 s apart. A
 * gap of more than a second, in which the caller did not run, begins anew. */
void supervise_step_rate_note(struct step_rate *r, double now, int64_t step);
/* Steps that may be finished within so many seconds from now; at least 1. */
double supervise_step_rate_within(const struct step_rate *r, double now, double seconds);

#endif
