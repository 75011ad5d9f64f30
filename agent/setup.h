/*
 * setup — what each generation of an agent does first, whether it trains or runs a program: it opens the
 * rank's log, binds the process to the cores next to its device, and ends agents of earlier generations.
 */
#ifndef MUSTER_AGENT_SETUP_H
#define MUSTER_AGENT_SETUP_H

#include "agent/control.h"
#include "agent/log_parts.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

/* From now on the process logs to the log of its rank, and warnings go to the supervisor too. The log
 * must stay where it is until the close. */
int agent_setup_open_log(struct agent_log *log, const struct msg_welcome *w, const struct job *job,
			 struct control *c, struct err *e);
/* Does nothing if the log is not open (fd -1). */
void agent_setup_close_log(struct agent_log *log);
/* Binds the process to the cores and the memory next to its device, for all threads and processes that
 * it starts. The run continues if the node does not permit it. */
void agent_setup_bind(const struct msg_welcome *w);
/* Before the device is used: an earlier agent may still hold it. */
int agent_setup_end_predecessors(struct control *c, const struct msg_welcome *w, struct err *e);

#endif
