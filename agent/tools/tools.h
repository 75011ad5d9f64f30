/*
 * tools — the programs that `muster` runs by exec, as git does: `muster data pack …` execs
 * `muster-agent data pack …` with the same words.
 *
 * Each tool has a main of its own: it prints results to standard output and errors to standard
 * error as `muster GROUP NAME: cause; remedy`, and returns the exit status: 0 done, 1 the work
 * failed (something is damaged, missing, full), 2 usage; of a tool that reads a run also 3, there is
 * no such run, or it cannot be read. Each answers --help with a manual page.
 *
 * To add a tool: (1) a file named after it that defines its `const struct tool tool_GROUP_NAME`
 * with its page, (2) its row in TOOLS below, (3) its bats tests.
 */
#ifndef MUSTER_AGENT_TOOLS_TOOLS_H
#define MUSTER_AGENT_TOOLS_TOOLS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_UNREADABLE = 3, TOOL_UNKNOWN = 127 };

struct tool {
	/* "data", "pack"; NULL as the name: the only tool of its group, such as "trace" */
	const char *group, *name;
	int (*main)(int argc, char **argv); /* argv[0] is the name */
	const char *summary;                /* one line; NULL: the group does not list the tool */
	const char *page;                   /* printed by --help */
};

#define TOOLS(X) \
	X(data_pack) \
	X(data_show) \
	X(data_audit) \
	X(ckpt_ls) \
	X(ckpt_show) \
	X(ckpt_verify) \
	X(ckpt_push) \
	X(ckpt_pull) \
	X(ckpt_import) \
	X(ckpt_export) \
	X(ckpt_diff) \
	X(ckpt_prune) \
	X(ckpt_copy) \
	X(ckpt_repair) \
	X(ckpt_upload) \
	X(bench_step) \
	X(bench_gemm) \
	X(bench_comm) \
	X(bench_calibrate) \
	X(bench_plan) \
	X(bench_node) \
	X(bench_ckpt) \
	X(trace) \
	X(stacks) \
	X(keep) \
	X(generate)

#define TOOL_EXTERN(name) extern const struct tool tool_##name;
TOOLS(TOOL_EXTERN)
#undef TOOL_EXTERN

/* argv of muster-agent: argv[1] is the group, argv[2] the name. Prints the group's tools for `GROUP
 * --help`. Returns TOOL_UNKNOWN and prints nothing if argv[1] is not a group: the caller then
 * prints its own usage. */
int tool_main(int argc, char **argv);

/* For the tools. Both print the error and return the status. */
int tool_usage(const struct tool *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* TOOL_USAGE for ERR_USAGE, otherwise TOOL_FAILED. */
int tool_fail(const struct tool *t, const struct err *e);
/* Prints the value as JSON, flushes, and drops the reference: TOOL_OK, or TOOL_FAILED if it cannot
 * be printed. */
int tool_print_json(const struct tool *t, json_t *value);
/* Flushes standard output: TOOL_OK, or TOOL_FAILED after saying that it cannot be printed. */
int tool_flush(const struct tool *t);
/* Prints {name: degree, …} as text: tp 2 × pp 2. */
void tool_print_layout(const json_t *layout);

/* Reads a size such as 512, 64K, 16M or 1G; K, M and G are powers of 1024. name: the option's, in
 * errors. */
int tool_read_bytes(const char *name, const char *text, size_t *out, struct err *e);
/* Shortens `dir`, a buffer of at least 2 bytes, to the nearest folder above that exists. */
void tool_nearest_folder(char *dir);

/* Parses the command line of a tool with one word and --json, and runs the body. what: the word's
 * name in the page. */
int tool_one_word(const struct tool *t, int argc, char **argv, const char *what,
		  int (*body)(const char *word, bool json));
/* Like tool_one_word, for one or more words; `none` is printed if there is none. */
int tool_words(const struct tool *t, int argc, char **argv, const char *none,
	       int (*body)(char **words, int n, bool json));

/* Handles getopt_long's `c` if it is not an option of the tool: --help, or an error. */
int tool_option(const struct tool *t, int c, char **argv);
enum { TOOL_HELP = 'h' };

#endif
