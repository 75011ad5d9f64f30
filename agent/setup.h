/*
 * setup — what each generation of an agent does first, whether it trains or runs a program: it
 * binds the process to the cores next to its device, and ends agents of earlier generations.
 */
#ifndef MUSTER_AGENT_SETUP_H
#define MUSTER_AGENT_SETUP_H

#include "agent/control.h"
#include "base/err.h"

/* Binds the process to the cores and the memory next to its device, for all threads and processes that
 * it starts. The run continues if the node does not permit it. */
void agent_setup_bind(const struct msg_welcome *w);
/* Before the device is used: an earlier agent may still hold it. */
int agent_setup_end_predecessors(struct control *c, const struct msg_welcome *w, struct err *e);

#endif
