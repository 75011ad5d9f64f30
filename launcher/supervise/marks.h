/*
 * marks — how much of a run's time belonged to its steps up to some step, for several steps.
 *
 * When a run restarts from a step, the training after that step was for nothing. The marks say how much
 * that is. Between two marks it is taken to grow evenly with the steps. There are at most MARKS of them,
 * so old ones are dropped, in such a way that the distance between marks grows with their age: a
 * restart nearly always goes back to one of the last ones.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_MARKS_H
#define MUSTER_LAUNCHER_SUPERVISE_MARKS_H

#include "base/time_parts.h"

#include <stdbool.h>
#include <stdint.h>

enum { MARKS = 256 };

struct mark {
	int64_t step;                /* finished steps */
	int64_t parts[TIME_TRAINED]; /* microseconds of all ranks up to there; 0: TIME_STEP */
};

struct marks {
	int n;
	struct mark list[MARKS]; /* by step, ascending */
};

/* Adds a mark, after all others: those of the same or a later step are dropped. */
void supervise_marks_add(struct marks *m, int64_t step, const int64_t parts[TIME_TRAINED]);
/* The run returns to this step: reduces the parts to what they were there, and drops the marks after it.
 * Before the first mark they were as at that mark. False: the step is not before the last mark. */
bool supervise_marks_return(struct marks *m, int64_t step, int64_t parts[TIME_TRAINED]);

/* whole × part / of, for 0 <= part <= of: never less for a larger part, and `whole` for all of it. */
int64_t supervise_marks_share(int64_t whole, int64_t part, int64_t of);

#endif
