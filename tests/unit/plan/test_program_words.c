/* What base/words.h writes can be a value of a job file: it comes back through the INI reader and from
 * the command line. */
#include "base/words.h"
#include "plan/spec/job/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct job job; /* too large for a small stack */

static const char *const cases[][4] = {
	{ "python", "train.py", "--lr=1e-4" },
	{ "sh", "-c", "echo $RANK; exec python train.py # no comment" },
	{ "p", "#1", ";x" },
	{ "p", "a #b", "c ;d" },
	{ "p", " ", "" },
	{ "", "" },
	{ "a b" },
	{ "'", "'" },
	{ "\"" },
	{ "p", "a\nb\r\tc", "\x01\x7f" },
	{ "p", "\xc3\xa9\xe4\xb8\xad", "\xc2\x85\xff" },
	{ "=", "[x]", "k = v" },
	{ ":", "a: b" },
	{ "p", "trailing " },
	{ "p", "\\" },
};

static void assert_value(const char *value, const char *const *want)
{
	char **got;
	struct err e = ERR_INIT;
	size_t i;
	if (words_parse(value, &got, &e))
		fail_msg("%s: %s", value, e.text);
	for (i = 0; got[i] && want[i]; i++)
		assert_string_equal(got[i], want[i]);
	assert_ptr_equal(got[i], want[i]);
	free(got);
}

static void put_words(const char *const *words, struct buf *out)
{
	char *argv[5] = { NULL };
	for (size_t i = 0; i < 4 && words[i]; i++)
		argv[i] = strdup(words[i]);
	assert_int_equal(words_write(argv, out), 0);
	for (size_t i = 0; i < 4; i++)
		free(argv[i]);
}

static void a_job_file_keeps_the_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct err e = ERR_INIT;
		struct buf text = BUF_INIT;
		buf_puts(&text, "[data]\n\tpath = ");
		put_words(cases[i], &text);
		buf_puts(&text, " \r\n[job]\nname = x\n");
		if (job_parse(buf_str(&text), "job.ini", &job, &e))
			fail_msg("%s: %s", buf_str(&text), e.text);
		assert_value(job.data.path, cases[i]);
		buf_fini(&text);
	}
}

static void the_command_line_keeps_the_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct err e = ERR_INIT;
		struct buf word = BUF_INIT;
		buf_puts(&word, "data.path=");
		put_words(cases[i], &word);
		if (job_load(NULL, (const char *[]){ buf_str(&word) }, 1, &job, &e))
			fail_msg("%s: %s", buf_str(&word), e.text);
		assert_value(job.data.path, cases[i]);
		buf_fini(&word);
	}
}

/* muster writes the resolved job into the run folder, and reads it again. */
static void a_written_job_keeps_the_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct err e = ERR_INIT;
		struct buf word = BUF_INIT, text = BUF_INIT;
		buf_puts(&word, "data.path=");
		put_words(cases[i], &word);
		assert_int_equal(job_load(NULL, (const char *[]){ buf_str(&word) }, 1, &job, &e),
				 0);
		job_write(&job, &text);
		memset(&job, 0, sizeof job);
		if (job_parse(buf_str(&text), "job.ini", &job, &e))
			fail_msg("%s: %s", buf_str(&word), e.text);
		assert_value(job.data.path, cases[i]);
		buf_fini(&word);
		buf_fini(&text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_file_keeps_the_words),
		cmocka_unit_test(the_command_line_keeps_the_words),
		cmocka_unit_test(a_written_job_keeps_the_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
