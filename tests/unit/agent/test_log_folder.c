/* Tests which folders of logs on a node are removed, and whose folder is used. */
#include "agent/log_folder.h"
#include "base/file.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const time_t now = 2000000000, day = 86400;
static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	return tmpdir_make(dir, sizeof dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	file_remove_tree(dir);
	return 0;
}

static void path_of(char out[RUN_PATH], const char *name)
{
	snprintf(out, RUN_PATH, "%s/%s", dir, name);
}

static void set_age(const char *name, time_t days)
{
	char path[RUN_PATH];
	const struct timespec times[2] = { { now - days * day, 0 }, { now - days * day, 0 } };
	path_of(path, name);
	assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* A folder whose log and which itself were changed so many days ago. */
static void make_folder(const char *name, time_t log_days, time_t days)
{
	char path[RUN_PATH], log[80];
	path_of(path, name);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(log, sizeof log, "%s/n-1.log", name);
	path_of(path, log);
	close(open(path, O_WRONLY | O_CREAT, 0600));
	set_age(log, log_days);
	set_age(name, days);
}

static bool is_there(const char *name)
{
	char path[RUN_PATH];
	struct stat st;
	path_of(path, name);
	return !lstat(path, &st);
}

static void only_folders_that_nobody_uses_are_removed(void **state)
{
	char own[RUN_PATH];
	(void)state;
	make_folder("old", 11, 11);
	make_folder("written", 9, 11);
	make_folder("begun", 11, 9);
	make_folder("own", 11, 11);
	path_of(own, "file");
	close(open(own, O_WRONLY | O_CREAT, 0600));
	set_age("file", 11);
	path_of(own, "link");
	assert_int_equal(symlink("written", own), 0);
	set_age("link", 11);
	/* A rank that seldom logs. */
	make_folder("held", 11, 11);
	path_of(own, "held/n-1.log");
	int fd = open(own, O_WRONLY);
	assert_true(fd >= 0 && !flock(fd, LOCK_SH));
	path_of(own, "own");
	agent_log_folder_sweep(dir, own, (double)now);
	close(fd);
	assert_true(is_there("held/n-1.log"));
	assert_false(is_there("old"));
	assert_true(is_there("written/n-1.log") && is_there("begun/n-1.log"));
	assert_true(is_there("own/n-1.log") && is_there("file") && is_there("link"));
}

/* A run folder in dir. */
static void make_run(char out[RUN_PATH], const char *name)
{
	char logs[RUN_PATH];
	path_of(out, name);
	run_path(logs, out, RUN_LOGS);
	assert_int_equal(file_make_dirs(logs, NULL), 0);
	run_path(logs, out, RUN_LOGS_ID);
	assert_int_equal(file_replace(logs, "0123456789abcdef\n", 17, NULL), 0);
}

static void the_folder_is_private(void **state)
{
	static struct job job;
	char run[RUN_PATH], out[RUN_PATH], expected[RUN_PATH];
	struct stat st;
	struct err e = ERR_INIT;
	(void)state;
	make_run(run, "mine");
	const struct msg_welcome w = { .run = run, .node = "n1", .world = 8, .rank = 1 };
	snprintf(job.log.local, sizeof job.log.local, "%s/%%N/logs", dir);
	assert_int_equal(agent_log_folder_make(&w, &job, out, NULL), 0);
	assert_int_equal(stat(out, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	path_of(expected, "n1/logs/mine-0123456789abcdef");
	assert_string_equal(out, expected);
	assert_int_equal(chmod(out, 0720), 0);
	assert_int_equal(agent_log_folder_make(&w, &job, out, &e), -1);
	assert_int_equal(e.code, ERR_DENIED);
	assert_int_equal(rmdir(out), 0);
	assert_int_equal(symlink("/tmp", out), 0);
	assert_int_equal(agent_log_folder_make(&w, &job, out, &e), -1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		TEST(only_folders_that_nobody_uses_are_removed),
		TEST(the_folder_is_private),
	};
	return cmocka_run_group_tests_name("log folder", tests, NULL, NULL);
}
