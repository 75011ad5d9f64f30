/*
 * step — the barrier that the ranks of one host share.
 *
 * An algorithm over shared memory is a sequence of steps: write this rank's cell and slot of the
 * next step's parity, pass the step, read any rank's cell and slot of that parity. Results that are
 * written after step k may be read after step k + 1. No rank can be more than one step ahead of
 * another, so two parities are enough, and a pipeline needs only one step per chunk.
 *
 * A rank publishes in its cell which step it has come to, and polls the other ranks' cells. What is
 * published with a step, including up to SEG_INLINE bytes of data, arrives in the line that they
 * poll anyway.
 */
#ifndef MUSTER_LIBCOMM_SHM_STEP_H
#define MUSTER_LIBCOMM_SHM_STEP_H

#include "libcomm/group.h"

/* Comes to the next step and returns when all ranks have come. The last rank to come wakes the
 * sleepers. */
int comm_step_wait(struct comm *c, struct err *e);

/* The first step of an operation; also checks that all ranks call the same one. */
int comm_step_wait_first(struct comm *c, const struct op *op, struct err *e);

/* This rank's cell of the next step, to be written before comm_step_wait. */
static inline struct seg_cell *step_own_cell(const struct comm *c)
{
	return segment_cell(&c->segment, c->step + 1, c->rank);
}

/* A rank's cell of the step just passed. */
static inline const struct seg_cell *step_cell(const struct comm *c, int rank)
{
	return segment_cell(&c->segment, c->step, rank);
}

/* Where `bytes` of data of the next step, or of the step just passed, are: in the cell if they fit,
 * otherwise in the slot. */
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
