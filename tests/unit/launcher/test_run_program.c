/* A program on the command line of `muster run`: the words that it becomes, and the number of tasks. */
#include "launcher/cli/command.h"
#include "launcher/cli/program_words.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct job job; /* too large for a small stack */

static void a_run_is_named_after_the_script(void **state)
{
	static const struct {
		const char *words[8], *name;
	} rows[] = {
		{ { "python3", "train.py", "--lr", "1" }, "train" },
		{ { "/usr/bin/python3.11", "-u", "src/train.v2.py" }, "train.v2" },
		{ { "python", "-m", "pkg.train" }, "pkg.train" },
		{ { "uv", "run", "python", "a.py" }, "a" },
		{ { "./bench" }, "bench" },
		{ { "/opt/x/run-all.sh" }, "run-all" },
		{ { "bash", "job.sh" }, "job" },
		{ { "bash" }, "bash" },
		{ { "sh", "-c", "echo hi; sleep 1" }, "sh" },
		{ { "bash", "-ec", "true" }, "bash" },
		{ { "python3", "-c", "print(1)" }, "python3" },
		{ { "env.py" }, "env" },
		{ { "env", "A=1", "python3", "a.py" }, "a" },
		{ { "env", "-u", "A", "python3", "-X", "dev", "a.py" }, "a" },
		{ { "python3", "-W", "ignore", "train.py" }, "train" },
		{ { "python3", "-Wignore", "-u", "train.py" }, "train" },
		{ { "uv", "run", "--python", "3.11", "train.py" }, "train" },
		{ { "uv", "run", "--python=3.11", "python", "-X", "dev", "b.py" }, "b" },
		{ { "bash", "-o", "pipefail", "job.sh" }, "job" },
		{ { "perl", "-e", "print 1" }, "perl" },
		{ { "env", "/usr/bin/python3", "a.py" }, "a" },
		{ { "env", " -u ", "" }, "program" },
		{ { "python3", "-W" }, "python3" },
		{ { "./my prog" }, "my-prog" },
		{ { "..." }, "program" },
		{ { "pythonic", "a.py" }, "pythonic" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char name[200];
		command_program_name((char *const *)(uintptr_t)rows[i].words, name, sizeof name);
		assert_string_equal(name, rows[i].name);
	}
}

static bool has_word(const struct program_words *w, const char *begin)
{
	for (int i = 0; i < w->n; i++)
		if (!strncmp(w->list[i], begin, strlen(begin)))
			return true;
	return false;
}

static void a_program_becomes_words_of_a_job(void **state)
{
	char *const argv[] = { "sh", "-c", "echo $RANK", NULL }, *const none[] = { NULL };
	struct program_words w;
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(command_program_words(argv, false, &w, &e), 0);
	assert_string_equal(w.list[0], "job.program=sh -c 'echo $RANK'");
	assert_true(has_word(&w, "job.name=sh"));
	command_program_words_free(&w);
	/* a job file names the run and the device */
	assert_int_equal(command_program_words(argv, true, &w, &e), 0);
	assert_int_equal(w.n, 1);
	command_program_words_free(&w);
	assert_int_equal(command_program_words(none, false, &w, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "no program follows \"--\""));
}

static void the_degrees_divide_the_tasks(void **state)
{
	static const struct {
		const char *tasks;
		int tp, pp;
		const char *word; /* or the error */
	} rows[] = {
		{ "8", 1, 1, "parallel.dp=8" },
		{ "8", 4, 1, "parallel.dp=2" },
		{ "8", 4, 2, "parallel.dp=1" },
		{ "100000", 8, 1, "parallel.dp=12500" },
		{ "6", 4, 1, "6 tasks are no multiple of tp × cp × pp = 4; use 4" },
		{ "3", 4, 1, "3 tasks are no multiple of tp × cp × pp = 4; use 4" },
		{ "0", 1, 1, "\"0\" is not a number of tasks" },
		{ "-1", 1, 1, "\"-1\" is not a number of tasks" },
		{ "8x", 1, 1, "\"8x\" is not a number of tasks" },
		{ "", 1, 1, "\"\" is not a number of tasks" },
		{ "99999999999999999999", 1, 1, "is not a number of tasks" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char word[PROGRAM_TASKS];
		struct err e = ERR_INIT;
		assert_int_equal(job_load(NULL, NULL, 0, &job, &e), 0);
		job.parallel.tp = rows[i].tp;
		job.parallel.pp = rows[i].pp;
		int rc = command_program_tasks(rows[i].tasks, &job, word, &e);
		if (!strstr(rc ? e.text : word, rows[i].word))
			fail_msg("-n %s: %s", rows[i].tasks, rc ? e.text : word);
	}
}

/* Reads the command line after `muster`; what it says on stderr is not shown. */
static int read_line(const char *const *line)
{
	const char *tasks = NULL;
	bool quiet;
	const struct command_option options[] = { { "--quiet", &quiet, NULL },
						  { "-n", NULL, &tasks },
						  { NULL, NULL, NULL } };
	int n = 0, kept = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	while (line[n])
		n++;
	assert_true(kept >= 0 && nowhere >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
	int rc = command_run_job(n, (char **)(uintptr_t)line, options, &tasks, &job);
	assert_true(dup2(kept, STDERR_FILENO) >= 0);
	close(kept);
	close(nowhere);
	return rc;
}

static void what_a_person_gives_counts(void **state)
{
	static const char *const plain[] = { "run", "-n", "4", "--", "./a", "--quiet", "-n", NULL };
	static const char *const named[] = { "run", "job.name=mine", "job.device=cpu",
					     "--",  "./a",           NULL };
	static const char *const degrees[] = { "run", "-n",          "8", "parallel.tp=2",
					       "--",  "parallel.tp", NULL };
	(void)state;
	assert_int_equal(read_line(plain), 0);
	assert_string_equal(job.job.program, "./a --quiet -n");
	assert_int_equal(job.parallel.dp, 4);
	assert_string_equal(job.job.name, "a");
	assert_int_equal(read_line(named), 0);
	assert_string_equal(job.job.name, "mine");
	assert_int_equal(job.job.device, DEVICE_CPU);
	assert_int_equal(job.parallel.dp, 0); /* as many as there are devices */
	assert_int_equal(read_line(degrees), 0);
	assert_int_equal(job.parallel.tp, 2);
	assert_int_equal(job.parallel.dp, 4);
}

static void command_lines_that_contradict_themselves_are_refused(void **state)
{
	static const char *const lines[][8] = {
		{ "run", "--" },
		{ "run", "-n", "4", "parallel.dp=2", "--", "a" },
		{ "run", "-n", "6", "parallel.tp=4", "--", "a" },
		{ "run", "-n", "8", "parallel.tp=2", "parallel.ep=3", "--", "a" },
		{ "run", "-n", "--", "a" }, /* "--" is its value */
		{ "run", "--loud", "--", "a" },
		{ "run", "model.layers=3", "--", "a" },
		{ "run", "no/such.ini", "--", "a" },
		{ "run", "a.ini", "b.ini", "--", "a" },
	};
	static const char *const fits[] = { "run",           "-n", "8", "parallel.tp=2",
					    "parallel.ep=4", "--", "a", NULL };
	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		if (read_line(lines[i]) != 2)
			fail_msg("line %zu is accepted", i);
	assert_int_equal(read_line(fits), 0); /* ep divides dp = 4 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_is_named_after_the_script),
		cmocka_unit_test(a_program_becomes_words_of_a_job),
		cmocka_unit_test(the_degrees_divide_the_tasks),
		cmocka_unit_test(what_a_person_gives_counts),
		cmocka_unit_test(command_lines_that_contradict_themselves_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
