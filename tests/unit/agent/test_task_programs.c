/* Programs that use muster_client.h, as C and as C++, and muster_client.py, against the agent's end of
 * the client channel. The programs are tests/doubles/own_program. */
#include "agent/task/client.h"

#include "base/file.h"
#include "tests/unit/tmpdir.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* clang-format off */
#define SOURCES "tests/doubles/own_program.c tests/doubles/own_program_part.c"
static const struct language {
	const char *name, *tool, *compile; /* compile: NULL, or the command without its output */
} languages[] = {
	{ "c",      "gcc",     "gcc -std=c99 -Wall -Wextra -Werror -I. " SOURCES },
	{ "c++",    "g++",     "g++ -x c++ -Wall -Wextra -Werror -I. " SOURCES },
	{ "python", "python3", NULL },
};
/* clang-format on */

static struct {
	char dir[64], program[PATH_MAX];
	const struct language *language;
	struct task_client *client;
	int fd; /* the program's end */
	pid_t pid;
	int in, out; /* its standard input and output */
	int hellos, steps, checkpoints;
	struct task_hello hello;
	struct task_step step;
	char path[PATH_MAX];
	bool as_expected;
} t;

static void on_hello(void *arg, const struct task_hello *m)
{
	(void)arg;
	t.hellos++;
	t.hello = *m;
}

/* The numbers of own_program's steps. */
static void on_step(void *arg, const struct task_step *m)
{
	(void)arg;
	t.steps++;
	t.step = *m;
	bool loss = m->n == 2   ? isnan(m->loss)
		    : m->n == 3 ? isinf(m->loss) && m->loss < 0
				: m->loss == 0.1;
	bool norm = m->n == 4 ? isinf(m->grad_norm) && m->grad_norm > 0 : m->grad_norm == 2;
	t.as_expected = t.as_expected && m->n == t.steps && m->has_loss && loss &&
			m->tokens == 4096 && m->samples == 8 && m->lr == 1e-4 && m->has_grad_norm &&
			norm;
}

static void on_checkpoint(void *arg, const struct task_checkpoint *m)
{
	(void)arg;
	t.checkpoints++;
	snprintf(t.path, sizeof t.path, "%s", m->path);
}

static const struct task_client_handlers handlers = { on_hello, on_step, on_checkpoint };

static int setup(void **state)
{
	(void)state;
	t.hellos = t.steps = t.checkpoints = 0;
	t.as_expected = true;
	return task_client_open(&handlers, &t, &t.client, &t.fd, NULL);
}

static int teardown(void **state)
{
	(void)state;
	task_client_close(t.client);
	if (t.fd >= 0)
		close(t.fd);
	return 0;
}

static void become(const char *mode, int in, int out, const char *descriptor)
{
	char number[16];
	snprintf(number, sizeof number, "%d", t.fd);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv(TASK_CLIENT_ENV, descriptor ? descriptor : number, 1);
	setenv("MUSTER_PLAN", "{\"rank\":3}", 1);
	if (descriptor && !*descriptor)
		unsetenv(TASK_CLIENT_ENV);
	if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || (t.fd >= 0 && fcntl(t.fd, F_SETFD, 0)))
		_exit(126);
	if (t.language->compile)
		execl(t.program, t.program, mode, (char *)NULL);
	else
		execlp("python3", "python3", "-X", "dev", "-W", "error",
		       "tests/doubles/own_program.py", mode, (char *)NULL);
	_exit(127);
}

/* descriptor: what MUSTER_CLIENT_FD names; NULL: the channel; "": the variable is not there. */
static void start(const char *mode, const char *descriptor)
{
	int in[2], out[2];
	assert_int_equal(pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC), 0);
	t.pid = fork();
	if (t.pid == 0)
		become(mode, in[0], out[1], descriptor);
	assert_true(t.pid > 0);
	close(in[0]);
	close(out[1]);
	close(t.fd);
	t.fd = -1;
	t.in = in[1];
	t.out = out[0];
}

static void finish(void)
{
	int status;
	assert_int_equal(waitpid(t.pid, &status, 0), t.pid);
	close(t.in);
	close(t.out);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Serves the program until it closes its end. */
static void serve(void)
{
	struct err e = ERR_INIT;
	while (task_client_fd(t.client) >= 0) {
		struct pollfd p = { .fd = task_client_fd(t.client),
				    .events = task_client_events(t.client) };
		assert_int_equal(poll(&p, 1, -1), 1);
		if (task_client_serve(t.client, &e))
			fail_msg("%s", e.text);
	}
}

static void run(const char *mode)
{
	start(mode, NULL);
	serve();
	finish();
}

/* --- The cases ------------------------------------------------------------------------------- */

static void it_reports_its_steps_and_stops_after_the_same_one(void **state)
{
	(void)state;
	char folder[PATH_MAX - 100], path[PATH_MAX];
	assert_int_equal(task_client_stop(t.client, "\"at_step\":{ 7 \\", 20, NULL), 0);
	run("train");
	assert_int_equal(t.hellos, 1);
	assert_int_equal(t.hello.version, 1);
	assert_int_equal(t.hello.pid, t.pid);
	assert_int_equal(t.steps, 20);
	assert_true(t.as_expected);
	assert_non_null(getcwd(folder, sizeof folder));
	snprintf(path, sizeof path, "%s/ckpt/\"a\\\n?ü", folder);
	assert_int_equal(t.checkpoints, 1);
	assert_string_equal(t.path, path);
}

static void it_stops_at_once_if_it_reports_no_step(void **state)
{
	(void)state;
	assert_int_equal(task_client_stop(t.client, "drain", 20, NULL), 0);
	run("wait");
	assert_int_equal(t.steps, 0);
}

static void the_processes_that_it_forks_are_silent(void **state)
{
	(void)state;
	run("fork");
	assert_int_equal(t.hellos, 1);
	assert_int_equal(t.steps, 2);
	assert_int_equal(t.step.n, 2);
	assert_int_equal(t.checkpoints, 0);
}

static void it_goes_on_while_nobody_reads(void **state)
{
	(void)state;
	char byte = '.';
	const int room = 65536;
	assert_int_equal(setsockopt(t.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
	start("fill", NULL);
	assert_int_equal(read(t.out, &byte, 1), 1);
	for (int last = -1; last != t.steps;) {
		last = t.steps;
		assert_int_equal(task_client_serve(t.client, NULL), 0);
	}
	assert_in_range(t.steps, 1, 4999);
	assert_int_equal(t.checkpoints, 0);
	assert_int_equal(write(t.in, &byte, 1), 1);
	serve();
	finish();
	assert_int_equal(t.step.n, 5000);
	assert_string_equal(t.path, "/kept");
}

static void it_goes_on_without_the_agent(void **state)
{
	(void)state;
	task_client_close(t.client);
	t.client = NULL;
	start("lost", NULL);
	finish();
}

static void it_knows_its_place(void **state)
{
	(void)state;
	run("plan");
}

static void it_works_without_muster(void **state)
{
	(void)state;
	static const char *const descriptors[] = { "",   "0", "1",  "999",
						   "-1", "x", "3x", "99999999999999999999" };
	for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++) {
		start("alone", descriptors[i]);
		finish();
		close(t.fd);
	}
	serve();
	assert_int_equal(t.hellos, 0);
}

/* A process may inherit the variable without the descriptor, and use its number for another file. */
static void it_leaves_the_files_of_others_alone(void **state)
{
	(void)state;
	int ends[2];
	char byte;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
	close(t.fd);
	t.fd = ends[1];
	start("alone", NULL);
	assert_int_equal(read(ends[0], &byte, 1), 0);
	close(ends[0]);
	finish();
}

/* --- The languages ------------------------------------------------------------------------------ */

static bool is_here(const char *tool)
{
	char command[100];
	snprintf(command, sizeof command, "command -v %s >/dev/null", tool);
	return !system(command);
}

static void build(const struct language *l)
{
	char command[2 * PATH_MAX];
	t.language = l;
	if (!l->compile)
		return;
	snprintf(t.program, sizeof t.program, "%s/%s", t.dir, l->name);
	snprintf(command, sizeof command, "%s -o '%s'", l->compile, t.program);
	if (system(command)) {
		fprintf(stderr, "failed: %s\n", command);
		exit(1);
	}
}

static int run_group(const struct language *l)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(it_reports_its_steps_and_stops_after_the_same_one),
		TEST(it_stops_at_once_if_it_reports_no_step),
		TEST(the_processes_that_it_forks_are_silent),
		TEST(it_goes_on_while_nobody_reads),
		TEST(it_goes_on_without_the_agent),
		TEST(it_knows_its_place),
		TEST(it_works_without_muster),
		TEST(it_leaves_the_files_of_others_alone),
	};
	if (!is_here(l->tool)) {
		printf("skipped: programs in %s, because there is no %s\n", l->name, l->tool);
		return 0;
	}
	build(l);
	return cmocka_run_group_tests_name(l->name, tests, NULL, NULL);
}

int main(void)
{
	int failed = 0;
	if (!tmpdir_make(t.dir, sizeof t.dir))
		return 1;
	for (size_t i = 0; i < sizeof languages / sizeof *languages; i++)
		failed += run_group(&languages[i]);
	file_remove_tree(t.dir);
	return failed ? 1 : 0;
}
