/* Jobs that run a program of the user: which keys they may have, and the list of [restart] retry_on. */
#include "base/buf.h"
#include "plan/spec/job/job.h"
#include "plan/spec/job/keys.h"
#include "plan/spec/job/retry_on.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PROGRAM "job.program=python3 train.py --lr 1e-4"

static struct job job; /* too large for a small stack */

static int load(const char *word, struct err *e)
{
	const char *const words[] = { PROGRAM, word };
	*e = (struct err)ERR_INIT;
	return job_load(NULL, words, word ? 2 : 1, &job, e);
}

static void a_program_needs_no_data(void **state)
{
	struct err e;
	(void)state;
	assert_int_equal(load(NULL, &e), 0);
	assert_true(job_has_program(&job));
	assert_int_equal(job_steps(&job), 0);
	assert_int_equal(job_check_run(&job, "x.ini", &e), 0);
	assert_int_equal(job_load(NULL, NULL, 0, &job, &e), 0);
	assert_false(job_has_program(&job));
	assert_int_equal(job_steps(&job), job.job.steps);
}

/* A value of the key other than its default. */
static void other_value(const struct job_key *k, char *out, size_t size)
{
	if (k->type == JOB_BOOL)
		snprintf(out, size, "%s", strcmp(k->def, "yes") ? "yes" : "no");
	else if (k->words)
		snprintf(out, size, "%s", strcmp(k->def, k->words[0]) ? k->words[0] : k->words[1]);
	else if (k->type == JOB_INT)
		snprintf(out, size, "%.9g", atof(k->def) == k->lo ? k->lo + 1 : k->lo);
	else if (k->type == JOB_REAL)
		snprintf(out, size, "%.9g", (k->lo + k->hi) / 3);
	else
		snprintf(out, size, "7");
}

/* Whole sections of the built-in training; single keys are in the test after this one. */
static void the_sections_of_training_are_refused_by_name(void **state)
{
	static const char *const sections[] = { "model", "recompute", "offload", "precision",
						"batch", "optimizer", "data",    "checkpoint",
						"plan",  "trace" };
	int refused = 0;
	(void)state;
	for (int i = 0; i < job_n_keys; i++) {
		const struct job_key *k = &job_keys[i];
		char value[64], word[160], want[160];
		struct err e;
		bool ours = false;
		for (size_t s = 0; s < sizeof sections / sizeof *sections; s++)
			ours |= !strcmp(k->section, sections[s]);
		if (!ours)
			continue;
		other_value(k, value, sizeof value);
		snprintf(word, sizeof word, "%s.%s=%s", k->section, k->name, value);
		snprintf(want, sizeof want, "command line: %s.%s: %s = ", k->section, k->name,
			 k->name);
		assert_int_equal(load(word, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		if (strncmp(e.text, want, strlen(want)) ||
		    !strstr(e.text, " has no effect with job.program, because"))
			fail_msg("%s: %s", word, e.text);
		refused++;
	}
	assert_true(refused > 60);
}

struct refused {
	const char *word, *text;
};

static void what_contradicts_a_program_is_refused(void **state)
{
	/* clang-format off */
	static const struct refused cases[] = {
		{ "job.steps=5", "command line: job.steps: steps = 5 has no effect with job.program, because the program decides that by itself; leave it out" },
		{ "parallel.zero=1", "command line: parallel.zero: zero = 1 has no effect with job.program" },
		{ "network.timeout=5", "command line: network.timeout: timeout = 5 has no effect with job.program" },
		{ "launch.speeds=1,2", "command line: launch.speeds: speeds = 1,2 has no effect with job.program" },
		{ "health.slow_policy=exclude", "command line: health.slow_policy: slow_policy = exclude has no effect with job.program" },
		{ "warn.slow=2", "command line: warn.slow: slow = 2 has no effect with job.program" },
		{ "parallel.auto=yes", "muster cannot choose the degrees of a program of your own; give them in [parallel], or leave them out" },
		{ "parallel.tp=auto", "muster cannot choose the degrees" },
		{ "health.bad_numbers=skip", "bad_numbers = skip skips samples" },
		{ "job.program=sh -c 'echo", "command line: job.program: " },
		{ "restart.retry_on=0", "command line: restart.retry_on: \"0\" is neither an exit status from 1 to 255 nor a signal" },
		{ "restart.retry_on=256", "\"256\" is neither" },
		{ "restart.retry_on=9-3", "\"9-3\" is neither" },
		{ "restart.retry_on=any, SIGNONE", "\"SIGNONE\" is neither" },
		{ "restart.retry_on=1x", "\"1x\" is neither" },
		{ "restart.retry_on=,", "the list is empty" },
		{ "program.stop_signal=KILL", "\"KILL\" is not" },
		{ "parallel.pp=3000", "is out of range" },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct err e;
		assert_int_equal(load(cases[i].word, &e), -1);
		assert_int_equal(e.code, ERR_USAGE);
		if (!strstr(e.text, cases[i].text))
			fail_msg("%s: %s", cases[i].word, e.text);
	}
}

static void without_a_program_its_keys_are_refused(void **state)
{
	static const char *const words[] = { "program.visible=own",     "program.show=all",
					     "program.stop_signal=INT", "program.stop_grace=5",
					     "program.exit_timeout=0",  "program.silence=60",
					     "restart.retry_on=1" };
	(void)state;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		struct err e = ERR_INIT;
		assert_int_equal(job_load(NULL, &words[i], 1, &job, &e), -1);
		if (!strstr(e.text, "has no effect without a program; set job.program"))
			fail_msg("%s: %s", words[i], e.text);
		assert_int_equal(load(words[i], &e), 0);
	}
}

/* The program has experts and stages that the built-in model lacks. */
static void degrees_need_no_model(void **state)
{
	struct err e = ERR_INIT;
	const char *const good[] = { PROGRAM, "parallel.tp=3", "parallel.pp=40", "parallel.dp=6",
				     "parallel.ep=6" };
	const char *const bad[] = { PROGRAM, "parallel.dp=6", "parallel.ep=4" };
	(void)state;
	assert_int_equal(job_load(NULL, good, 5, &job, &e), 0);
	assert_int_equal(job_load(NULL, bad, 3, &job, &e), -1);
	assert_string_equal(e.text,
			    "command line: parallel.ep: ep = 4 does not divide dp = 6; use ep = 3");
}

static void a_written_job_has_only_keys_with_an_effect(void **state)
{
	static struct job back;
	struct buf text = BUF_INIT;
	const char *const words[] = { PROGRAM, "restart.retry_on=any, !2", "program.show=all" };
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(job_load(NULL, words, 3, &job, &e), 0);
	job_write(&job, &text);
	assert_non_null(strstr(buf_str(&text), "program = python3 train.py --lr 1e-4\n"));
	assert_non_null(strstr(buf_str(&text), "retry_on = any, !2\n"));
	assert_null(strstr(buf_str(&text), "[model]"));
	assert_null(strstr(buf_str(&text), "steps ="));
	assert_int_equal(job_parse(buf_str(&text), "back.ini", &back, &e), 0);
	assert_memory_equal(&job, &back, sizeof job);
	buf_fini(&text);
	assert_int_equal(job_load(NULL, NULL, 0, &job, &e), 0);
	job_write(&job, &text);
	assert_null(strstr(buf_str(&text), "[program]"));
	assert_null(strstr(buf_str(&text), "retry_on"));
	assert_non_null(strstr(buf_str(&text), "[model]"));
	buf_fini(&text);
}

/* --- [restart] retry_on -------------------------------------------------------------------- */

enum { EXIT_1 = 1 << 8, EXIT_2 = 2 << 8, EXIT_70 = 70 << 8 };

static void a_list_names_the_ends_after_which_a_restart_is_tried(void **state)
{
	static const struct {
		const char *list;
		int status;
		bool has;
	} rows[] = {
		{ "any", EXIT_1, true },
		{ "any", SIGKILL, true },
		{ "1", EXIT_1, true },
		{ "1", EXIT_2, false },
		{ "1", SIGHUP, false }, /* signal 1 is no status 1 */
		{ "64-78", EXIT_70, true },
		{ "64-78", EXIT_2, false },
		{ "SIGKILL", SIGKILL, true },
		{ "KILL", SIGKILL, true },
		{ "SIGKILL", SIGSEGV, false },
		{ "signal", SIGSEGV, true },
		{ "signal", EXIT_1, false },
		{ "any, !2", EXIT_2, false },
		{ "!2, any", EXIT_2, false },
		{ "any,!2", EXIT_1, true },
		{ "!2", EXIT_1, true }, /* all items exclude */
		{ "!2", EXIT_2, false },
		{ "!signal", SIGKILL, false },
		{ "signal !SIGKILL", SIGKILL, false },
		{ "signal !SIGKILL", SIGSEGV, true },
		{ "signal, 70", EXIT_70, true },
	};
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct buf why = BUF_INIT;
		assert_int_equal(job_retry_on_check(rows[i].list, &why), 0);
		if (job_retry_on_has(rows[i].list, rows[i].status) != rows[i].has)
			fail_msg("%s: status %#x", rows[i].list, (unsigned)rows[i].status);
		buf_fini(&why);
	}
}

static void slurm_leaves_a_program_the_time_to_save(void **state)
{
	static const struct {
		const char *words[4];
		int n;
		bool fits;
	} rows[] = {
		{ { "slurm.time=1:00:00", "program.stop_grace=121" }, 2, false },
		{ { "slurm.time=1:00:00", "program.stop_grace=120" }, 2, true },
		{ { "slurm.time=1:00:00", "program.stop_grace=121", "slurm.signal_before=0" },
		  3,
		  true },
		{ { "program.stop_grace=121" }, 1, true }, /* no limit is known */
	};
	struct err e = ERR_INIT;
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *words[5] = { "job.program=./a" };
		memcpy(words + 1, rows[i].words, (size_t)rows[i].n * sizeof *words);
		bool fits = !job_load(NULL, words, rows[i].n + 1, &job, &e);
		assert_int_equal(fits, rows[i].fits);
		if (!fits && !strstr(e.text, "raise slurm.signal_before"))
			fail_msg("%s", e.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_needs_no_data),
		cmocka_unit_test(the_sections_of_training_are_refused_by_name),
		cmocka_unit_test(what_contradicts_a_program_is_refused),
		cmocka_unit_test(without_a_program_its_keys_are_refused),
		cmocka_unit_test(degrees_need_no_model),
		cmocka_unit_test(a_written_job_has_only_keys_with_an_effect),
		cmocka_unit_test(a_list_names_the_ends_after_which_a_restart_is_tried),
		cmocka_unit_test(slurm_leaves_a_program_the_time_to_save),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
