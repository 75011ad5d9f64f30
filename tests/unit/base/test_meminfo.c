/* Tests that figures of this host agree with each other. */
#include "base/meminfo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static void what_the_kernel_tells_is_in_bytes(void **state)
{
	(void)state;
	double all = meminfo_read("MemTotal"),
	       pages = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
	assert_true(all > 0.9 * pages && all < 1.1 * pages);
	assert_true(meminfo_read("MemAvailable") > 0 && meminfo_read("MemAvailable") <= all);
	assert_true(meminfo_read("Mem") == 0 && meminfo_read("") == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_the_kernel_tells_is_in_bytes) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
