/* Texts of /proc about a process are read as the kernel writes them, and anything else is refused. */
#include "base/process_stat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* What follows the state, with the given start. */
#define REST(start) \
	" 12 1 1 0 -1 4194560 1 2 3 4 150 50 700 300 20 0 1 0 " start " 1000 25 184467\n"

static void a_name_is_what_a_program_chooses(void **state)
{
	(void)state;
	static const struct {
		const char *text, *name;
		char at;
		int64_t start;
	} rows[] = {
		{ "7 (muster-agent) S" REST("12345"), "muster-agent", 'S', 12345 },
		{ "7 (a) R) (b) D" REST("67"), "a) R) (b", 'D', 67 },
		{ "7 (a) R 1 (b) T" REST("68"), "a) R 1 (b", 'T', 68 },
		{ "7 () Z" REST("1"), "", 'Z', 1 },
		{ "7 (\x1b[31m\nerror\r) S" REST("9"), " [31m error ", 'S', 9 },
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct process_stat s;
		assert_int_equal(process_stat_parse(rows[i].text, &s), 0);
		assert_string_equal(s.name, rows[i].name);
		assert_int_equal(s.state, rows[i].at);
		assert_int_equal(s.start, rows[i].start);
	}
}

static void times_and_memory_have_units(void **state)
{
	struct process_stat s;
	double tick = (double)sysconf(_SC_CLK_TCK);
	(void)state;
	assert_int_equal(process_stat_parse("77 (a) T" REST("100"), &s), 0);
	assert_int_equal(s.parent, 12);
	assert_float_equal(s.cpu_s, 200 / tick, 1e-9);
	assert_float_equal(s.reaped_s, 1000 / tick, 1e-9);
	assert_float_equal(s.rss, 25.0 * (double)sysconf(_SC_PAGESIZE), 1e-9);
}

static void a_text_that_is_cut_off_is_refused(void **state)
{
	(void)state;
	static const char whole[] =
		"7 (x) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 12345 9 2 ";
	char text[sizeof whole];
	struct process_stat s;
	uid_t owner;
	for (size_t len = 0; len < sizeof whole - 1; len++) {
		memcpy(text, whole, len);
		text[len] = '\0';
		assert_int_equal(process_stat_parse(text, &s), -1);
	}
	assert_int_equal(process_stat_parse(whole, &s), 0);
	assert_int_equal(process_stat_parse(") (", &s), -1);
	assert_int_equal(process_stat_parse("77 )a( S" REST("1"), &s), -1);
	assert_int_equal(process_stat_parse("77 (a) S" REST("-1"), &s), -1);
	assert_int_equal(process_owner_parse("Name:\tx\n", &owner), -1);
	assert_int_equal(process_owner_parse("Name:\tx\nUid:\t5", &owner), -1);
	assert_int_equal(process_owner_parse("Name:\tx\nUid:\t5\t6\t7\t8\n", &owner), 0);
	assert_int_equal(owner, 6);
}

static void a_process_that_has_been_reaped_is_not_found(void **state)
{
	(void)state;
	struct process_stat s;
	uid_t owner;
	pid_t pid = fork();
	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(process_stat_read(pid, &s), -1);
	assert_int_equal(process_owner_read(pid, &owner), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_is_what_a_program_chooses),
		cmocka_unit_test(times_and_memory_have_units),
		cmocka_unit_test(a_text_that_is_cut_off_is_refused),
		cmocka_unit_test(a_process_that_has_been_reaped_is_not_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
