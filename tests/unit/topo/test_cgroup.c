/* A container, a Slurm step or a systemd slice may allow less memory than the machine has. */
#include "topo/internal.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char top[256];

static int setup(void **state)
{
	(void)state;
	return tmpdir_make(top, sizeof top) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	char command[512];
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	return system(command);
}

static void put(const char *name, const char *text)
{
	char command[1024];
	snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s/%s')\" && printf '%s' >'%s/%s'",
		 top, name, text, top, name);
	assert_int_equal(system(command), 0);
}

static double allowed(void)
{
	char membership[512];
	snprintf(membership, sizeof membership, "%s/membership", top);
	return topo_cgroup_memory(membership, top);
}

static void the_tightest_of_the_groups_counts(void **state)
{
	(void)state;
	put("membership", "0::/slurm/job_7/step_0\n");
	put("slurm/memory.max", "max\n");
	put("slurm/job_7/memory.max", "4096\n");
	put("slurm/job_7/step_0/memory.max", "8192\n");
	assert_true(allowed() == 4096);
}

static void version_1_is_understood(void **state)
{
	(void)state;
	put("membership", "9:name=systemd:/\n4:cpu,memory:/job\n3:memory_not:/other\n");
	put("memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("memory/job/memory.limit_in_bytes", "12288\n");
	put("memory/other/memory.limit_in_bytes", "1\n");
	assert_true(allowed() == 12288);
}

static void the_root_of_a_container_is_a_group_too(void **state)
{
	(void)state;
	put("membership", "0::/\n");
	put("memory.max", "16384\n");
	assert_true(allowed() == 16384);
}

static void a_missing_control_group_is_no_limit(void **state)
{
	(void)state;
	assert_true(allowed() == 0);
	put("membership", "0::/gone\nnonsense\n::\n1:memory:x\n");
	assert_true(allowed() == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_tightest_of_the_groups_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(version_1_is_understood, setup, teardown),
		cmocka_unit_test_setup_teardown(the_root_of_a_container_is_a_group_too, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_missing_control_group_is_no_limit, setup,
						teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
