/* The PMIx server removes the files that its clients have named to it, however they end. Open MPI names
 * its shared memory so. */
#include "launcher/pmix/server.h"
#include "tests/unit/tmpdir.h"

#include <pmix.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* LeakSanitizer asks this function. libpmix frees some of its memory only with the process. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libpmix.so";
}

enum { WORLD = 3, PATH = 300 };

static void name_file(const char *dir, int rank, char out[PATH])
{
	snprintf(out, PATH, "%s/segment-%d", dir, rank);
}

/* Makes a file, names it to the server, and ends: rank 0 as it should, the others by a signal. */
static int be_client(const char *dir)
{
	pmix_proc_t me;
	pmix_info_t directive;
	pmix_info_t *answers = NULL;
	size_t n = 0;
	char path[PATH];
	if (PMIx_Init(&me, NULL, 0))
		return 1;
	name_file(dir, (int)me.rank, path);
	FILE *f = fopen(path, "w");
	if (!f || fclose(f))
		return 2;
	PMIX_INFO_LOAD(&directive, PMIX_REGISTER_CLEANUP, path, PMIX_STRING);
	pmix_status_t rc = PMIx_Job_control(&me, 1, &directive, 1, &answers, &n);
	if (rc != PMIX_SUCCESS && rc != PMIX_OPERATION_SUCCEEDED)
		return 3;
	if (me.rank)
		raise(SIGKILL);
	return PMIx_Finalize(NULL, 0) ? 4 : 0;
}

static pid_t start_client(const char *dir, char *const *env)
{
	pid_t pid = fork();
	if (pid)
		return pid;
	for (; *env; env++)
		putenv(*env);
	alarm(60);
	execl("/proc/self/exe", "client", dir, NULL);
	_exit(127);
}

static void the_files_of_all_clients_are_removed(void **state)
{
	char dir[256], own[PATH], path[PATH];
	const struct local_group g = { .nspace = "muster-cleanup", .world = WORLD };
	struct local_server *server;
	struct err e = ERR_INIT;
	pid_t pids[WORLD];
	(void)state;
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(own, sizeof own, "%s/pmix", dir);
	if (local_server_open(&g, own, STDERR_FILENO, &server, &e))
		fail_msg("%s", e.text);
	for (int r = 0; r < WORLD; r++)
		pids[r] = start_client(dir, local_server_env(server, r));
	for (int r = 0; r < WORLD; r++) {
		int status;
		assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
		if (r == 0)
			assert_int_equal(status, 0);
		else
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	local_server_close(server);
	for (int r = 0; r < WORLD; r++) {
		name_file(dir, r, path);
		if (!access(path, F_OK))
			fail_msg("%s is left", path);
	}
	assert_int_equal(rmdir(dir), 0);
}

/* A server that does not end by itself is killed: closing it must not take for ever. */
static void a_stopped_server_is_killed(void **state)
{
	char dir[256], own[PATH];
	const struct local_group g = { .nspace = "muster-stopped", .world = 1 };
	struct local_server *server;
	struct err e = ERR_INIT;
	(void)state;
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(own, sizeof own, "%s/pmix", dir);
	if (local_server_open(&g, own, STDERR_FILENO, &server, &e))
		fail_msg("%s", e.text);
	char children[PATH], pid[32] = "";
	snprintf(children, sizeof children, "/proc/self/task/%d/children", (int)getpid());
	FILE *f = fopen(children, "r");
	if (!f || !fgets(pid, sizeof pid, f) || fclose(f)) {
		local_server_close(server);
		skip(); /* this kernel does not list children */
	}
	assert_int_equal(kill((pid_t)atoi(pid), SIGSTOP), 0);
	alarm(60);
	local_server_close(server);
	alarm(0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
	assert_int_equal(rmdir(dir), 0);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[0], "client"))
		return be_client(argv[1]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_files_of_all_clients_are_removed),
		cmocka_unit_test(a_stopped_server_is_killed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
