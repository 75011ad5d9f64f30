/* Tests which file of PATH a child process executes. The files are scripts, and the child's exit
 * status tells which of them ran. */
#include "base/program.h"
#include "tests/unit/tmpdir.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { REFUSED = 100 }; /* the child's status is this and errno */

static char dir[64], *path_before;

static void put(const char *name, const char *text, mode_t mode)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, mode), 0);
}

/* The status of a child that executes the program with this argument. */
static int status_of(const char *name, const char *argument, char *const *env)
{
	char words[2][128];
	snprintf(words[0], sizeof words[0], "%s", name);
	snprintf(words[1], sizeof words[1], "%s", argument);
	char *const argv[] = { words[0], words[1], NULL };
	struct program p;
	int status = 0;
	assert_int_equal(program_open(&p, argv), 0);
	pid_t pid = fork();
	if (!pid) {
		program_execute(&p, argv, env);
		_exit(REFUSED + errno);
	}
	program_close(&p);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int refused_by(const char *name)
{
	return status_of(name, "", environ) - REFUSED;
}

static void the_first_folder_that_has_it_wins(void **state)
{
	(void)state;
	put("first/both", "#!/bin/sh\nexit 1\n", 0700);
	put("second/both", "#!/bin/sh\nexit 2\n", 0700);
	put("second/late", "#!/bin/sh\nexit 3\n", 0700);
	assert_int_equal(status_of("both", "", environ), 1);
	assert_int_equal(status_of("late", "", environ), 3);
}

static void a_file_that_may_not_be_executed_is_skipped(void **state)
{
	(void)state;
	put("first/denied", "#!/bin/sh\nexit 1\n", 0600);
	put("second/denied", "#!/bin/sh\nexit 2\n", 0700);
	assert_int_equal(status_of("denied", "", environ), 2);
}

static void a_script_whose_interpreter_is_missing_is_skipped(void **state)
{
	(void)state;
	put("first/broken", "#!/no/such/interpreter\n", 0700);
	put("second/broken", "#!/bin/sh\nexit 2\n", 0700);
	assert_int_equal(status_of("broken", "", environ), 2);
}

static void the_cause_of_a_failure_is_kept(void **state)
{
	(void)state;
	put("first/closed", "#!/bin/sh\nexit 1\n", 0600);
	assert_int_equal(refused_by("no-such-program"), ENOENT);
	assert_int_equal(refused_by("closed"), EACCES);
	assert_int_equal(refused_by(""), ENOENT);
	assert_int_equal(refused_by("/no/such/program"), ENOENT);
}

static void a_name_with_a_slash_is_not_searched(void **state)
{
	char path[128];
	(void)state;
	put("second/direct", "#!/bin/sh\nexit 4\n", 0700);
	snprintf(path, sizeof path, "%s/second/direct", dir);
	assert_int_equal(status_of(path, "", environ), 4);
	assert_int_equal(refused_by("second/direct"), ENOENT);
}

static void a_file_without_a_format_is_given_to_the_shell(void **state)
{
	(void)state;
	put("second/plain", "[ \"$#\" = 1 ] && exit \"$1\"\n", 0700);
	assert_int_equal(status_of("plain", "41", environ), 41);
}

static void arguments_and_environment_arrive(void **state)
{
	char variable[] = "NUMBER=6", *const env[] = { variable, NULL };
	(void)state;
	put("first/sum", "#!/bin/sh\nexit $((NUMBER + $1))\n", 0700);
	assert_int_equal(status_of("sum", "7", env), 13);
}

static void without_path_the_system_folders_are_searched(void **state)
{
	char path[128];
	(void)state;
	snprintf(path, sizeof path, "%s", getenv("PATH"));
	unsetenv("PATH");
	int status = status_of("test", "", environ); /* false, as its argument is empty */
	setenv("PATH", path, 1);
	assert_int_equal(status, 1);
}

static void an_empty_folder_is_the_current_one(void **state)
{
	char before[128];
	(void)state;
	put("here", "#!/bin/sh\nexit 5\n", 0700);
	snprintf(before, sizeof before, "%s", getenv("PATH"));
	assert_int_equal(chdir(dir), 0);
	setenv("PATH", "/no/such/folder:", 1);
	int status = status_of("here", "", environ);
	setenv("PATH", before, 1);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(status, 5);
}

static int setup(void **state)
{
	char path[160];
	(void)state;
	if (!tmpdir_make(dir, sizeof dir))
		return -1;
	snprintf(path, sizeof path, "%s/first", dir);
	int rc = mkdir(path, 0700);
	snprintf(path, sizeof path, "%s/second", dir);
	rc |= mkdir(path, 0700);
	path_before = strdup(getenv("PATH"));
	snprintf(path, sizeof path, "%s/first:%s/second", dir, dir);
	return rc || !path_before || setenv("PATH", path, 1);
}

static int teardown(void **state)
{
	char command[128];
	(void)state;
	setenv("PATH", path_before, 1);
	free(path_before);
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_folder_that_has_it_wins),
		cmocka_unit_test(a_file_that_may_not_be_executed_is_skipped),
		cmocka_unit_test(a_script_whose_interpreter_is_missing_is_skipped),
		cmocka_unit_test(the_cause_of_a_failure_is_kept),
		cmocka_unit_test(a_name_with_a_slash_is_not_searched),
		cmocka_unit_test(a_file_without_a_format_is_given_to_the_shell),
		cmocka_unit_test(arguments_and_environment_arrive),
		cmocka_unit_test(without_path_the_system_folders_are_searched),
		cmocka_unit_test(an_empty_folder_is_the_current_one),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
