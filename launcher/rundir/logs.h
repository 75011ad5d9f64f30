/*
 * logs — the lines of all logs of a run, merged by time.
 *
 * The logs are logs/<node>-<rank>.log of each rank with its earlier parts (log_file.h), and, of the
 * launch, logs/launch-<generation>.log and logs/guard.log. If this host is a node of a run whose logs stay on the nodes (log.local), those of its
 * ranks are read where they are. A line of a rank begins with its time (base/log.h). A line without a time has
 * that of the line before it in its file; at the begin of a file, that of the generation. Lines of
 * one file stay in their order. Of a log that an older muster wrote, with times but no dates, the
 * dates come from the time of the file's last change.
 *
 * No file stays open, so a run may have any number of ranks; their buffers share about 16 MiB. A
 * reader may call rundir_logs_read() again and again while the run goes on: each call reports the
 * lines that were added, also those of new files, sorted among themselves.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_LOGS_H
#define MUSTER_LAUNCHER_RUNDIR_LOGS_H

#include "base/err.h"
#include "base/ranges.h"

#include <stdbool.h>
#include <stddef.h>

/* A longer line is reported in pieces. */
enum { RUNDIR_LOG_LINE_MAX = 1 << 16 };

struct rundir_logs_options {
	const struct ranges *ranks; /* only these; NULL: all, and the logs of the launch */
	const char *node;           /* only logs of this node; NULL: all */
	double from, until;         /* only lines of [from, until), in seconds since 1970 */
	/* Called for a log that cannot be read, such as another user's or a FIFO: once, until it can
	 * be read again. The other logs are read nevertheless. May be NULL. */
	void (*unreadable)(void *arg, const struct err *why);
	void *unreadable_arg;
};

struct rundir_log_line {
	double time;
	const char *node; /* NULL: of the launch */
	int rank;         /* -1: of the launch */
	const char *file; /* without .log */
	const char *text; /* without its newline; ends with a NUL */
};

struct rundir_logs;

/* Everything in the options is borrowed until rundir_logs_close(). */
int rundir_logs_open(const char *run, const struct rundir_logs_options *o, struct rundir_logs **out,
		     struct err *e);
/* Reports the lines that are complete by now; `parts`: also a last line without a newline. each()
 * returns false to end the call. ERR_NOTFOUND: no log of the run fits the options; the text says
 * which there are. */
int rundir_logs_read(struct rundir_logs *l, bool parts,
		     bool (*each)(void *arg, const struct rundir_log_line *line), void *arg,
		     struct err *e);
/* After a read of all logs: how many ranks of the last generation have none that can be read here, because
 * it stays on their nodes (log.local). */
int rundir_logs_elsewhere(const struct rundir_logs *l);
void rundir_logs_close(struct rundir_logs *l);

#endif
