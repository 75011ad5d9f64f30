/*
 * at_call — runs a command, and at one of the system calls that its processes make kills them, for the
 * bats files. tests/unit/agent/crash.h describes how calls count.
 *
 *     at_call SEEN PATH WHO WHAT NUMBER COMMAND...
 *         The calls of a thread count from the first one that names a path with PATH in it, in the
 *         process WHO, in the order in which they name it (0 is the first; -1: all). At call NUMBER,
 *         WHAT is done: all (every process is killed), one (that process is killed), or count
 *         (nothing). The file SEEN gets a line: how many calls counted, 1 if the call was reached
 *         (otherwise 0), and the call. Exits as the command does, with 128 + its signal if one ended
 *         it, or 77 if processes cannot be followed here.
 */
#include "tests/unit/agent/crash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST_WORD = 6, NOT_POSSIBLE = 77 };

static const struct {
	const char *word;
	enum crash_what what;
} words[] = { { "all", CRASH_ALL }, { "one", CRASH_ONE }, { "count", CRASH_NOTHING } };

static int usage(void)
{
	fputs("usage: at_call SEEN PATH WHO all|one|count NUMBER COMMAND...\n", stderr);
	return 2;
}

static int exec_command(void *arg)
{
	char **argv = arg;
	execvp(argv[0], argv);
	perror(argv[0]);
	return 127;
}

int main(int argc, char **argv)
{
	struct crash_plan plan = { 0 };
	struct crash_seen seen;
	size_t i = 0;
	if (argc <= FIRST_WORD)
		return usage();
	while (i < sizeof words / sizeof *words && strcmp(words[i].word, argv[4]))
		i++;
	if (i == sizeof words / sizeof *words)
		return usage();
	plan.what = words[i].what;
	plan.path = argv[2];
	plan.who = atoi(argv[3]);
	plan.at = atol(argv[5]);
	if (!crash_possible() || crash_run(exec_command, argv + FIRST_WORD, &plan, &seen))
		return NOT_POSSIBLE;
	FILE *f = fopen(argv[1], "w");
	if (!f || fprintf(f, "%ld %d %s\n", seen.count, seen.hit, seen.call) < 0 || fclose(f)) {
		perror(argv[1]);
		return 1;
	}
	return WIFSIGNALED(seen.status) ? 128 + WTERMSIG(seen.status) : WEXITSTATUS(seen.status);
}
