/*
 * command — the subcommands of `muster`.
 *
 * To add a command:
 *   1. its row in COMMANDS below: name, function, summary;
 *   2. a file launcher/cli/cmd_NAME.c with the function, `int cmd_NAME(int argc, char **argv)`.
 *      argv[0] is the command's name; the result is the exit status (launcher/status.h);
 *   3. in that file the page that --help prints (command_help), with SYNOPSIS, DESCRIPTION,
 *      OPTIONS, EXAMPLES and EXIT STATUS;
 *   4. its tests, tests/cli/NAME.bats.
 * The Makefile finds the file; `muster help` and the hint after a misspelled command use the row.
 *
 * ckpt, data, generate, trace and bench are tools of muster-agent: cmd_tool() executes it with the
 * same words; cmd_trace() asks a running run before, for trace --next. To add a group of tools, give it a row with cmd_tool here and follow
 * agent/tools/tools.h; a tool of an existing group needs no row.
 */
#ifndef MUSTER_LAUNCHER_CLI_COMMAND_H
#define MUSTER_LAUNCHER_CLI_COMMAND_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* clang-format off */

/* name, function, summary; in the order of `muster help`, which leaves out those without a summary:
 * muster itself starts them */
#define COMMANDS(X) \
	X("run",      cmd_run,    "train: on the nodes of a Slurm allocation, otherwise on this host") \
	X("submit",   cmd_submit, "submit the job to Slurm's queue") \
	X("queue",    cmd_queue,  "show, change and cancel jobs of Slurm's queue") \
	X("ls",       cmd_ls,     "list the runs of a folder: state, step, loss, age") \
	X("status",   cmd_status, "show what a run does now, or how it ended") \
	X("top",      cmd_top,    "watch a run: the same, live, with a row per rank or node") \
	X("stop",     cmd_stop,   "end a run on purpose, with a checkpoint") \
	X("checkpoint", cmd_checkpoint, "have a running run write a checkpoint now") \
	X("plan",     cmd_plan,   "show layout, memory and predicted step time; start nothing") \
	X("simulate", cmd_simulate, "predict how a job fares on a cluster whose parts fail") \
	X("topo",     cmd_topo,   "show the hardware of the machines") \
	X("logs",     cmd_logs,   "print the logs of all ranks, merged by time") \
	X("events",   cmd_events, "print what happened to a run") \
	X("diff",     cmd_diff,   "compare two runs: their jobs, plans and losses") \
	X("nodes",    cmd_nodes,  "list nodes that may be sick, with what runs have seen of them") \
	X("report",   cmd_report, "write a page that shows a run, or several side by side") \
	X("doctor",   cmd_doctor, "report what this machine lacks, and the command that fixes it") \
	X("drill",    cmd_drill,  "cause faults on purpose, and report how the job recovers") \
	X("ckpt",     cmd_tool,   "list, show, verify, import and export checkpoints") \
	X("data",     cmd_tool,   "pack text into token files; show and audit them") \
	X("generate", cmd_tool,   "continue a text with the model of a checkpoint") \
	X("trace",    cmd_trace,  "report which rank held up a run; record and draw its steps") \
	X("export",   cmd_export, "write a run's metrics for other programs: CSV, TensorBoard") \
	X("bench",    cmd_tool,   "measure communication, matrix products and training steps") \
	X("help",     cmd_help,   "explain a command") \
	X("guard",    cmd_guard,  NULL) \
	X("helper",   cmd_helper, NULL)

/* clang-format on */

#define COMMAND_PROTOTYPE(name, function, summary) int function(int argc, char **argv);
COMMANDS(COMMAND_PROTOTYPE)
#undef COMMAND_PROTOTYPE

/* Whether --help or -h is among the words before "--". */
bool command_wants_help(int argc, char **argv);
/* Prints `text`; returns the exit status 0. */
int command_help(const char *text);
/* Prints the error to stderr, without what would control a terminal: it may quote a file or a name.
 * Returns the exit status of its code. */
int command_fail(const struct err *e);
/* Prints each line of the text to stderr, as one of muster's. before: such as "warning: ". */
void command_lines(const char *before, const char *text);
/* Prints a usage error with a hint to --help; returns STATUS_USAGE. */
int command_misuse(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* An option of a subcommand; a table of them ends with a NULL name. */
struct command_option {
	const char *name;   /* "--json" */
	bool *flag;         /* set to true if the option is given; may be NULL */
	const char **value; /* set to the word after the option; may be NULL */
};

struct job;
/* The purpose that a job is read for: a run needs more of its keys than a plan. */
enum command_use { TO_PLAN, TO_RUN };
/* Reads `[OPTION …] JOB.ini [section.key=value …]`: sets the options and loads the job. With --auto
 * or --gpus muster chooses the keys that the words do not set, even if the file sets them
 * (job_auto_words). Returns 0, or an exit status after printing the error. */
int command_job(int argc, char **argv, const struct command_option *options, enum command_use use,
		struct job *job);

/* The same for a job that is to run, which may have a program on the command line:
 * `[OPTION …] [JOB.ini] [section.key=value …] -- PROGRAM ARGUMENT …` (program_words.h). tasks: where the
 * table of options stores the value of -n. */
int command_run_job(int argc, char **argv, const struct command_option *options, const char **tasks,
		    struct job *job);

/* Sets the options of a command without a job; any other word is a usage error. */
int command_options(int argc, char **argv, const struct command_option *options);

/* The options of a command that takes `n` runs, in any order; the runs are stored in `runs`. Returns
 * 0, or an exit status after printing the error. */
int command_runs(int argc, char **argv, const struct command_option *options, const char **runs,
		 int n);
/* The same for one word that may be missing; *word is NULL then. */
int command_optional_word(int argc, char **argv, const struct command_option *options,
			  const char **word);

/* The word of the list that is spelled most like `word`; NULL if none is close. The list ends with
 * NULL. */
const char *command_nearest(const char *word, const char *const *list);

#endif
