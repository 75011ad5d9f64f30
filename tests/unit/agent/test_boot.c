/* Tests how an agent uses its environment. Every multi-rank test outside this program runs the
 * wire-up itself. */
#include "agent/boot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define SECRET "5f0a13c2"

/* Returns whether /proc/self/environ, which the user's other processes can read, contains the
 * text. */
static int environ_shows(const char *text)
{
	static char all[1 << 20];
	FILE *f = fopen("/proc/self/environ", "r");
	size_t n = fread(all, 1, sizeof all, f);
	fclose(f);
	return memmem(all, n, text, strlen(text)) != NULL;
}

/* Runs in a process that was started with the variable. Only such a process has the variable in
 * its original memory. */
static int taken_and_wiped(void)
{
	if (!environ_shows(SECRET))
		return 1;
	char *value = agent_boot_take_env("MUSTER_TEST");
	int good = value && !strcmp(value, SECRET) && !getenv("MUSTER_TEST") &&
		   !environ_shows(SECRET);
	free(value);
	return !good;
}

static void a_taken_variable_leaves_no_trace(void **state)
{
	(void)state;
	int status;
	pid_t child = fork();
	if (!child) {
		setenv("MUSTER_TEST", SECRET, 1);
		execl("/proc/self/exe", "test_boot", (char *)NULL);
		_exit(9);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_variable_that_is_not_there_is_null(void **state)
{
	(void)state;
	assert_null(agent_boot_take_env("MUSTER_TEST"));
}

static void without_a_server_nobody_becomes_a_world_of_one(void **state)
{
	(void)state;
	struct boot *b = NULL;
	struct err e = ERR_INIT;
	unsetenv("PMIX_RANK");
	unsetenv("PMIX_NAMESPACE");
	assert_int_equal(agent_boot_open(&b, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_non_null(strstr(e.text, "muster run"));
	assert_null(b);
	agent_boot_finish(NULL);
}

int main(void)
{
	if (getenv("MUSTER_TEST"))
		return taken_and_wiped();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_taken_variable_leaves_no_trace),
		cmocka_unit_test(a_variable_that_is_not_there_is_null),
		cmocka_unit_test(without_a_server_nobody_becomes_a_world_of_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
