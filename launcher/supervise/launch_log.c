#include "launcher/supervise/launch_log.h"

#include "launcher/pmix_words.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1000 };

/* clang-format off */

/* Words (pmix_words.c has those about PMIx) of Slurm 20.11 to 25.05 (srun, slurmstepd and their libraries, slurm_errno.c). */
static const struct {
	const char *phrase;
	enum slurm_word said;
} phrases[] = {
	{ "Munge encode failed",                     SLURM_SAID_NO_MUNGE },
	{ "Munge decode failed",                     SLURM_SAID_NO_MUNGE },
	{ "Protocol authentication error",           SLURM_SAID_NO_MUNGE },
	{ "Unable to contact slurm controller",      SLURM_SAID_NO_CONTROLLER },
	{ "Memory required by task is not available", SLURM_SAID_NO_MEMORY },
	{ "has expired",                             SLURM_SAID_EXPIRED },
	{ "Invalid job id specified",                SLURM_SAID_EXPIRED },
	{ "Node failure on",                         SLURM_SAID_NODE_FAILED },
	{ "DUE TO NODE FAILURE",                     SLURM_SAID_NODE_FAILED },
	{ "CANCELLED AT",                            SLURM_SAID_CANCELLED },
	{ "execve():",                               SLURM_SAID_NO_PROGRAM },
};

/* clang-format on */

static bool is_of_slurm(const char *line)
{
	size_t label = strspn(line, "0123456789");
	if (label && !strncmp(line + label, ": ", 2)) /* srun --label */
		line += label + 2;
	return !strncmp(line, "srun: ", 6) || !strncmp(line, "slurmstepd", 10);
}

/* Whether a list such as "0-3,7" has the number. */
static bool list_has(const char *list, int number)
{
	for (const char *at = list; isdigit((unsigned char)*at);) {
		char *end;
		long first = strtol(at, &end, 10), last = first;
		if (*end == '-' && isdigit((unsigned char)end[1]))
			last = strtol(end + 1, &end, 10);
		if (number >= first && number <= last)
			return true;
		at = end + (*end == ',');
	}
	return false;
}

/* The signal whose description, as strsignal() gives it, begins the text; 0: none. */
static int signal_described(const char *text)
{
	for (int n = 1; n < NSIG; n++) {
		const char *words = sigdescr_np(n);
		size_t length = words ? strlen(words) : 0;
		if (length && !strncmp(text, words, length) &&
		    (!text[length] || text[length] == ' '))
			return n;
	}
	return 0;
}

/* "srun: error: n1: tasks 0-1: Killed" */
static void read_task(const char *line, int rank, struct launch_log *out)
{
	const char *list = strstr(line, ": task");
	if (!list || out->signal || out->status)
		return;
	list += strlen(": task");
	list += strspn(list, "s ");
	const char *end = strstr(list, ": ");
	if (!end || (rank >= 0 && !list_has(list, rank)))
		return;
	out->signal = signal_described(end + 2);
	if (sscanf(end + 2, "Exited with exit code %9d", &out->status) != 1)
		out->status = 0;
	if (!strncmp(end + 2, "Out Of Memory", 13)) {
		out->signal = SIGKILL;
		out->out_of_memory = true;
	}
}

static void read_line(const char *line, int rank, struct launch_log *out)
{
	if (!is_of_slurm(line))
		return;
	for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
		if (strstr(line, phrases[i].phrase) && phrases[i].said > out->said)
			out->said = phrases[i].said;
	if (launcher_says_no_pmix(line) && out->said < SLURM_SAID_NO_PMIX)
		out->said = SLURM_SAID_NO_PMIX;
	if (strstr(line, "oom_kill") || strstr(line, "oom-kill") || strstr(line, "OOM Killed"))
		out->out_of_memory = true;
	read_task(line, rank, out);
}

void supervise_launch_log_read(const char *text, int rank, struct launch_log *out)
{
	char line[LINE];
	*out = (struct launch_log){ .said = SLURM_SAID_NOTHING };
	while (*text) {
		size_t n = strcspn(text, "\n");
		snprintf(line, sizeof line, "%.*s", n < LINE ? (int)n : LINE - 1, text);
		read_line(line, rank, out);
		text += n + (text[n] == '\n');
	}
}
