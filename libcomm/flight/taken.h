/*
 * taken — the recorded operations of all groups of a world, taken from it, and their text.
 *
 * Taking them needs the world's lock, and copies or moves a list per group. The text, which takes far
 * longer, is made afterwards, without any lock: operations go on meanwhile, and groups are opened and
 * closed. comm_tape_write(), comm_tape_lost() and comm_tape_free() of comm.h are here.
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_TAKEN_H
#define MUSTER_LIBCOMM_FLIGHT_TAKEN_H

#include "libcomm/world.h"

enum take_from {
	TAKE_RING, /* the last operations, copied */
	TAKE_TAPE  /* those of the tape, which stops and is empty afterwards */
};

/* *out borrows the name of the host from the world. Any thread. */
int comm_taken_take(struct world *w, enum take_from from, struct comm_tape **out, struct err *e);

#endif
