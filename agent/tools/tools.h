/*
 * tools — what `muster` runs by exec, as git runs its programs: `muster data
 * pack …` execs `muster-agent data pack …` with the same words.
 *
 * A tool is a main of its own: it prints results to descriptor 1, errors to
 * descriptor 2 as `muster GROUP NAME: cause; remedy`, and returns the exit
 * status: 0 done, 1 the work failed (something is damaged, missing, full),
 * 2 usage. Each answers --help with a page that reads like a manual's.
 *
 * To add a tool: (1) a file named after it that defines its `const struct tool tool_GROUP_NAME`
 * with its page, (2) its row in TOOLS below, (3) its bats tests.
 */
#ifndef MUSTER_AGENT_TOOLS_TOOLS_H
#define MUSTER_AGENT_TOOLS_TOOLS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_UNKNOWN = 127 };

struct tool {
	/* "data", "pack"; without a name the group's only tool, "trace" */
	const char *group, *name;
	int (*main)(int argc, char **argv); /* argv[0] is the name */
	const char *summary;                /* one line */
	const char *page;                   /* what --help prints */
};

#define TOOLS(X) \
	X(data_pack) \
	X(data_show) \
	X(data_audit) \
	X(ckpt_ls) \
	X(ckpt_show) \
	X(ckpt_verify) \
	X(ckpt_import) \
	X(ckpt_export) \
	X(bench_step) \
	X(bench_gemm) \
	X(bench_comm) \
	X(bench_calibrate) \
	X(bench_plan) \
	X(trace) \
	X(generate)

#define TOOL_EXTERN(name) extern const struct tool tool_##name;
TOOLS(TOOL_EXTERN)
#undef TOOL_EXTERN

/* argv as muster-agent got it: argv[1] is the group, argv[2] the name. Prints the group's
 * tools for `GROUP --help`. TOOL_UNKNOWN, and nothing printed, when argv[1] is no group:
 * the caller then says what else it knows. */
int tool_main(int argc, char **argv);

/* For the tools: print and return the status. */
int tool_usage(const struct tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* TOOL_USAGE for ERR_USAGE, else TOOL_FAILED */
int tool_fail(const struct tool *t, const struct err *e);
/* Prints the value as JSON, drops it, and flushes: TOOL_OK, or TOOL_FAILED when it cannot be
 * printed. */

int tool_print_json(const struct tool *t, json_t *value);
/* {name: degree, …} as people read it: tp 2 × pp 2. */
void tool_print_layout(const json_t *layout);

/* A tool with one word and --json: parses both, runs the body. what: the word's name in the
 * page. */
int tool_one_word(const struct tool *t, int argc, char **argv, const char *what,
		  int (*body)(const char *word, bool json));
/* The same for one word or more; `none` is said when there is none. */
int tool_words(const struct tool *t, int argc, char **argv, const char *none,
	       int (*body)(char **words, int n, bool json));

/* getopt_long's `c`, when it is none of the tool's own options: --help, or what is wrong. */
int tool_option(const struct tool *t, int c, char **argv);
enum { TOOL_HELP = 'h' };

#endif
