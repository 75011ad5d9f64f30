/*
 * rank_log — the log of this rank for one generation: where it is (log.local), what is written to it, and its
 * way to the run folder.
 *
 * A log that stays on its node is collected (log_parts.h) when the supervisor sends collect, because somebody
 * asks for it. A thread does this, because the run folder may be slow, and neither training nor the control
 * channel waits for it. When the rank fails by an error of its own, it collects its log if that is short.
 * Otherwise, and if the agent dies, the supervisor asks an agent of the node in the next generation.
 *
 * If the folder of the node cannot be used, the log is in the run folder, and a warning says why.
 */
#ifndef MUSTER_AGENT_RANK_LOG_H
#define MUSTER_AGENT_RANK_LOG_H

#include "agent/control.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

struct rank_log;

/* From now on the process logs to the log of its rank, and warnings go to the supervisor too. */
int agent_rank_log_open(const struct msg_welcome *w, const struct job *job, struct control *c,
			struct rank_log **out, struct err *e);
/* The rank has failed, and has reported it. Takes NULL. */
void agent_rank_log_fail(struct rank_log *l);
/* Stops what is being collected, and logs to stderr from then on. Takes NULL. */
void agent_rank_log_close(struct rank_log *l);

#endif
