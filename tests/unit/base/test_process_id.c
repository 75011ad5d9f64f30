/* Names of processes: texts of /proc are read as the kernel writes them, and anything else is
 * refused. */
#include "base/process_id.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void a_name_may_contain_blanks_and_parentheses(void **state)
{
	(void)state;
	/* clang-format off */
	static const struct {
		const char *text, *name;
		char at;
		int64_t start;
	} rows[] = {
		{ "7 (muster-agent) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 12345 99 1\n", "muster-agent", 'S', 12345 },
		{ "7 (a) R) (b) D 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 67 99 1\n", "a) R) (b", 'D', 67 },
		{ "7 () Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0", "", 'Z', 1 },
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct process_stat s;
		assert_int_equal(process_stat_parse(rows[i].text, &s), 0);
		assert_string_equal(s.name, rows[i].name);
		assert_int_equal(s.state, rows[i].at);
		assert_int_equal(s.start, rows[i].start);
	}
}

static void a_text_that_is_cut_off_is_refused(void **state)
{
	(void)state;
	static const char whole[] = "7 (x) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 12345 9";
	char text[sizeof whole];
	struct process_stat s;
	uid_t owner;
	for (size_t len = 0; len < sizeof whole - strlen(" 9"); len++) {
		memcpy(text, whole, len);
		text[len] = '\0';
		assert_int_equal(process_stat_parse(text, &s), -1);
	}
	assert_int_equal(process_stat_parse(") (", &s), -1);
	assert_int_equal(process_owner_parse("Name:\tx\n", &owner), -1);
	assert_int_equal(process_owner_parse("Name:\tx\nUid:\t5", &owner), -1);
	assert_int_equal(process_owner_parse("Name:\tx\nUid:\t5\t6\t7\t8\n", &owner), 0);
	assert_int_equal(owner, 6);
}

static void this_process_has_an_id_that_proc_confirms(void **state)
{
	(void)state;
	struct process_id id, again;
	struct process_stat s;
	uid_t owner;
	process_id_self(&id);
	process_id_self(&again);
	assert_int_equal(id.pid, getpid());
	assert_true(id.start > 0 && id.pid_space > 0);
	assert_int_equal(strlen(id.boot), 36);
	assert_string_equal(id.boot, again.boot);
	assert_int_equal(process_stat_read(id.pid, &s), 0);
	assert_int_equal(s.start, id.start);
	assert_int_equal(process_owner_read(id.pid, &owner), 0);
	assert_int_equal(owner, geteuid());
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
		cmocka_unit_test(a_name_may_contain_blanks_and_parentheses),
		cmocka_unit_test(a_text_that_is_cut_off_is_refused),
		cmocka_unit_test(this_process_has_an_id_that_proc_confirms),
		cmocka_unit_test(a_process_that_has_been_reaped_is_not_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
