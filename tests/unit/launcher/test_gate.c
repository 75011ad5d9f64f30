/* The embedded PMIx server while other users of this host connect to its port. */
#include "launcher/pmix/server.h"
#include "tests/unit/patience.h"
#include "tests/unit/tmpdir.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pmix.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CROWD = 1200, NOBODY = 65534 };

static struct {
	char dir[256];
	struct local_server *server;
	struct sockaddr_in port;
} t;

/* "…;tcp4://127.0.0.1:PORT" */
static int find_port(char *const *env)
{
	for (; *env; env++) {
		const char *uri = strstr(*env, "tcp4://"), *port = uri ? strrchr(uri, ':') : NULL;
		if (strncmp(*env, "PMIX_SERVER_URI", 15) || !port)
			continue;
		t.port = (struct sockaddr_in){ .sin_family = AF_INET,
					       .sin_port = htons((uint16_t)atoi(port + 1)),
					       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		return 0;
	}
	return -1;
}

static int setup(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	const struct local_group one_rank = { .nspace = "muster-1-test", .world = 1 };
	char dir[512];
	if (!tmpdir_make(t.dir, sizeof t.dir)) {
		fprintf(stderr, "no folder\n");
		return -1;
	}
	snprintf(dir, sizeof dir, "%s/pmix", t.dir);
	if (local_server_open(&one_rank, dir, 2, &t.server, &e) ||
	    find_port(local_server_env(t.server, 0))) {
		fprintf(stderr, "%s\n", e.text);
		return -1;
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	char remove[512];
	local_server_close(t.server);
	snprintf(remove, sizeof remove, "rm -rf '%s'", t.dir);
	return system(remove) ? -1 : 0;
}

/* Runs in a process of its own: rank 0 starts, publishes, and ends. */
static int be_rank_0(void)
{
	pmix_proc_t me;
	alarm(PATIENCE_S);
	for (char *const *word = local_server_env(t.server, 0); *word; word++)
		putenv(*word);
	if (PMIx_Init(&me, NULL, 0))
		return 1;
	bool collect = true;
	pmix_info_t info;
	PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
	if (PMIx_Fence(NULL, 0, &info, 1))
		return 2;
	PMIx_Finalize(NULL, 0);
	return 0;
}

/* As another user, opens CROWD connections that send nothing. Returns 0 if each of them was
 * closed. */
static int connect_to_server(int ready)
{
	static int fds[CROWD];
	struct rlimit files = { 2 * CROWD, 2 * CROWD };
	char byte = 0;
	alarm(PATIENCE_S);
	if (setrlimit(RLIMIT_NOFILE, &files) || setresuid(NOBODY, NOBODY, NOBODY))
		return 1;
	for (int i = 0; i < CROWD; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fds[i], (struct sockaddr *)&t.port, sizeof t.port))
			return 2;
	}
	if (write(ready, &byte, 1) != 1)
		return 3;
	for (int i = 0; i < CROWD; i++)
		if (recv(fds[i], &byte, 1, 0) > 0)
			return 4;
	return 0;
}

static int status_of(pid_t pid)
{
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void silent_connections_of_another_user_do_not_block_the_server(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip(); /* only root can become another user */
	int ready[2];
	char byte;
	assert_int_equal(pipe(ready), 0);
	pid_t crowd = fork();
	if (crowd == 0)
		_exit(connect_to_server(ready[1]));
	assert_int_equal(read(ready[0], &byte, 1), 1); /* they are all connected */
	pid_t rank = fork();
	if (rank == 0)
		_exit(be_rank_0());
	assert_int_equal(status_of(rank), 0);
	assert_int_equal(status_of(crowd), 0);
	close(ready[0]);
	close(ready[1]);
}

static void a_rank_of_our_own_user_is_accepted(void **state)
{
	(void)state;
	pid_t rank = fork();
	if (rank == 0)
		_exit(be_rank_0());
	assert_int_equal(status_of(rank), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_rank_of_our_own_user_is_accepted, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			silent_connections_of_another_user_do_not_block_the_server, setup,
			teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
