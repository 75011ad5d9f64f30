/* Folders that each node has for itself, and which logs are in them. */
#include "plan/spec/job/node_path.h"

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

static void each_run_has_a_folder_of_its_own(void **state)
{
	char parent[PATH_MAX], a[RUN_PATH], b[RUN_PATH], text[80];
	(void)state;
	assert_int_equal(job_logs_folder(job_with("/scratch/%N"), "/runs/x", "n1", parent, a, NULL),
			 0);
	assert_string_equal(parent, "/scratch/n1");
	assert_int_equal(strncmp(a, "/scratch/n1/x-", 14), 0);
	assert_int_equal(strlen(a), 14 + 8);
	assert_int_equal(job_logs_folder(job_with("/scratch/%N"), "/other/x", "n1", NULL, b, NULL),
			 0);
	assert_string_not_equal(a, b);
	assert_int_equal(job_logs_folder(job_with("auto"), "/runs/x", "n1", parent, a, NULL), 0);
	snprintf(text, sizeof text, "/tmp/muster-%u", (unsigned)geteuid());
	assert_string_equal(parent, text);
	assert_int_equal(job_logs_folder(job_with("/scratch/%N"), "/runs/x", "..", parent, a, NULL),
			 -1);
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
