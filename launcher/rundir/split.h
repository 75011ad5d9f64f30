/*
 * split — cuts bytes that arrive in pieces into lines.
 *
 * A line is complete when its newline has come. A longer line than RUNDIR_LINE_MAX is damaged: it is
 * skipped and counted.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_SPLIT_H
#define MUSTER_LAUNCHER_RUNDIR_SPLIT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum { RUNDIR_LINE_MAX = 4 << 20 };

/* It starts zeroed. */
struct rundir_split {
	struct buf part; /* of the last line, which is not complete */
	bool skipping;   /* the rest of a line that is too long */
	int64_t too_long;
};

/* line: called for each complete line, without its newline. */
void rundir_split_feed(struct rundir_split *s, const char *data, size_t n,
		       void (*line)(void *arg, const char *text, size_t n), void *arg);
void rundir_split_fini(struct rundir_split *s);

#endif
