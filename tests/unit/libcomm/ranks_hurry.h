/*
 * ranks_hurry — lets a test shorten the time-out after the world is open: a slow host needs
 * longer to open it.
 */
#ifndef MUSTER_TESTS_RANKS_HURRY_H
#define MUSTER_TESTS_RANKS_HURRY_H

#include "libcomm/group.h"

/* From here on this rank waits only so long for others; 0: for ever. */
static inline void ranks_hurry(struct comm *world, double timeout_s)
{
	world->world->timeout_s = timeout_s;
}

#endif
