/* Tests where the counter of OOM kills is read, in decoys of /proc and /sys. */
#include "launcher/oom.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char root[256];

static int setup(void **state)
{
	(void)state;
	return tmpdir_make(root, sizeof root) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[300];
	(void)state;
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

/* Writes a file of the decoy, with its folders. */
static void write_decoy(const char *path, const char *text)
{
	char file[600], command[700];
	snprintf(file, sizeof file, "%s/%s", root, path);
	snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", file);
	assert_int_equal(system(command), 0);
	FILE *out = fopen(file, "w");
	assert_true(out && fputs(text, out) >= 0 && !fclose(out));
}

static void version_2_counts_in_memory_events(void **state)
{
	(void)state;
	write_decoy("proc/self/cgroup", "0::/user.slice/a\n");
	write_decoy("sys/fs/cgroup/user.slice/a/memory.events",
		    "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n");
	assert_int_equal(launcher_oom_kills(root), 2);
}

static void version_1_counts_in_oom_control(void **state)
{
	(void)state;
	write_decoy("proc/self/cgroup", "9:name=systemd:/\n5:cpu,memory:/slurm/job_1\n0::/\n");
	write_decoy("sys/fs/cgroup/memory/slurm/job_1/memory.oom_control",
		    "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
	write_decoy("sys/fs/cgroup/memory/memory.oom_control", "oom_kill 1\n");
	assert_int_equal(launcher_oom_kills(root), 7);
}

static void a_container_reads_its_root(void **state)
{
	(void)state;
	write_decoy("proc/self/cgroup", "4:memory:/not/visible/here\n");
	write_decoy("sys/fs/cgroup/memory/memory.oom_control", "oom_kill 5\n");
	assert_int_equal(launcher_oom_kills(root), 5);
}

static void without_a_cgroup_the_host_counts(void **state)
{
	(void)state;
	assert_int_equal(launcher_oom_kills(root), -1);
	write_decoy("proc/vmstat", "nr_free_pages 9\noom_kill_other 8\noom_kill 4\n");
	assert_int_equal(launcher_oom_kills(root), 4);
	write_decoy("proc/self/cgroup", "0::/\n"); /* the root cgroup has no memory.events */
	assert_int_equal(launcher_oom_kills(root), 4);
	write_decoy("proc/self/cgroup", "rubbish\n:\n::\n\n");
	assert_int_equal(launcher_oom_kills(root), 4);
}

static void this_host_has_a_counter(void **state)
{
	(void)state;
	assert_true(launcher_oom_kills(NULL) >= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(version_2_counts_in_memory_events, setup, teardown),
		cmocka_unit_test_setup_teardown(version_1_counts_in_oom_control, setup, teardown),
		cmocka_unit_test_setup_teardown(a_container_reads_its_root, setup, teardown),
		cmocka_unit_test_setup_teardown(without_a_cgroup_the_host_counts, setup, teardown),
		cmocka_unit_test(this_host_has_a_counter),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
