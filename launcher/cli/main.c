/* muster — what a person types. */
#include "base/process.h"
#include "launcher/cli/command.h"
#include "launcher/supervise/supervise.h"
#include "base/version.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int cmd_help(int argc, char **argv);

static const struct command {
	const char *name;
	int (*fn)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{ "run", cmd_run, "train: in a Slurm allocation on its nodes, else on this host" },
	{ "submit", cmd_submit, "hand the job to Slurm's queue" },
	{ "plan", cmd_plan, "show layout, memory and predicted step time; start nothing" },
	{ "topo", cmd_topo, "show what the machines are" },
	{ "doctor", cmd_doctor, "say what this machine lacks, and what mends it" },
	{ "ckpt", cmd_tool, "list, show, verify, import and export checkpoints" },
	{ "data", cmd_tool, "pack text into token files; show and audit them" },
	{ "generate", cmd_tool, "go on with a text, by a checkpoint's model" },
	{ "trace", cmd_tool, "say who held up a run's communication" },
	{ "bench", cmd_tool, "measure communication, matrix products, training steps" },
	{ "help", cmd_help, "explain a command" },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct command *find(const char *name)
{
	for (int i = 0; i < COMMANDS; i++)
		if (!strcmp(name, commands[i].name))
			return &commands[i];
	return NULL;
}

static int unknown(const char *name)
{
	const char *names[COMMANDS + 1] = { NULL };
	for (int i = 0; i < COMMANDS; i++)
		names[i] = commands[i].name;
	const char *near = command_nearest(name, names);
	fprintf(stderr, "muster: \"%s\" is no command; ", name);
	if (near)
		fprintf(stderr, "did you mean \"%s\"?\n", near);
	else
		fprintf(stderr, "muster help lists them\n");
	return STATUS_USAGE;
}

static int overview(void)
{
	printf("muster — places the ranks of a parallel Transformer training job and keeps them "
	       "going\n"
	       "\n"
	       "SYNOPSIS\n"
	       "  muster COMMAND [ARGUMENT …]\n"
	       "\n"
	       "COMMANDS\n");
	for (int i = 0; i < COMMANDS; i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].summary);
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
	       "  0 done; 1 the job failed; 2 usage or job file; 3 cannot start here; 4 gave up "
	       "after restarts;\n"
	       "  75 stopped on purpose, the same command goes on\n");
	return fflush(stdout) ? STATUS_FAILED : STATUS_DONE;
}

static int cmd_help(int argc, char **argv)
{
	if (argc < 2 || command_wants_help(argc, argv))
		return overview();
	const struct command *c = find(argv[1]);
	if (!c)
		return unknown(argv[1]);
	char *words[] = { argv[1], "--help", NULL };
	return c->fn(2, words);
}

int main(int argc, char **argv)
{
	process_begin();
	setlocale(LC_CTYPE, "");
	signal(SIGPIPE, SIG_IGN); /* a reader that goes away must not end a run */
	if (argc < 2) {
		overview();
		return STATUS_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return overview();
	if (!strcmp(argv[1], "--version")) {
		printf("muster %s\n", MUSTER_VERSION);
		return STATUS_DONE;
	}
	const struct command *c = find(argv[1]);
	return c ? c->fn(argc - 1, argv + 1) : unknown(argv[1]);
}
