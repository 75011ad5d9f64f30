/* The hidden command `muster guard`, which the supervisor starts: launcher/slurm/guard.h. */
#include "launcher/cli/command.h"

#include "launcher/slurm/guard.h"
#include "launcher/status.h"

#include <stdlib.h>
#include <string.h>

static const char help_text[] =
	"muster guard — end a Slurm job whose supervisor is gone\n"
	"\n"
	"SYNOPSIS\n"
	"  muster guard --run FOLDER --number N [--requeue] --patience SECONDS\n"
	"\n"
	"DESCRIPTION\n"
	"  muster run starts this command by itself, on another node than its own. If the batch\n"
	"  host is lost, the guard requeues the job, or cancels it. It writes what it sees and\n"
	"  does to FOLDER/logs/guard.log.\n"
	"\n"
	"OPTIONS\n"
	"  --run FOLDER        the run folder\n"
	"  --number N          the number of the guard within the run\n"
	"  --requeue           requeue the job rather than cancel it\n"
	"  --patience SECONDS  the time for which the supervisor may be stopped\n"
	"\n"
	"EXAMPLES\n"
	"  There are none: the supervisor's address and secret come from the environment.\n"
	"\n"
	"EXIT STATUS\n"
	"  0   the run has released the guard, or the guard has ended the job\n"
	"  2   usage\n"
	"  3   the guard cannot start\n";

static double parse_seconds(const char *word)
{
	char *end;
	double value = strtod(word, &end);
	return *word && !*end && value >= 0 && value <= 1e6 ? value : -1;
}

int cmd_guard(int argc, char **argv)
{
	const char *run = NULL, *number = "1", *patience = "600", *job = getenv("SLURM_JOB_ID"),
		   *node = getenv("SLURMD_NODENAME");
	struct guard_process_options o = { .limits = GUARD_LIMITS };
	const struct command_option options[] = { { "--run", NULL, &run },
						  { "--number", NULL, &number },
						  { "--requeue", &o.requeue, NULL },
						  { "--patience", NULL, &patience },
						  { NULL, NULL, NULL } };
	struct err e = ERR_INIT;
	if (command_wants_help(argc, argv))
		return command_help(help_text);
	int status = command_options(argc, argv, options);
	if (status)
		return status;
	o.run_dir = run;
	o.job = job;
	o.node = node ? node : "";
	o.number = atoi(number);
	o.limits.patience = parse_seconds(patience);
	if (!run || !job || o.limits.patience < 0)
		return command_misuse(argv[0], "it needs --run, --patience and a Slurm job");
	return slurm_guard_run(&o, &e) ? command_fail(&e) : STATUS_DONE;
}
