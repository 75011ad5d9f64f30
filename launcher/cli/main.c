/* muster: the program that a person runs. */
#include "base/process.h"
#include "launcher/cli/command.h"
#include "launcher/cli/output.h"
#include "launcher/supervise/supervise.h"
#include "base/version.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
#define COMMAND_ROW(name, function, summary) { name, function, summary },
	COMMANDS(COMMAND_ROW)
#undef COMMAND_ROW
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static const struct command *find_command(const char *name)
{
	for (int i = 0; i < COMMAND_COUNT; i++)
		if (!strcmp(name, commands[i].name))
			return &commands[i];
	return NULL;
}

static int report_unknown(const char *name)
{
	const char *names[COMMAND_COUNT + 1] = { NULL };
	for (int i = 0, n = 0; i < COMMAND_COUNT; i++)
		if (commands[i].summary)
			names[n++] = commands[i].name;
	const char *near = command_nearest(name, names);
	fprintf(stderr, "muster: there is no command \"%s\"; ", name);
	if (near)
		fprintf(stderr, "did you mean \"%s\"?\n", near);
	else
		fprintf(stderr, "muster help lists them\n");
	return STATUS_USAGE;
}

static int print_overview(void)
{
	printf("muster — places the ranks of a parallel Transformer training job and keeps them "
	       "running\n"
	       "\n"
	       "SYNOPSIS\n"
	       "  muster COMMAND [ARGUMENT …]\n"
	       "\n"
	       "COMMANDS\n");
	for (int i = 0; i < COMMAND_COUNT; i++)
		if (commands[i].summary)
			printf("  %-10s %s\n", commands[i].name, commands[i].summary);
	printf("\n"
	       "OPTIONS\n"
	       "  --help, -h    this page; after a command, that command's\n"
	       "  --version     the version\n"
	       "\n"
	       "EXAMPLES\n"
	       "  muster plan job.ini\n"
	       "  muster run job.ini parallel.tp=2 parallel.pp=2\n"
	       "  muster submit job.ini slurm.nodes=4\n"
	       "\n"
	       "EXIT STATUS\n"
	       "  0   done\n"
	       "  1   the job failed\n"
	       "  2   usage or job file\n"
	       "  3   the job cannot start here\n"
	       "  4   gave up after restarts\n"
	       "  75  stopped on purpose; the same command continues the run\n");
	return command_output_end(STATUS_DONE);
}

int cmd_help(int argc, char **argv)
{
	if (argc < 2 || command_wants_help(argc, argv))
		return print_overview();
	const struct command *c = find_command(argv[1]);
	if (!c)
		return report_unknown(argv[1]);
	char *words[] = { argv[1], "--help", NULL };
	return c->run(2, words);
}

int main(int argc, char **argv)
{
	process_begin();
	setlocale(LC_CTYPE, "");
	signal(SIGPIPE, SIG_IGN); /* a closed pipe must not end a run */
	if (argc < 2) {
		print_overview();
		return STATUS_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return print_overview();
	if (!strcmp(argv[1], "--version")) {
		printf("muster %s\n", MUSTER_VERSION);
		return STATUS_DONE;
	}
	const struct command *c = find_command(argv[1]);
	return c ? c->run(argc - 1, argv + 1) : report_unknown(argv[1]);
}
