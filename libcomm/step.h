/*
 * step — the barrier that the ranks of one host share.
 *
 * An algorithm over shared slots is a row of steps: write your slot of this
 * parity, step, read anybody's slot of that parity; results that are written after step k
 * may be read after step k + 1. Nobody can be more than one step ahead, so two
 * parities are enough and one step a chunk is all that a pipeline needs.
 */
#ifndef MUSTER_LIBCOMM_STEP_H
#define MUSTER_LIBCOMM_STEP_H

#include "libcomm/group.h"

/* Returns when all ranks have come. Each wakes at most once, when the last has come. */
int step_pass(struct comm *c, struct err *e);

/* The first step of an operation: also checks that all ranks call the same one. */
int step_first(struct comm *c, const struct op *op, struct err *e);

/* The slot of a rank for the step that comes next (before step_pass), of this rank. */
static inline char *step_my_slot(const struct comm *c)
{
	return segment_slot(&c->segment, c->step + 1, c->rank);
}

/* After step_pass: what rank put into the step just passed. */
static inline const char *step_slot(const struct comm *c, int rank)
{
	return segment_slot(&c->segment, c->step, rank);
}

#endif
