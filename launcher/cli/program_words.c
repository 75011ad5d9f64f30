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

/* Programs whose first word without '-' is the script; python3.11 counts as python. */
static bool is_interpreter(const char *name)
{
	static const char *const names[] = { "python", "bash", "sh", "uv", "env", "julia", "perl" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		size_t n = strlen(names[i]);
		if (!strncmp(name, names[i], n) && !name[n + strspn(name + n, "0123456789.")])
			return true;
	}
	return false;
}

/* Whether the next word is the text of a script, as after -c or -ec. */
static bool gives_script(const char *option)
{
	return *option == '-' && option[1] != '-' && option[strlen(option) - 1] == 'c';
}

/* Whether env or uv takes the word for itself: a variable, run, or another interpreter. */
static bool comes_before_script(const char *word)
{
	return strchr(word, '=') || !strcmp(word, "run") || is_interpreter(word);
}

/* The word that names the run. */
static const char *choose_word(char *const *argv)
{
	if (!is_interpreter(base_of(argv[0])))
		return argv[0];
	for (int i = 1; argv[i] && !gives_script(argv[i]); i++) {
		if (!strcmp(argv[i], "-m") && argv[i + 1])
			return argv[i + 1];
		if (argv[i][0] != '-' && !comes_before_script(argv[i]))
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
