/* The PMIx server removes the files that its clients have named to it, however they end. Open MPI names
 * its shared memory so. */
#include "launcher/pmix/server.h"
#include "tests/unit/patience.h"
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

/* Makes a file and names it to the server. Rank 0 then ends as it should; the others wait for a
 * signal. */
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
		raise(SIGSTOP);
	return PMIx_Finalize(NULL, 0) ? 4 : 0;
}

static pid_t start_client(const char *dir, char *const *env)
{
	pid_t pid = fork();
	if (pid)
		return pid;
	for (; *env; env++)
		putenv(*env);
	alarm(PATIENCE_S);
	execl("/proc/self/exe", "client", dir, NULL);
	_exit(127);
}

/* The only child of this process, or 0 if this kernel does not list children. */
static pid_t only_child(void)
{
	char path[PATH], text[32] = "";
	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	FILE *f = fopen(path, "r");
	if (f && !fgets(text, sizeof text, f))
		*text = '\0';
	if (f)
		fclose(f);
	return (pid_t)atoi(text);
}

static struct {
	char dir[256], own[PATH];
	struct local_server *server;
	pid_t pid; /* the server's */
} t;

static int open_server(void **state)
{
	const struct local_group g = { .nspace = "muster-cleanup", .world = WORLD };
	(void)state;
	if (!tmpdir_make(t.dir, sizeof t.dir))
		return -1;
	snprintf(t.own, sizeof t.own, "%s/pmix", t.dir);
	if (local_server_open(&g, t.own, STDERR_FILENO, &t.server, NULL))
		return -1;
	t.pid = only_child();
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(t.dir); /* fails if anything is left */
}

/* Waits until the clients have named their files: rank 0 has ended then, and the others are stopped. */
static void await_clients(const pid_t pids[WORLD])
{
	for (int r = 0; r < WORLD; r++) {
		int status;
		assert_int_equal(waitpid(pids[r], &status, WUNTRACED), pids[r]);
		if (r ? !WIFSTOPPED(status) : status)
			fail_msg("client %d ended with status 0x%x", r, status);
	}
}

static void kill_clients(const pid_t pids[WORLD])
{
	for (int r = 1; r < WORLD; r++) {
		int status;
		kill(pids[r], SIGKILL);
		assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
		assert_true(WIFSIGNALED(status));
	}
}

/* The server cannot see the death of its clients before it is asked to end. */
static void the_files_of_all_clients_are_removed(void **state)
{
	char path[PATH];
	pid_t pids[WORLD];
	(void)state;
	for (int r = 0; r < WORLD; r++)
		pids[r] = start_client(t.dir, local_server_env(t.server, r));
	await_clients(pids);
	if (t.pid)
		kill(t.pid, SIGSTOP);
	kill_clients(pids);
	if (t.pid)
		kill(t.pid, SIGCONT);
	local_server_close(t.server);
	for (int r = 0; r < WORLD; r++) {
		name_file(t.dir, r, path);
		if (!access(path, F_OK))
			fail_msg("%s is left", path);
	}
}

/* A server that does not end by itself is killed. */
static void a_stuck_server_is_killed(void **state)
{
	(void)state;
	if (t.pid)
		kill(t.pid, SIGSTOP);
	local_server_close(t.server);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[0], "client"))
		return be_client(argv[1]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_files_of_all_clients_are_removed, open_server,
						remove_dir),
		cmocka_unit_test_setup_teardown(a_stuck_server_is_killed, open_server, remove_dir),
	};
	alarm(PATIENCE_S); /* a server that is not killed */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
