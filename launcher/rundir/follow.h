/*
 * follow — reads events.jsonl and metrics.jsonl of a run while it writes them.
 *
 * The files may not exist yet, may end in the middle of a line, and may contain damaged lines (a
 * full disk cuts them). They may be split (base/segments.h); the lines of all segments come in their
 * order. A line is reported once, when it is complete. A damaged line, and a line without the fields
 * that every line has, is counted and skipped. Heads (launcher/rundir/output.h) are not reported.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_FOLLOW_H
#define MUSTER_LAUNCHER_RUNDIR_FOLLOW_H

#include "base/err.h"
#include "base/fields.h"
#include "launcher/rundir/split.h"

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */

/* The fields that a line of either file begins with; `event` is absent in metrics.jsonl. */
#define RUNDIR_LINE_FIELDS(F) \
	F(event,      TEXT,   OPTIONAL, "the event's name") \
	F(time,       NUMBER, REQUIRED, "seconds since 1970") \
	F(mono,       NUMBER, REQUIRED, "seconds of the monotonic clock") \
	F(generation, COUNT,  REQUIRED, "the generation")

/* clang-format on */

struct rundir_line {
	RUNDIR_LINE_FIELDS(FIELDS_MEMBER)
	const json_t *fields; /* the whole line */
};

struct rundir_reader {
	/* Both are called in the order of their file. The line is valid during the call only. */
	void (*event)(void *arg, const struct rundir_line *l);
	void (*metrics)(void *arg, const struct rundir_line *l);
	void *arg;
};

/* Splits bytes into lines, and parses them. It starts zeroed. */
struct rundir_lines {
	struct rundir_split split;
	int64_t damaged; /* lines */
	int newer;       /* a version in a head that this muster does not know; 0: none */
};

void rundir_lines_feed(struct rundir_lines *l, const char *data, size_t n,
		       void (*line)(void *arg, const struct rundir_line *l), void *arg);
void rundir_lines_fini(struct rundir_lines *l);

struct rundir_follower;

/* Follows the run in this folder, which need not exist yet. */
int rundir_follow_open(const char *run, const struct rundir_reader *reader,
		       struct rundir_follower **out, struct err *e);
/* Reports every line that is complete by now. Returns at once. Events come before metrics. ERR_IO, or
 * ERR_CORRUPT if a file of that name is no regular file, or ERR_UNSUPPORTED: a newer muster writes
 * the run. */
int rundir_follow_read(struct rundir_follower *f, struct err *e);
int64_t rundir_follow_damaged(const struct rundir_follower *f);
void rundir_follow_close(struct rundir_follower *f);

#endif
