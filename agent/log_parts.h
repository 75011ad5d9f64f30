/*
 * log_parts — the log of one agent: logs/<node>-<rank>.log, which stays below a bound.
 *
 * At a quarter of the bound the file becomes <node>-<rank>.<n>.log (base/segments.h), and a new one
 * begins. Then the oldest parts are removed that are beyond the bound. The agent itself writes the
 * file, and its descriptor stays the same, so no line is lost at a split.
 */
#ifndef MUSTER_AGENT_LOG_PARTS_H
#define MUSTER_AGENT_LOG_PARTS_H

#include "base/err.h"
#include "base/run_paths.h"

#include <stdint.h>
#include <sys/types.h>

struct agent_log {
	char folder[RUN_PATH];
	char name[300]; /* of the file */
	int fd;
	int64_t keep; /* the bound in bytes; 0: none */
};

/* Opens the log to append to it. */
int agent_log_open(struct agent_log *l, const char *run, const char *node, int rank, int64_t keep,
		   struct err *e);
/* The size at which the file is to be split; 0: never. */
int64_t agent_log_most(const struct agent_log *l);
/* The size of the file. */
int64_t agent_log_size(const struct agent_log *l);
/* Splits the file. If it cannot, the file grows on. */
void agent_log_split(struct agent_log *l);
void agent_log_close(struct agent_log *l);

#endif
