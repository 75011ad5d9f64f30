/* ckpt, data, bench — run by the agent's program, which has the checkpoint, data and kernel code. */
#include "launcher/command.h"
#include "launcher/supervise/supervise.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cmd_tool(int argc, char **argv)
{
	struct err e = ERR_INIT;
	char agent[PATH_MAX];
	if (command_agent(agent, sizeof agent, &e))
		return command_fail(&e);
	char **words = calloc((size_t)argc + 2, sizeof *words);
	if (!words) {
		err_set(&e, ERR_NOMEM, "no memory to start %s", agent);
		return command_fail(&e);
	}
	words[0] = agent;
	memcpy(words + 1, argv, (size_t)argc * sizeof *words);
	signal(SIGPIPE, SIG_DFL);
	execv(agent, words);
	err_errno(&e, ERR_NOTFOUND, "%s: cannot execute", agent);
	free(words);
	return command_fail(&e);
}
