/* Folders that each node has for itself, and which logs are in them. */
#include "base/file.h"
#include "plan/spec/job/node_path.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void the_name_of_the_node_stands_for_a_percent_n(void **state)
{
	char out[PATH_MAX];
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(job_node_path("checkpoint.local", "/l/%N/x-%N", "n1", out, &e), 0);
	assert_string_equal(out, "/l/n1/x-n1");
	assert_int_equal(job_node_path("checkpoint.local", "/l", "a/b", out, &e), 0);
	assert_int_equal(job_node_path("checkpoint.local", "/l/%N", "a/b", out, &e), -1);
	assert_int_equal(job_node_path("checkpoint.local", "/l/%N", "", out, &e), -1);
	assert_int_equal(job_node_path("checkpoint.local", "/l/%N", "..", out, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "checkpoint.local"));
}

static const struct job *job_with(const char *local)
{
	static struct job job;
	snprintf(job.log.local, sizeof job.log.local, "%s", local);
	return &job;
}

static void large_worlds_keep_their_logs_on_the_nodes(void **state)
{
	(void)state;
	assert_false(job_logs_local(job_with("auto"), 512));
	assert_true(job_logs_local(job_with("auto"), 513));
	assert_true(job_logs_local(job_with("/scratch"), 1));
	assert_false(job_logs_local(job_with("none"), 100000));
}

static void write_id(const char *run, const char *id)
{
	char path[RUN_PATH];
	run_path(path, run, RUN_LOGS_ID);
	assert_int_equal(file_replace(path, id, strlen(id), NULL), 0);
}

static void each_run_has_a_folder_of_its_own(void **state)
{
	char dir[64], logs[80], parent[PATH_MAX], out[RUN_PATH], text[160];
	struct err e = ERR_INIT;
	(void)state;
	assert_true(tmpdir_make(dir, sizeof dir));
	snprintf(logs, sizeof logs, "%s/" RUN_LOGS, dir);
	assert_int_equal(file_make_dirs(logs, NULL), 0);
	assert_int_equal(job_logs_folder(job_with("/l/%N"), dir, "n1", parent, out, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	write_id(dir, "0123456789abcdef\n");
	assert_int_equal(job_logs_folder(job_with("/l/%N"), dir, "n1", parent, out, NULL), 0);
	assert_string_equal(parent, "/l/n1");
	snprintf(text, sizeof text, "/l/n1%s-0123456789abcdef", strrchr(dir, '/'));
	assert_string_equal(out, text);
	assert_int_equal(job_logs_folder(job_with("auto"), dir, "n1", parent, out, NULL), 0);
	snprintf(text, sizeof text, "/tmp/muster-%u", (unsigned)geteuid());
	assert_string_equal(parent, text);
	assert_int_equal(job_logs_folder(job_with("/l/%N"), dir, "..", parent, out, NULL), -1);
	static const char *const bad[] = { "", "0123456789abcde/", "../../../../etc", "\n" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		write_id(dir, bad[i]);
		assert_int_equal(job_logs_folder(job_with("auto"), dir, "n1", parent, out, &e), -1);
	}
	file_remove_tree(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_name_of_the_node_stands_for_a_percent_n),
		cmocka_unit_test(large_worlds_keep_their_logs_on_the_nodes),
		cmocka_unit_test(each_run_has_a_folder_of_its_own),
	};
	return cmocka_run_group_tests_name("node path", tests, NULL, NULL);
}
