/* Tests the memory that a thread prefers. tests/unit/topo tests cores, where lists of them are
 * made. */
#include "base/pin.h"

#include <linux/mempolicy.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { UNSUPPORTED = 100, UNSEEN };

/* Returns the policy that pin_memory leaves, in a process of its own. */
static int policy_after(int numa)
{
	pid_t pid = fork();
	if (!pid) {
		int mode = -1;
		unsigned long domains[16] = { 0 };
		if (pin_memory(numa, NULL))
			_exit(UNSUPPORTED);
		if (syscall(SYS_get_mempolicy, &mode, domains, 8 * sizeof domains, NULL, 0))
			_exit(UNSEEN);
		_exit(numa >= 0 && !(domains[0] >> numa & 1) ? UNSEEN : mode);
	}
	int status = -1;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void memory_of_a_domain_is_preferred(void **state)
{
	(void)state;
	int unpinned = policy_after(-1), first = policy_after(0);
	if (unpinned >= UNSUPPORTED || first == UNSUPPORTED) {
		print_message("this kernel lets nobody choose\n");
		skip();
	}
	assert_int_equal(unpinned, MPOL_DEFAULT);
	assert_int_equal(first, MPOL_PREFERRED);
}

static void domains_that_there_are_not_are_refused(void **state)
{
	struct err e = ERR_INIT;
	(void)state;
	assert_int_equal(policy_after(1 << 20), UNSUPPORTED);
	assert_int_equal(pin_memory(1 << 20, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_a_domain_is_preferred),
		cmocka_unit_test(domains_that_there_are_not_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
