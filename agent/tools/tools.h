/*
 * tools — what `muster` runs by exec, as git runs its programs: `muster data
 * pack …` execs `muster-agent data pack …` with the same words.
 *
 * A tool is a main of its own: it prints results to descriptor 1, errors to
 * descriptor 2 as `muster GROUP NAME: cause; remedy`, and returns the exit
 * status: 0 done, 1 the work failed (something is damaged, missing, full),
 * 2 usage. Each answers --help with a page that reads like a manual's.
 *
 * To add a tool: (1) its function, in a file named after it, (2) its page next to
 * it, (3) its prototype and its row in the table in tools.c, (4) its bats tests.
 */
#ifndef MUSTER_AGENT_TOOLS_TOOLS_H
#define MUSTER_AGENT_TOOLS_TOOLS_H

#include "base/err.h"

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_UNKNOWN = 127 };

struct tool {
	const char *group, *name;             /* "data", "pack" */
	int (*main)(int argc, char **argv);   /* argv[0] is the name */
	const char *page;                     /* what --help prints */
	const char *summary;                  /* one line */
};

/* argv as muster-agent got it: argv[1] is the group, argv[2] the name. Prints the group's
 * tools for `GROUP --help`. TOOL_UNKNOWN, and nothing printed, when argv[1] is no group:
 * the caller then says what else it knows. */
int tool_main(int argc, char **argv);

/* For the tools: print and return the status. */
int tool_usage(const struct tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int tool_fail(const struct tool *t, const struct err *e); /* TOOL_USAGE for ERR_USAGE, else TOOL_FAILED */

#endif
