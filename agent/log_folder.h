/*
 * log_folder — the folder of this node for the logs of a run (log.local).
 *
 * It belongs to the user alone, also below /tmp. If muster has chosen the place (log.local = auto), nobody else
 * removes what runs have left there: the first rank of a node removes the folders that were not used for
 * LOG_FOLDER_DAYS.
 */
#ifndef MUSTER_AGENT_LOG_FOLDER_H
#define MUSTER_AGENT_LOG_FOLDER_H

#include "base/err.h"
#include "base/messages.h"
#include "base/run_paths.h"
#include "plan/spec/job/job.h"

enum { LOG_FOLDER_DAYS = 10 };

/* ERR_DENIED: it belongs to another user, or others may write to it. */
int agent_log_folder_make(const struct msg_welcome *w, const struct job *job, char out[RUN_PATH],
			  struct err *e);
/* Removes the folders in `parent` in which nothing was changed for LOG_FOLDER_DAYS before `now`, in seconds since
 * 1970, except `own`. */
void agent_log_folder_sweep(const char *parent, const char *own, double now);

#endif
