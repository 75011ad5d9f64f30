/*
 * step — the barrier that the ranks of one host share.
 *
 * An algorithm over shared memory is a row of steps: write your cell and slot of this
 * parity, step, read anybody's cell and slot of that parity; results that are written after step k
 * may be read after step k + 1. Nobody can be more than one step ahead, so two
 * parities are enough and one step a chunk is all that a pipeline needs.
 *
 * A rank says in its cell which step it has come to, and looks at the cells of the others: what is
 * said with a step, and up to SEG_INLINE bytes of data, travels in the line that it looks at
 * anyway.
 */
#ifndef MUSTER_LIBCOMM_SHM_STEP_H
#define MUSTER_LIBCOMM_SHM_STEP_H

#include "libcomm/group.h"

/* Returns when all ranks have come. Sleepers are woken once, by the last to come. */
int comm_step_wait(struct comm *c, struct err *e);

/* The first step of an operation: also checks that all ranks call the same one. */
int comm_step_wait_first(struct comm *c, const struct op *op, struct err *e);

/* For the step that comes next (before comm_step_wait): this rank's cell. */
static inline struct seg_cell *step_own_cell(const struct comm *c)
{
	return segment_cell(&c->segment, c->step + 1, c->rank);
}

/* After comm_step_wait: what rank said with the step just passed. */
static inline const struct seg_cell *step_cell(const struct comm *c, int rank)
{
	return segment_cell(&c->segment, c->step, rank);
}

/* Likewise, where `bytes` of data lie: in the cell when they fit, else in the slot. */
static inline char *step_own_data(const struct comm *c, size_t bytes)
{
	return bytes <= SEG_INLINE ? step_own_cell(c)->data
				   : segment_slot(&c->segment, c->step + 1, c->rank);
}

static inline const char *step_data(const struct comm *c, int rank, size_t bytes)
{
	return bytes <= SEG_INLINE ? step_cell(c, rank)->data
				   : segment_slot(&c->segment, c->step, rank);
}

#endif
