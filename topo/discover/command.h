/*
 * command — a program's answer: started without a shell, waited for so long and no longer.
 *
 * The program is found in PATH, reads nothing, and has default signals. It is asked to end
 * (SIGTERM) when its time is over or its output is more than was asked for, and killed a second
 * later.
 */
#ifndef MUSTER_TOPO_DISCOVER_COMMAND_H
#define MUSTER_TOPO_DISCOVER_COMMAND_H

#include "base/buf.h"
#include "base/err.h"

struct command {
	char *const *argv;
	char *const *env; /* NULL: this process's */
	double timeout;   /* seconds */
	size_t most;      /* bytes of output */
};

/* Appends what it printed. ERR_NOTFOUND: there is no such program; ERR_TIMEOUT; else its status is
 * not 0 and the error quotes the first line of its complaint. */
int topo_command_run(const struct command *c, struct buf *out, struct err *e);

#endif
