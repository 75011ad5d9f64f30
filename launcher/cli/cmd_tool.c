/*
 * cmd_tool: ckpt, data, bench, generate and trace. muster-agent runs them, because it contains the
 * code for checkpoints, data and kernels. Inside a Slurm allocation `bench comm` runs on all
 * devices of the allocation, unless its options select ranks of this host.
 */
#include "launcher/agent_path.h"
#include "launcher/cli/command.h"
#include "launcher/slurm/slurm.h"
#include "launcher/supervise/supervise.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_prefix(const char *word, const char *with)
{
	return !strncmp(word, with, strlen(with));
}

static bool runs_on_allocation(int argc, char **argv)
{
	const char *job = getenv("SLURM_JOB_ID");
	if (!job || !*job || argc < 2 || strcmp(argv[0], "bench") || strcmp(argv[1], "comm") ||
	    command_wants_help(argc, argv))
		return false;
	for (int i = 2; i < argc; i++)
		if (has_prefix(argv[i], "--ranks") || has_prefix(argv[i], "--hosts") ||
		    has_prefix(argv[i], "--calibrate"))
			return false;
	return true;
}

int cmd_tool(int argc, char **argv)
{
	struct err e = ERR_INIT;
	char agent[PATH_MAX];
	if (launcher_agent_path(agent, sizeof agent, &e))
		return command_fail(&e);
	signal(SIGPIPE, SIG_DFL);
	if (runs_on_allocation(argc, argv)) {
		slurm_tool(agent, argc, argv, &e);
		return command_fail(&e);
	}
	char **words = calloc((size_t)argc + 2, sizeof *words);
	if (!words) {
		err_set(&e, ERR_NOMEM, "no memory to start %s", agent);
		return command_fail(&e);
	}
	words[0] = agent;
	memcpy(words + 1, argv, (size_t)argc * sizeof *words);
	execv(agent, words);
	err_errno(&e, ERR_NOTFOUND, "%s: cannot execute", agent);
	free(words);
	return command_fail(&e);
}
