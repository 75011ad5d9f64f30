/* A word names a run by its folder, or by its name below the folders of runs; what is refused says
 * why, and which run was perhaps meant. */
#include "launcher/rundir/find.h"
#include "base/file.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[256], found[RUN_PATH];

static void make_run(const char *path, const char *file)
{
	char at[RUN_PATH];
	assert_int_equal(file_make_dirs(path, NULL), 0);
	snprintf(at, sizeof at, "%s/%s", path, file);
	int fd = open(at, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
}

/* The tests run in `dir`, which has runs/first, elsewhere/second and an empty folder. */
static int setup(void **state)
{
	(void)state;
	if (!tmpdir_make(dir, sizeof dir) || chdir(dir))
		return -1;
	unsetenv("MUSTER_RUNS");
	make_run("runs/first", RUN_JOB);
	make_run("elsewhere/second", RUN_EVENTS);
	make_run("elsewhere/queued", RUN_SUBMISSIONS);
	return mkdir("empty", 0700);
}

static int teardown(void **state)
{
	(void)state;
	if (chdir("/"))
		return -1;
	file_remove_tree(dir);
	return 0;
}

static void finds(const char *word, const char *path)
{
	struct err e = ERR_INIT;
	assert_int_equal(rundir_find(word, found, &e), 0);
	assert_string_equal(found, path);
}

static void refuses(const char *word, enum err_code code, const char *words)
{
	struct err e = ERR_INIT;
	assert_int_equal(rundir_find(word, found, &e), -1);
	assert_int_equal(e.code, code);
	if (!strstr(e.text, words))
		fail_msg("\"%s\" lacks \"%s\"", e.text, words);
}

static void a_run_is_found_by_its_folder_or_its_name(void **state)
{
	(void)state;
	char absolute[RUN_PATH];
	snprintf(absolute, sizeof absolute, "%s/elsewhere/second", dir);
	finds("runs/first", "runs/first");
	finds("runs/first//", "runs/first");
	finds(absolute, absolute);
	finds("first", "runs/first");
	finds("elsewhere/queued", "elsewhere/queued");
	refuses("second", ERR_NOTFOUND, "runs/");
	setenv("MUSTER_RUNS", "elsewhere", 1);
	finds("second", "elsewhere/second");
	finds("first", "runs/first");
	make_run("elsewhere/first", RUN_JOB);
	finds("first", "elsewhere/first");
	rundir_find_folder(found);
	assert_string_equal(found, "elsewhere");
	make_run("first", RUN_JOB);
	finds("first", "first");
}

static void a_wrong_word_gets_the_nearest_name(void **state)
{
	(void)state;
	refuses("frist", ERR_NOTFOUND, "did you mean first?");
	refuses("nothing-like-it", ERR_NOTFOUND, "neither a run folder nor the name of a run");
	refuses("empty", ERR_NOTFOUND, "contains no run");
	refuses("", ERR_USAGE, "empty");
	char longest[PATH_MAX + 400];
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	refuses(longest, ERR_NOTFOUND, "neither");
}

static void a_folder_that_may_not_be_read_is_refused_with_its_owner(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	bool root = geteuid() == 0; /* permissions do not bind root */
	assert_int_equal(root ? chmod(dir, 0755) : chmod("runs/first", 0), 0);
	if (root)
		assert_int_equal(seteuid(65534), 0);
	int rc = rundir_find(root ? "elsewhere/second" : "runs/first", found, &e);
	if (root)
		assert_int_equal(seteuid(0), 0);
	chmod("runs/first", 0700);
	assert_int_equal(rc, -1);
	assert_int_equal(e.code, ERR_DENIED);
	assert_non_null(strstr(e.text, root ? "may not be entered" : "belongs to"));
	if (!root)
		return;
	assert_int_equal(chmod("elsewhere", 0755) || seteuid(65534), 0);
	rc = rundir_find("elsewhere/second", found, &e);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(rc, -1);
	assert_non_null(strstr(e.text, "belongs to root"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_run_is_found_by_its_folder_or_its_name, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_wrong_word_gets_the_nearest_name, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			a_folder_that_may_not_be_read_is_refused_with_its_owner, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
