#include "agent/task/keeper.h"
#include "agent/tools/tools.h"

#include <string.h>

static const char page[] =
	"muster-agent keep — start a program, and end all its processes with it\n"
	"\n"
	"SYNOPSIS\n"
	"  muster-agent keep\n"
	"\n"
	"DESCRIPTION\n"
	"  An agent starts it, with a socket and a description of the program as descriptors. It "
	"ends\n"
	"  what is left of the program's processes when the program or the agent has ended.\n"
	"\n"
	"EXIT STATUS\n"
	"  0  the program has ended, or it could not be executed\n"
	"  2  usage: no agent started it\n";

static int keep_main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--help"))
		return tool_option(&tool_keep, TOOL_HELP, argv);
	if (argc != 1 || task_keeper_main())
		return tool_usage(&tool_keep, "only an agent can start it");
	return TOOL_OK;
}

const struct tool tool_keep = { "keep", NULL, keep_main,
				"start a program, and end all its processes with it", page };
