/*
 * node_path — folders that each node has for itself, on its own disk or in its memory.
 *
 * Keys such as checkpoint.local name them with a pattern, in which %N stands for the node's name.
 */
#ifndef MUSTER_PLAN_SPEC_JOB_NODE_PATH_H
#define MUSTER_PLAN_SPEC_JOB_NODE_PATH_H

#include "base/err.h"
#include "base/run_paths.h"
#include "plan/spec/job/job.h"

#include <stdbool.h>

/* With log.local = auto, the logs stay on the nodes in worlds of more ranks than this. */
enum { JOB_LOGS_SHARED_MOST = 512, JOB_LOGS_ID = 16 };

/* Writes `pattern` to `out`, with the node's name in the place of each %N. key: of the pattern, for errors.
 * ERR_USAGE if the name cannot be part of a path, or the path is too long. */
int job_node_path(const char *key, const char *pattern, const char *node, char out[PATH_MAX],
		  struct err *e);

/* Whether the logs of a world of this size stay on the nodes (log.local), except for that of rank 0. */
bool job_logs_local(const struct job *job, int world);
/* The folder of a run's logs on this node: a folder below log.local, whose name has the run's name and the text
 * of RUN_LOGS_ID. run: the run folder. parent: the folder above it, or NULL. ERR_NOTFOUND: the run has no such
 * file, and no logs on its nodes. */
int job_logs_folder(const struct job *job, const char *run, const char *node, char parent[PATH_MAX],
		    char out[RUN_PATH], struct err *e);
/* Whether a folder below log.local may be one in which others write, such as /tmp: muster has chosen it. */
bool job_logs_auto(const struct job *job);

#endif
