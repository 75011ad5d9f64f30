#include "base/human.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/exports/csv.h"
#include "launcher/exports/from_run.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"muster export — write a run's metrics for other programs\n"
	"\n"
	"SYNOPSIS\n"
	"  muster export RUN --csv [-o FILE]\n"
	"  muster export RUN --tensorboard DIR\n"
	"\n"
	"DESCRIPTION\n"
	"  RUN is a run folder, or the name of a run in $MUSTER_RUNS or runs/. The run may have\n"
	"  ended or still go on. Steps that were repeated after a restart are written once, as\n"
	"  they were trained last.\n"
	"\n"
	"  A run can also write for TensorBoard and Prometheus while it goes on: the keys of\n"
	"  [metrics] in muster run --help.\n"
	"\n"
	"OPTIONS\n"
	"  --csv              write a table: a line per step, with the names of the columns in "
	"the\n"
	"                     first line (RFC 4180)\n"
	"  -o FILE            write the table to this file, which is replaced; otherwise it is\n"
	"                     printed\n"
	"  --tensorboard DIR  write a new event file of TensorBoard into the folder DIR, which is\n"
	"                     created if it is missing\n"
	"\n"
	"EXAMPLES\n"
	"  muster export runs/demo --csv -o demo.csv\n"
	"  muster export demo --tensorboard boards/demo && tensorboard --logdir boards\n"
	"\n"
	"EXIT STATUS\n"
	"  0  done\n"
	"  1  the output cannot be written\n"
	"  2  usage\n"
	"  3  there is no such run, it has no metrics, or they cannot be read\n";

static void tell_damaged(int64_t damaged)
{
	if (damaged)
		fprintf(stderr,
			"muster: warning: %lld line%s of the run's files cannot be read, "
			"and "
			"%s left out\n",
			(long long)damaged, human_s(damaged), damaged == 1 ? "is" : "are");
}

static int cannot_write(const char *file)
{
	fprintf(stderr, "muster: %s: cannot write: %s\n", file, strerror(errno));
	return STATUS_FAILED;
}

static int print_csv(const char *run)
{
	struct err e = ERR_INIT;
	int64_t damaged = 0;
	if (exports_csv(run, stdout, &damaged, &e))
		return command_fail(&e);
	int status = command_output_end(STATUS_DONE);
	if (!status)
		tell_damaged(damaged);
	return status;
}

/* The file is replaced only by a whole table. */
static int save_csv(const char *run, const char *file)
{
	char next[RUN_PATH];
	struct err e = ERR_INIT;
	int64_t damaged = 0;
	if (snprintf(next, sizeof next, "%s.%ld.tmp", file, (long)getpid()) >= (int)sizeof next)
		return command_misuse("export", "-o FILE: the path is too long");
	FILE *out = fopen(next, "wxe");
	if (!out)
		return cannot_write(file);
	int rc = exports_csv(run, out, &damaged, &e);
	bool bad = ferror(out);
	bad |= fclose(out) != 0;
	if (!rc && !bad && !rename(next, file)) {
		tell_damaged(damaged);
		return STATUS_DONE;
	}
	int status = rc ? command_fail(&e) : cannot_write(file);
	unlink(next);
	return status;
}

static int save_board(const char *run, const char *folder)
{
	char path[RUN_PATH];
	struct err e = ERR_INIT;
	int64_t damaged = 0;
	bool unwritable = false;
	if (exports_tb_from_run(run, folder, path, &damaged, &unwritable, &e)) {
		int status = command_fail(&e);
		return unwritable ? STATUS_FAILED : status;
	}
	tell_damaged(damaged);
	printf("%s\n", path);
	return command_output_end(STATUS_DONE);
}

int cmd_export(int argc, char **argv)
{
	bool csv = false;
	const char *word, *file = NULL, *folder = NULL;
	char run[RUN_PATH];
	struct err e = ERR_INIT;
	const struct command_option options[] = { { "--csv", &csv, NULL },
						  { "-o", NULL, &file },
						  { "--tensorboard", NULL, &folder },
						  { NULL, NULL, NULL } };
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = command_runs(argc, argv, options, &word, 1);
	if (status)
		return status;
	if (csv == (folder != NULL))
		return command_misuse("export", "choose one of --csv and --tensorboard DIR");
	if (file && !csv)
		return command_misuse("export", "-o FILE is for --csv");
	if (rundir_find(word, run, &e))
		return command_fail(&e);
	if (folder)
		return save_board(run, folder);
	return file ? save_csv(run, file) : print_csv(run);
}
