/*
 * command — runs a program without a shell and collects its output, with a time limit.
 *
 * The program is found in PATH; it gets no input and default signals. When its time or the limit of
 * its output is exceeded, it gets SIGTERM, and SIGKILL one second later.
 */
#ifndef MUSTER_TOPO_DISCOVER_COMMAND_H
#define MUSTER_TOPO_DISCOVER_COMMAND_H

#include "base/buf.h"
#include "base/err.h"

struct command {
	char *const *argv;
	char *const *env; /* NULL: this process's */
	double timeout;   /* seconds */
	size_t most;      /* limit of the output, bytes */
};

/* Appends the output. ERR_NOTFOUND: there is no such program; ERR_TIMEOUT: its time is over. Other
 * errors: its exit status is not 0, and the error quotes the first line of its stderr. */
int topo_command_run(const struct command *c, struct buf *out, struct err *e);

#endif
