/*
 * collect — has logs that stay on the nodes (log.local) moved to the run folder, before they are read.
 *
 * The supervisor's side is launcher/supervise/collect.h.
 */
#ifndef MUSTER_LAUNCHER_CONSOLE_COLLECT_H
#define MUSTER_LAUNCHER_CONSOLE_COLLECT_H

#include "base/err.h"

/* ranks: such as "0,4-7", or NULL: all. node: only ranks on this node, or NULL. Returns when the logs are there;
 * ERR_TIMEOUT after `seconds`. Calls `waiting` once, unless it is NULL, if this takes longer than a second. A run
 * that does not go on has nothing to collect: that is no error. */
int console_collect_logs(const char *run, const char *ranks, const char *node, double seconds,
			 void (*waiting)(void), struct err *e);

#endif
