/*
 * command — the subcommands of `muster`.
 *
 * To add one, do four things:
 *   1. a file launcher/cmd_NAME.c with `int cmd_NAME(int argc, char **argv)`; argv[0] is the
 *      subcommand's name, the result is the exit status (launcher/status.h);
 *   2. its prototype below;
 *   3. its row in main.c's table: name, function, summary;
 *   4. its help: a man page's text that it prints for --help (command_help), with SYNOPSIS,
 *      DESCRIPTION, OPTIONS, EXAMPLES and EXIT STATUS.
 */
#ifndef MUSTER_LAUNCHER_CLI_COMMAND_H
#define MUSTER_LAUNCHER_CLI_COMMAND_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

int cmd_run(int argc, char **argv);
int cmd_submit(int argc, char **argv); /* launcher/slurm */
int cmd_plan(int argc, char **argv);
int cmd_topo(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_tool(int argc, char **argv); /* ckpt, data, bench, generate, trace: the agent's tools */

/* True when --help or -h is among the words before "--". */
bool command_wants_help(int argc, char **argv);
/* Prints `text`; returns the exit status 0. */
int command_help(const char *text);
/* Prints the error to stderr; returns the exit status that fits its code. */
int command_fail(const struct err *e);
/* A usage error about the command line, with a hint to --help. */
int command_misuse(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* An option of a subcommand; a table of them ends with a NULL name. */
struct command_option {
	const char *name;   /* "--json" */
	bool *flag;         /* set when it is there, or NULL */
	const char **value; /* set to the word after it, or NULL */
};

struct job;
/* what the job is read for: a run needs more of it than a plan */
enum command_use { TO_PLAN, TO_RUN };
/* Reads `[OPTION …] JOB.ini [section.key=value …]`: sets the options and loads the job. The options
 * --auto and --gpus leave to muster what the words do not give, whatever the file gives
 * (job_open_words). 0, or the exit status, said already. */
int command_job(int argc, char **argv, const struct command_option *options, enum command_use use,
		struct job *job);

/* The same without a job: sets the options; any other word is misuse. */
int command_options(int argc, char **argv, const struct command_option *options);

/* The word of the list nearest to `word`, or NULL when none is near; the list ends with NULL. */
const char *command_nearest(const char *word, const char *const *list);

#endif
