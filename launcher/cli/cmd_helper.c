/* The hidden command `muster helper`, which launch_slurm starts: launcher/helper/helper.h. */
#include "launcher/cli/command.h"

#include "launcher/helper/helper.h"
#include "launcher/status.h"

static const char help_text[] =
	"muster helper — start the agents of one node of a Slurm allocation\n"
	"\n"
	"SYNOPSIS\n"
	"  muster helper\n"
	"\n"
	"DESCRIPTION\n"
	"  muster run starts this command by itself, on each node of the allocation, if Slurm has "
	"no\n"
	"  plugin for PMIx or the job sets launch.pmix = muster. The helper runs a PMIx server for "
	"the\n"
	"  agents of its node, starts them, and reports how each of them ended.\n"
	"\n"
	"OPTIONS\n"
	"  There are none: the supervisor's address and secret come from the environment, and what "
	"to\n"
	"  start comes from the supervisor.\n"
	"\n"
	"EXAMPLES\n"
	"  There are none: see muster run.\n"
	"\n"
	"EXIT STATUS\n"
	"  0   all agents of the node have ended\n"
	"  2   usage\n"
	"  3   the agents cannot be started\n";

int cmd_helper(int argc, char **argv)
{
	struct err e = ERR_INIT;
	if (command_wants_help(argc, argv))
		return command_help(help_text);
	if (argc > 1)
		return command_misuse(argv[0], "it has no options");
	return helper_run(&e) ? command_fail(&e) : STATUS_DONE;
}
