/*
 * log_move — moves a log from the folder of its node to the run folder, with its parts. Only log_collect.c
 * uses it.
 */
#ifndef MUSTER_AGENT_LOG_MOVE_H
#define MUSTER_AGENT_LOG_MOVE_H

#include "agent/log_parts.h"

#include <stdbool.h>

/* As agent_log_collect, for a log that is not in the run folder. Its lock is held, or no other thread uses it. */
int agent_log_move(struct agent_log *l, const atomic_bool *stop, struct err *e);
/* Whether the folder of the node still contains the file to which the log is written. */
bool agent_log_is_on_node(const struct agent_log *l);
/* Copies from where `in` is to its end. what: is written, for errors. stop: NULL: not to be stopped. */
int agent_log_copy(int in, int out, const char *what, const atomic_bool *stop, struct err *e);

#endif
