/*
 * ranks_hurry — a limit that a test wants to see expire, although a world needs a longer one to open
 * on a slow host.
 */
#ifndef MUSTER_TESTS_RANKS_HURRY_H
#define MUSTER_TESTS_RANKS_HURRY_H

#include "libcomm/group.h"

/* From here on this rank waits only so long for others, for ever if it is 0. */
static inline void ranks_hurry(struct comm *world, double timeout_s)
{
	world->world->timeout_s = timeout_s;
}

#endif
