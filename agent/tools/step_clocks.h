/*
 * step_clocks — how the clocks of the hosts of a trace differ.
 *
 * All ranks leave a collective of the world at about the same moment: the last one to come lets all
 * go. The offset of a host is the median, over these collectives and the host's ranks, of when its
 * rank left less when the first rank did. The ranks of a host share a clock. What remains is the time
 * that the result needs to travel, well below a millisecond.
 */
#ifndef MUSTER_AGENT_TOOLS_STEP_CLOCKS_H
#define MUSTER_AGENT_TOOLS_STEP_CLOCKS_H

#include "agent/tools/step_file.h"

struct step_clocks; /* starts as NULL */

/* Adds a rank's file. The first one that is added is the reference. */
int tool_step_clocks_add(struct step_clocks **c, const struct step_file *f, struct err *e);
/* Microseconds that the clock of the rank's host is ahead of the reference; 0: unknown, or the same
 * host. */
double tool_step_clocks_offset(const struct step_clocks *c, const struct step_file *f);
/* The earliest begin of a phase, on the reference's clock. */
double tool_step_clocks_origin(const struct step_clocks *c);
void tool_step_clocks_free(struct step_clocks *c);

#endif
