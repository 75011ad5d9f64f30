#include "launcher/cli/program_words.h"

#include "base/buf.h"
#include "base/words.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TASKS_MOST = 1000000 };

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}

/* A program whose first word that is no option is the script. */
struct interpreter {
	const char *name;
	/* the last letter of options that the text of a script follows, as -c or -ec */
	const char *text;
	const char *valued; /* options that a value follows, each between blanks */
};

static const struct interpreter interpreters[] = {
	{ "python", "c", " -W -X --check-hash-based-pycs " },
	{ "bash", "c", " -o +o -O +O --init-file --rcfile " },
	{ "sh", "c", " -o +o " },
	{ "uv", "",
	  " -p --python --with --with-editable --with-requirements --extra --group --only-group "
	  "--package --project --directory --env-file --index --cache-dir --config-file " },
	{ "env", "", " -u --unset -C --chdir " },
	{ "julia", "eE", " -t --threads -p --procs -L --load -J --sysimage -C --cpu-target " },
	{ "perl", "eE", " -I " },
};

/* python3.11 counts as python. NULL: it is none. */
static const struct interpreter *interpreter_of(const char *name)
{
	for (size_t i = 0; i < sizeof interpreters / sizeof *interpreters; i++) {
		size_t n = strlen(interpreters[i].name);
		if (!strncmp(name, interpreters[i].name, n) &&
		    !name[n + strspn(name + n, "0123456789.")])
			return &interpreters[i];
	}
	return NULL;
}

static bool gives_script(const struct interpreter *of, const char *option)
{
	return *option == '-' && option[1] && option[1] != '-' &&
	       strchr(of->text, option[strlen(option) - 1]);
}

static bool takes_value(const struct interpreter *of, const char *option)
{
	size_t n = strlen(option);
	const char *at = *option == '-' || *option == '+' ? of->valued : NULL;
	while (at && (at = strstr(at, option)) && (at[-1] != ' ' || at[n] != ' '))
		at += n;
	return at;
}

/* env sets a variable that it is given, and uv takes the word run; neither is the script. */
static bool comes_before_script(const char *word)
{
	return strchr(word, '=') || !strcmp(word, "run");
}

/* The word that names the run. */
static const char *choose_word(char *const *argv)
{
	const struct interpreter *of = interpreter_of(base_of(argv[0])), *next;
	if (!of)
		return argv[0];
	for (int i = 1; argv[i] && !gives_script(of, argv[i]); i++) {
		if (!strcmp(argv[i], "-m") && argv[i + 1])
			return argv[i + 1];
		if (takes_value(of, argv[i]) && argv[i + 1])
			i++;
		else if ((next = interpreter_of(base_of(argv[i]))))
			of = next;
		else if (argv[i][0] != '-' && !comes_before_script(argv[i]))
			return argv[i];
	}
	return argv[0];
}

void command_program_name(char *const *argv, char *out, int size)
{
	const char *word = base_of(choose_word(argv)), *dot = strrchr(word, '.');
	static const char *const endings[] = { ".py", ".sh", ".jl", ".pl" };
	size_t n = strlen(word);
	for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
		if (!strcmp(dot, endings[i]) && dot > word)
			n = (size_t)(dot - word);
	snprintf(out, (size_t)size, "%.*s", (int)n, word);
	for (char *at = out; *at; at++)
		if (!isalnum((unsigned char)*at) && !strchr("._-", *at))
			*at = '-';
	if (!isalnum((unsigned char)*out))
		snprintf(out, (size_t)size, "program");
}

__attribute__((format(printf, 3, 4))) static int add_word(struct program_words *w, struct err *e,
							  const char *fmt, ...)
{
	va_list ap;
	char *word = NULL;
	va_start(ap, fmt);
	if (vasprintf(&word, fmt, ap) < 0)
		word = NULL;
	va_end(ap);
	if (!word)
		return err_set(e, ERR_NOMEM, "no memory for the command line");
	w->list[w->n++] = word;
	return 0;
}

static int add_program(char *const *argv, struct program_words *w, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = words_write(argv, &text) ? err_set(e, ERR_NOMEM, "no memory for the command line")
					  : add_word(w, e, "job.program=%s", buf_str(&text));
	buf_fini(&text);
	return rc;
}

/* Without a probe of the hardware, which takes longer. */
static bool has_gpus(void)
{
	return !access("/dev/nvidiactl", F_OK) || getenv("SLURM_JOB_GPUS") || getenv("SLURM_GPUS");
}

int command_program_words(char *const *argv, bool file, struct program_words *out, struct err *e)
{
	char name[200];
	*out = (struct program_words){ .n = 0 };
	if (!argv[0])
		return err_set(
			e, ERR_USAGE,
			"no program follows \"--\"; write such as muster run -n 8 -- python3 "
			"train.py");
	command_program_name(argv, name, sizeof name);
	if (add_program(argv, out, e) || (!file && add_word(out, e, "job.name=%s", name)) ||
	    (!file && has_gpus() && add_word(out, e, "job.device=cuda"))) {
		command_program_words_free(out);
		return -1;
	}
	return 0;
}

void command_program_words_free(struct program_words *w)
{
	for (int i = 0; i < w->n; i++)
		free(w->list[i]);
	w->n = 0;
}

int command_program_tasks(const char *tasks, const struct job *job, char out[PROGRAM_TASKS],
			  struct err *e)
{
	char *end;
	errno = 0;
	long long n = strtoll(tasks, &end, 10);
	long long replica = job->parallel.tp * job->parallel.cp * job->parallel.pp;
	if (errno || end == tasks || *end || n < 1 || n > TASKS_MOST)
		return err_set(e, ERR_USAGE, "-n: \"%s\" is not a number of tasks from 1 to %d",
			       tasks, TASKS_MOST);
	if (n % replica)
		return err_set(e, ERR_USAGE,
			       "-n: %lld tasks are no multiple of tp × cp × pp = %lld; use %lld", n,
			       replica, n < replica ? replica : n / replica * replica);
	snprintf(out, PROGRAM_TASKS, "parallel.dp=%lld", n / replica);
	return 0;
}
