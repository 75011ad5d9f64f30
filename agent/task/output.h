/*
 * output — what a program writes to its standard output and standard error, into the log of its rank.
 *
 * Two pipes lead from the program to a thread, which writes each line (lines.h) to the log of this
 * process (base/log.h), with "out" or "err" in the place of the level. The program never waits for
 * it for long: what exceeds `rate` is dropped, unread, and the log gets a line that says how much.
 * The limit counts for each of the two, so that standard error keeps its traceback while standard
 * output is flooded, and the last 64 KiB of a stream are never dropped.
 *
 * A process that outlives the program may keep the pipes open: task_output_finish() does not wait
 * for it.
 */
#ifndef MUSTER_AGENT_TASK_OUTPUT_H
#define MUSTER_AGENT_TASK_OUTPUT_H

#include "base/err.h"

#include <stddef.h>

enum task_stream { TASK_OUT, TASK_ERR, TASK_STREAMS };

struct task_output_options {
	/* Gets each line of the log, also those about dropped output. Called on the thread; may be
	 * NULL. */
	void (*line)(void *arg, enum task_stream stream, const char *text, size_t len);
	void *arg;
	double rate;  /* bytes of log per second and stream, on average; 0: 8 MiB */
	double burst; /* this many may come at once; 0: four seconds of `rate` */
};

struct task_output;

/* Begins. ends: the program's ends of the pipes, which the caller closes once it is started. */
int task_output_open(const struct task_output_options *o, struct task_output **out,
		     int ends[TASK_STREAMS], struct err *e);
/* Takes what is in the pipes by now, and ends the thread. Later output is lost, and whoever writes it
 * gets SIGPIPE. */
void task_output_finish(struct task_output *o);

/* After task_output_finish(). The last lines of standard error, or if there are none of standard output:
 * at most 40 and 8 KiB, each with a newline and cut to 2 KiB. Owned by the output. */
const char *task_output_tail(const struct task_output *o);

/* Finishes if that was not done. Takes NULL. */
void task_output_close(struct task_output *o);

#endif
