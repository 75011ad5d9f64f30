/*
 * child — a command as a child process, watched or waited for.
 *
 * Started by execvp without a shell, in a process group of its own (a
 * terminal's Ctrl-C is for the supervisor), with default signals. A command
 * that cannot be executed is an error of the start, not an exit status.
 */
#ifndef MUSTER_LAUNCHER_CHILD_H
#define MUSTER_LAUNCHER_CHILD_H

#include "base/buf.h"
#include "base/err.h"

#include <uv.h>

struct child_command {
	char *const *argv;
	char *const *env;  /* NULL: this process's */
	const char *input; /* its standard input; NULL: none */
	int out;           /* takes stdout and stderr; -1: they are captured */
	bool tied;         /* killed when the process that started it ends */
	/* end of the error when it cannot be executed, when it takes too long: "; remedy", or
	 * NULL */
	const char *absent, *late;
};

enum { CHILD_OUTPUT_MOST = 1 << 20 }; /* what is captured at most; the rest is dropped */

struct child; /* one that is watched */

/* `ended` runs once, on the loop: status as of waitpid, and what was captured. The child is
 * freed after it. */
int launcher_child_watch(uv_loop_t *loop, const struct child_command *c,
			 void (*ended)(void *arg, int status, const char *output), void *arg,
			 struct child **out, struct err *e);
/* To the process alone. */
void launcher_child_signal(struct child *c, int signal);
/* `ended` does not run any more, and the loop does not wait for it. */
void launcher_child_forget(struct child *c);

/* Waits; a command that takes longer than timeout_s is killed: ERR_TIMEOUT. A status other than 0
 * is an error that quotes the last line of the output. */
int launcher_child_run(const struct child_command *c, double timeout_s, struct buf *output,
		       struct err *e);

#endif
