/*
 * child — runs a command as a child process and watches it or waits for it.
 *
 * The command is found in PATH (base/program.h) and starts without a shell, with default signals,
 * in a process group of its own, so that a terminal's Ctrl-C reaches only the supervisor. If the
 * command cannot be executed, the start fails; this is not an exit status.
 */
#ifndef MUSTER_LAUNCHER_CHILD_H
#define MUSTER_LAUNCHER_CHILD_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>
#include <uv.h>

struct child_command {
	char *const *argv;
	char *const *env;  /* NULL: this process's */
	const char *input; /* its standard input; NULL: none */
	int out;           /* for stdout and stderr; -1: they are captured */
	bool tied;         /* it is killed when the process that started it ends */
	/* the file cgroup.procs of a cgroup that the process joins before it executes the command;
	 * NULL: it stays in that of its parent */
	const char *cgroup;
	/* launcher_child_run: when this descriptor can be read, the command is killed as if its time
	 * had passed; NULL: never */
	const int *cut;
	/* "; remedy" at the end of the error if it cannot be executed, or takes too long; may be
	 * NULL */
	const char *absent, *late;
};

enum { CHILD_OUTPUT_MAX = 1 << 20 }; /* bytes captured; the rest is dropped */

struct child; /* a child process that is watched */

/* Starts a command. `ended` is called once, on the loop, with the status (as of waitpid) and the
 * captured output. The child is freed after it. */
int launcher_child_watch(uv_loop_t *loop, const struct child_command *c,
			 void (*ended)(void *arg, int status, const char *output), void *arg,
			 struct child **out, struct err *e);
pid_t launcher_child_pid(const struct child *c);
/* Sends a signal to the process, not to its group. */
void launcher_child_signal(struct child *c, int signal);
/* `ended` will not be called, and the loop does not wait for the child. */
void launcher_child_forget(struct child *c);

/* 0 if the status is 0. Otherwise an error that quotes the last line of the output. */
int launcher_child_result(const char *name, int status, const char *output, struct err *e);

/* Runs a command and waits for it. ERR_TIMEOUT: it took longer than timeout_s and was killed, with
 * its process group. May be called from any thread. If its status is not 0, the error quotes the last line of the output. */
int launcher_child_run(const struct child_command *c, double timeout_s, struct buf *output,
		       struct err *e);

#endif
