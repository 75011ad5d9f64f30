/* muster top: the state of a run, live. */
#include "launcher/cli/command.h"
#include "launcher/console/look.h"
#include "launcher/rundir/find.h"
#include "launcher/status.h"
#include "launcher/top/top.h"

#include <signal.h>
#include <unistd.h>

static const char help[] =
	"muster top — watch a run, live\n"
	"\n"
	"SYNOPSIS\n"
	"  muster top RUN\n"
	"\n"
	"DESCRIPTION\n"
	"  RUN is a run folder, or the name of a run in $MUSTER_RUNS or runs/.\n"
	"  Fills the terminal with the state of the run and renews it every second: progress, "
	"speed\n"
	"  against the prediction, goodput, checkpoints, the time limit, warnings, the curves of\n"
	"  loss and tokens per second over the last 600 steps, and a row per rank or per node. "
	"The\n"
	"  supervisor of the run answers; when it is gone, the last state stays on the screen "
	"with\n"
	"  the reason, and goes on when the run does. A run that has ended is shown from its "
	"files.\n"
	"  It works over ssh, from 40 x 10 characters on; without UTF-8 it draws in ASCII, and "
	"with\n"
	"  NO_COLOR in the environment without colours. Only the owner of a run can see it.\n"
	"\n"
	"COLUMNS\n"
	"  RANK, NODE   the rank and its node; of a node: how many ranks it has\n"
	"  tp.pp.dp     its place in the layout: one number for each degree above 1\n"
	"  PHASE, STEP  what it does, and in which step; of a node: the lowest step\n"
	"  OWN, WAIT    seconds of a step in which it waits for no other rank, and in which it "
	"does;\n"
	"               of a node: the longest\n"
	"  MEMORY       peak device memory; of a node: the greatest of a rank\n"
	"  NOTES        why it stands out: silent, slow, no progress, not connected\n"
	"  Columns that do not fit, or that nobody has numbers for, are left out.\n"
	"\n"
	"KEYS\n"
	"  up, down, PgUp, PgDn, Home, End  choose a row\n"
	"  Enter  the rank's numbers and the end of its log (PgUp: earlier lines); a node's ranks\n"
	"  Esc    back; in the table: all rows again\n"
	"  n      a row per node, or per rank\n"
	"  s, r   sort by the next column; the other way round\n"
	"  /      show the nodes whose name has the text\n"
	"  w      all warnings, and what stands out\n"
	"  ?      help\n"
	"  q      quit; so does Ctrl-C. The run goes on\n"
	"\n"
	"EXAMPLES\n"
	"  muster top demo\n"
	"  ssh -t login muster top /scratch/runs/demo\n"
	"\n"
	"EXIT STATUS\n"
	"  0    the person quit\n"
	"  2    usage; or stdin or stdout is no terminal: use muster status\n"
	"  3    there is no such run, its state cannot be read, or the terminal cannot be used\n"
	"  143  SIGTERM; likewise 128 + the number of another signal\n";

/* Ends as the signal does, for the shell that has sent it. */
static int end_by(int sig)
{
	signal(sig, SIG_DFL);
	raise(sig);
	return STATUS_FAILED;
}

/* A word that names no run, or another user's, is refused before the screen is taken. */
static int check(const char *run, struct err *e)
{
	struct look l;
	if (console_look(run, LOOK_QUICK, &l, e))
		return -1;
	console_look_fini(&l);
	return 0;
}

int cmd_top(int argc, char **argv)
{
	const char *word = NULL;
	const struct command_option options[] = { { NULL, NULL, NULL } };
	char run[RUN_PATH];
	int sig = 0;
	struct err e = ERR_INIT;
	if (command_wants_help(argc, argv))
		return command_help(help);
	int status = command_run_word(argc, argv, options, &word);
	if (status)
		return status;
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return command_misuse(
			"top", "it needs a terminal; without one use muster status %s", word);
	if (rundir_find(word, run, &e) || check(run, &e) || top_show(run, &sig, &e))
		return command_fail(&e);
	return sig ? end_by(sig) : STATUS_DONE;
}
