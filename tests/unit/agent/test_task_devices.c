/* The names of GPUs in a task's CUDA_VISIBLE_DEVICES. */
#include "agent/task/devices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
	const char *visible, *devices, *names;
} cases[] = {
	{ NULL, "0,1,3,2", "0,1,3,2" },
	{ "", "1,0", "1,0" },
	{ "4,5,6,7", "0,1,3,2", "4,5,7,6" },
	{ "GPU-aaaa,GPU-bbbb", "1,0", "GPU-bbbb,GPU-aaaa" },
	{ "MIG-1", "0", "MIG-1" },
	{ "4,5", "0,1,2", "4,5,2" }, /* beyond the list */
	{ "4,,6", "1,2", "1,6" },    /* an empty entry */
	{ "4,5", "", "" },
};

static void devices_have_the_names_that_the_agent_sees(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf out = BUF_INIT;
		task_devices_name(cases[i].visible, cases[i].devices, &out);
		assert_string_equal(buf_str(&out), cases[i].names);
		buf_fini(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_have_the_names_that_the_agent_sees),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
