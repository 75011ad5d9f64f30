/* schedule_run — what the checker asks of the walk. */
#ifndef MUSTER_PLAN_SPEC_SCHEDULE_RUN_H
#define MUSTER_PLAN_SPEC_SCHEDULE_RUN_H

#include "plan/spec/schedule/schedule.h"

/* The first rank that waits for ever, and *at which step; -1: none does; -2: no memory. Rows must
 * be well-formed: each step of a stage that the rank holds, messages only where it has neighbours
 * on other ranks. */
int schedule_stuck(const struct schedule *s, int *at);

#endif
