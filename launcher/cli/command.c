#include "launcher/cli/command.h"

#include "base/human.h"
#include "launcher/cli/output.h"
#include "launcher/cli/program_words.h"
#include "launcher/status.h"
#include "plan/spec/job/job.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool command_wants_help(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return true;
	return false;
}

int command_help(const char *text)
{
	fputs(text, stdout);
	return command_output_end(STATUS_DONE);
}

int command_fail(const struct err *e)
{
	char line[sizeof e->text];
	const char *at = e->text;
	fputs("muster: ", stderr);
	do {
		size_t n = strcspn(at, "\n");
		snprintf(line, sizeof line, "%.*s", (int)n, at);
		human_plain(line);
		fprintf(stderr, "%s\n", line);
		at += n + (at[n] == '\n');
	} while (*at);
	return e->code == ERR_USAGE ? STATUS_USAGE : STATUS_CANNOT_START;
}

void command_lines(const char *before, const char *text)
{
	for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
		char line[2048]; /* part of it may come from Slurm or a server */
		snprintf(line, sizeof line, "%.*s", (int)strcspn(text, "\n"), text);
		human_plain(line);
		fprintf(stderr, "muster: %s%s\n", before, line);
	}
}

int command_misuse(const char *command, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	fprintf(stderr, "muster %s: %s; see muster %s --help\n", command, text, command);
	return STATUS_USAGE;
}

/* Sets the option at argv[*i] and steps over its value. Returns 0 or an exit status. */
static int set_option(int argc, char **argv, int *i, const struct command_option *o)
{
	const char *word = argv[*i];
	while (o && o->name && strcmp(word, o->name))
		o++;
	if (!o || !o->name)
		return command_misuse(argv[0], "\"%s\" is not an option", word);
	if (o->flag)
		*o->flag = true;
	if (!o->value)
		return 0;
	if (*i + 1 >= argc)
		return command_misuse(argv[0], "%s needs a value", word);
	*o->value = argv[++*i];
	return 0;
}

int command_options(int argc, char **argv, const struct command_option *options)
{
	int rc = 0;
	for (int i = 1; i < argc && !rc; i++)
		rc = set_option(argc, argv, &i, options);
	return rc;
}

int command_optional_word(int argc, char **argv, const struct command_option *options,
			  const char **word)
{
	int rc = 0;
	*word = NULL;
	for (int i = 1; i < argc && !rc; i++) {
		if (argv[i][0] == '-')
			rc = set_option(argc, argv, &i, options);
		else if (!*word)
			*word = argv[i];
		else
			rc = command_misuse(argv[0], "\"%s\" is one word too many", argv[i]);
	}
	return rc;
}

int command_runs(int argc, char **argv, const struct command_option *options, const char **runs,
		 int n)
{
	int found = 0, rc = 0;
	for (int i = 1; i < argc && !rc; i++) {
		if (argv[i][0] == '-')
			rc = set_option(argc, argv, &i, options);
		else if (found < n)
			runs[found++] = argv[i];
		else
			rc = command_misuse(argv[0], "\"%s\" is one word too many", argv[i]);
	}
	if (rc || found == n)
		return rc;
	return command_misuse(argv[0], n == 1 ? "a run is missing: its folder or its name"
					      : "two runs are needed: their folders or names");
}

/* Sorts the words after the command's name into options, a job file and `section.key=value`. */
static int sort_words(int argc, char **argv, const struct command_option *options,
		      const char **file, const char **words, int *n)
{
	int rc = 0;
	for (int i = 1; i < argc && !rc; i++) {
		if (argv[i][0] == '-')
			rc = set_option(argc, argv, &i, options);
		else if (!*file && !strchr(argv[i], '='))
			*file = argv[i];
		else if (!strchr(argv[i], '='))
			rc = command_misuse(
				argv[0],
				"\"%s\" is neither an option nor section.key=value, and "
				"the job file is %s already",
				argv[i], *file);
		else
			words[(*n)++] = argv[i];
	}
	return rc;
}

static int load_job(const char *file, const char **words, int n, enum command_use use,
		    struct job *job)
{
	struct err e = ERR_INIT;
	if (!job_load(file, words, n, job, &e) &&
	    (use != TO_RUN || !job_check_run(job, file ? file : "command line", &e)))
		return 0;
	command_fail(&e);
	/* Any error of the job file is a usage error: also a missing file. */
	return STATUS_USAGE;
}

int command_job(int argc, char **argv, const struct command_option *options, enum command_use use,
		struct job *job)
{
	const char *file = NULL;
	const char **words = calloc((size_t)argc + JOB_AUTO_MAX + 1, sizeof *words);
	int n = 0, rc = words ? 0 : STATUS_CANNOT_START;
	for (int i = 1; i < argc && !rc; i++)
		if ((!strcmp(argv[i], "--auto") || !strcmp(argv[i], "--gpus")) && !n)
			n = job_auto_words(words);
	if (!rc)
		rc = sort_words(argc, argv, options, &file, words, &n);
	if (!rc && !file)
		rc = command_misuse(argv[0], "a job file is missing");
	if (!rc)
		rc = load_job(file, words, n, use, job);
	free(words);
	return rc;
}

/* Loads the job again with the word for so many tasks, which depends on the other degrees. */
static int set_tasks(const char *tasks, const char *file, const char **words, int n,
		     struct job *job)
{
	char word[PROGRAM_TASKS];
	struct err e = ERR_INIT;
	for (int i = 0; i < n; i++)
		if (!strncmp(words[i], "parallel.dp=", 12))
			return command_misuse("run",
					      "-n and %s both say how many tasks there are; "
					      "leave one out",
					      words[i]);
	if (command_program_tasks(tasks, job, word, &e))
		return command_fail(&e);
	words[n] = word;
	return load_job(file, words, n + 1, TO_RUN, job);
}

/* program: the words after "--"; NULL: there is no "--". There is room for PROGRAM_WORDS words before
 * `words`, and for one behind them. */
static int load_run_job(char *const *program, const char *tasks, const char *file,
			const char **words, int n, struct job *job)
{
	struct program_words own = { .n = 0 };
	struct err e = ERR_INIT;
	if (program && command_program_words(program, file != NULL, &own, &e))
		return command_fail(&e);
	/* The program's words come first: what a person gives replaces them. */
	const char **from = words - own.n;
	for (int i = 0; i < own.n; i++)
		from[i] = own.list[i];
	int rc = load_job(file, from, own.n + n, TO_RUN, job);
	if (!rc && tasks && !job_has_program(job))
		rc = command_misuse("run", "-n is for a program; set the degrees in [parallel]");
	else if (!rc && tasks)
		rc = set_tasks(tasks, file, from, own.n + n, job);
	command_program_words_free(&own);
	return rc;
}

int command_run_job(int argc, char **argv, const struct command_option *options, const char **tasks,
		    struct job *job)
{
	const char *file = NULL;
	int before = 1, n = 0;
	while (before < argc && strcmp(argv[before], "--"))
		before++;
	const char **words = calloc((size_t)argc + PROGRAM_WORDS + 1, sizeof *words);
	if (!words)
		return STATUS_CANNOT_START;
	int rc = sort_words(before, argv, options, &file, words + PROGRAM_WORDS, &n);
	if (!rc && before == argc && !file)
		rc = command_misuse(argv[0], "a job file is missing");
	if (!rc)
		rc = load_run_job(before < argc ? argv + before + 1 : NULL, *tasks, file,
				  words + PROGRAM_WORDS, n, job);
	free(words);
	return rc;
}

/* The Levenshtein distance of two words, of at most 32 characters each. */
static int edit_distance(const char *a, const char *b)
{
	enum { MOST = 32 };
	int row[MOST + 1], n = (int)strnlen(b, MOST);
	for (int j = 0; j <= n; j++)
		row[j] = j;
	for (int i = 1; *a && i <= MOST; a++, i++) {
		int corner = row[0];
		row[0] = i;
		for (int j = 1; j <= n; j++) {
			int up = row[j], best = corner + (*a != b[j - 1]);
			if (up + 1 < best)
				best = up + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			corner = up;
			row[j] = best;
		}
	}
	return row[n];
}

const char *command_nearest(const char *word, const char *const *list)
{
	const char *best = NULL;
	int least = 3;
	for (; *list; list++) {
		int d = edit_distance(word, *list);
		if (d < least) {
			least = d;
			best = *list;
		}
	}
	return best;
}
