/*
 * spin_wait — how long a rank polls memory before it sleeps.
 *
 * A futex's sleep and wake-up cost tens of microseconds, a look at memory nothing. If every rank
 * has a core, the first looks follow each other immediately. After that, and from the start if
 * ranks share cores, each look is followed by a yield, so that the awaited rank can run on this
 * core. This ends soon, to leave the core to others.
 */
#ifndef MUSTER_LIBCOMM_SHM_SPIN_WAIT_H
#define MUSTER_LIBCOMM_SHM_SPIN_WAIT_H

#include "base/clock.h"
#include "libcomm/shm/futex.h"
#include "libcomm/world.h"

#include <sched.h>

enum { WAIT_YIELD_NS = 100000 };

struct spin_wait { /* zero: no look yet */
	int looks;
	int64_t until;
};

/* Whether it has looked in vain. */
static inline bool spin_wait_began(const struct spin_wait *s)
{
	return s->looks || s->until;
}

/* After a look in vain: true to look again, false to sleep. */
static inline bool spin_wait_again(struct spin_wait *s, const struct world *w)
{
	if (s->looks < w->spins) {
		s->looks++;
		cpu_relax();
		return true;
	}
	int64_t now = clock_ns();
	if (!s->until)
		s->until = now + WAIT_YIELD_NS;
	if (now >= s->until)
		return false;
	sched_yield();
	return true;
}

#endif
