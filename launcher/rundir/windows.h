/*
 * windows — when each generation of a run began, read quickly from events.jsonl.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_WINDOWS_H
#define MUSTER_LAUNCHER_RUNDIR_WINDOWS_H

#include "base/err.h"

#include <stdint.h>

/* A generation that was started again, or a `muster run` that begins, may repeat a number: the first
 * start counts. */
struct rundir_window {
	int64_t generation;
	double from, until; /* seconds since 1970; the last one has no end: INFINITY */
};

struct rundir_windows {
	struct rundir_window *of; /* in the order of their begin */
	int n;
};

/* A run without events has none. */
int rundir_windows_read(const char *run, struct rundir_windows *out, struct err *e);
void rundir_windows_free(struct rundir_windows *w);
/* NULL: the run had no such generation. */
const struct rundir_window *rundir_windows_find(const struct rundir_windows *w, int64_t generation);

#endif
