/*
 * tail — the last lines of a file of JSON lines of a run, at a cost that does not depend on how long
 * the file and its segments are.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_TAIL_H
#define MUSTER_LAUNCHER_RUNDIR_TAIL_H

#include "base/buf.h"
#include "base/err.h"

/* Appends the last n lines that are complete, in their order and each with its newline. Heads and
 * blank lines do not count. name: such as RUN_EVENTS. Fewer lines: there are no more in the last
 * 64 MiB. */
int rundir_tail(const char *run, const char *name, int n, struct buf *out, struct err *e);

#endif
