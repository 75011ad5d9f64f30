/* schedule_simulate — the simulation's part that only the checker uses. */
#ifndef MUSTER_PLAN_SPEC_SCHEDULE_SIMULATE_H
#define MUSTER_PLAN_SPEC_SCHEDULE_SIMULATE_H

#include "plan/spec/schedule/schedule.h"

/* Returns the first rank that waits forever and stores in *at the step at which it waits; -1: no
 * rank does; -2: out of memory. Rows must be well-formed: each step names a chunk that the rank
 * holds, and messages are only where the neighbouring stage is on another rank. */
int schedule_find_stuck(const struct schedule *s, int *at);

#endif
