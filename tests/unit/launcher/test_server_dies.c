/* A PMIx server that is killed while it starts is distinguished from one that cannot start. */
#include "launcher/pmix/register.h"
#include "launcher/pmix/server.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static bool killed;

/* These replace the real functions in the server's process. */
int local_register_ranks(const struct local_group *g, const char *dir, struct buf *out,
			 struct err *e)
{
	(void)g;
	(void)dir;
	(void)out;
	if (killed)
		raise(SIGKILL);
	return err_set(e, ERR_INTERNAL, "PMIx server: PMIx_server_init failed");
}

void local_unregister_ranks(const struct local_group *g)
{
	(void)g;
}

static void a_server_that_dies_while_it_starts_is_a_peer_error(void **state)
{
	(void)state;
	char dir[256], own[300];
	const struct local_group two_ranks = { .nspace = "muster-test", .world = 2 };
	struct local_server *server = NULL;
	struct err e = ERR_INIT;
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(own, sizeof own, "%s/pmix", dir);
	killed = true;
	assert_int_equal(local_server_open(&two_ranks, own, STDERR_FILENO, &server, &e), -1);
	assert_int_equal(e.code, ERR_PEER);
	assert_non_null(strstr(e.text, "ended while it started"));
	killed = false;
	assert_int_equal(local_server_open(&two_ranks, own, STDERR_FILENO, &server, &e), -1);
	assert_int_equal(e.code, ERR_INTERNAL);
	assert_null(server);
	assert_int_equal(rmdir(dir), 0); /* nothing is left */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(
		a_server_that_dies_while_it_starts_is_a_peer_error) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
