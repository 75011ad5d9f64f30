/*
 * traces — the folders trace/gen-<generation> of a run, with flight recorders and timelines.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_TRACES_H
#define MUSTER_LAUNCHER_RUNDIR_TRACES_H

#include "base/run_paths.h"

#include <stdbool.h>

enum { RUNDIR_TRACES = 8 };

/* Whether a folder has a file whose name rank_of() knows (run_recorder_rank or
 * run_timeline_rank). */
bool rundir_trace_has(const char *trace, long (*rank_of)(const char *name));
/* The folder of the last generation that has such a file; false: there is none. */
bool rundir_last_trace(const char *run, long (*rank_of)(const char *name), char out[RUN_PATH]);

/* Called before a generation starts: removes the folders of all but the RUNDIR_TRACES generations
 * that end with this one. Files of other names, and their folders, stay. */
void rundir_prune_traces(const char *run, uint32_t generation);

#endif
