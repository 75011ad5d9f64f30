/* The id of a process is what /proc says of it. */
#include "base/process_id.h"

#include "base/process_stat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void this_process_has_an_id_that_proc_confirms(void **state)
{
	(void)state;
	struct process_id id, again;
	struct process_stat s;
	uid_t owner;
	process_id_self(&id);
	process_id_self(&again);
	assert_int_equal(id.pid, getpid());
	assert_true(id.start > 0 && id.pid_space > 0);
	assert_int_equal(strlen(id.boot), 36);
	assert_string_equal(id.boot, again.boot);
	assert_int_equal(process_stat_read(id.pid, &s), 0);
	assert_int_equal(s.start, id.start);
	assert_int_equal(process_owner_read(id.pid, &owner), 0);
	assert_int_equal(owner, geteuid());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(this_process_has_an_id_that_proc_confirms),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
