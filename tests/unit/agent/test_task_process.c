/* Tests that a program gets what process.h says, that its end is reported, and that nothing of it
 * survives, whatever ends first. Executed with words, this test is the keeper, or one of the
 * programs. */
#include "agent/task/keeper.h"
#include "agent/task/process.h"
#include "base/clock.h"
#include "base/process.h"
#include "tests/unit/patience.h"
#include "tests/unit/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char self[PATH_MAX];

/* --- Programs --- */

static int say_pid(const char *word)
{
	printf("%s %d\n", word, (int)getpid());
	return fflush(stdout);
}

static void stay(void)
{
	for (;;)
		pause();
}

/* A process that forked twice and leads a session, which the output names. Returns in the first
 * process after that. */
static void leave_daemon(void)
{
	int ready[2];
	char c;
	if (pipe(ready) || fork())
		goto wait;
	setsid();
	if (fork())
		_exit(0);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	say_pid("daemon");
	close(ready[0]);
	close(ready[1]);
	stay();
wait:
	close(ready[1]);
	if (read(ready[0], &c, 1) < 0)
		_exit(1);
}

static int play_daemon(void)
{
	leave_daemon();
	return 7;
}

static int play_stayer(void)
{
	leave_daemon();
	say_pid("program");
	stay();
	return 0;
}

/* Children that end, and for which their parent never waits. */
static int play_zombies(void)
{
	for (int i = 0; i < 20; i++)
		if (!fork())
			_exit(0);
	pid_t parent = fork();
	if (!parent) {
		if (!fork())
			_exit(0);
		say_pid("parent");
		stay();
	}
	stay();
	return 0;
}

/* A child that ends by itself after the program: when the client channel gives a byte, and after some
 * work, during which a keeper without grace would kill it. */
static int play_worker(void)
{
	char c;
	if (fork())
		return 0;
	int rc = read(TASK_CLIENT, &c, 1) != 1;
	while (clock() < CLOCKS_PER_SEC / 10)
		;
	return rc;
}

static int play_stubborn(void)
{
	signal(SIGTERM, SIG_IGN);
	say_pid("program");
	stay();
	return 0;
}

/* Both processes of its group end at SIGTERM, the child first. */
static int play_group(void)
{
	sigset_t term;
	int number;
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	pid_t child = fork();
	if (!child)
		say_pid("ready");
	sigwait(&term, &number);
	if (!child)
		return say_pid("child");
	waitpid(child, NULL, 0);
	return 5;
}

static void say_signals(void)
{
	struct sigaction s;
	sigset_t mask;
	sigprocmask(SIG_SETMASK, NULL, &mask);
	for (int n = 1; n < NSIG; n++) {
		if (sigismember(&mask, n) == 1)
			printf("blocked %d\n", n);
		if (!sigaction(n, NULL, &s) && s.sa_handler == SIG_IGN)
			printf("ignored %d\n", n);
	}
}

/* The state of the process that process.h describes. */
static int play_state(void)
{
	struct rlimit stack;
	struct stat in, null;
	mode_t mask = umask(0);
	say_signals();
	for (int fd = 3; fd < 200; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("open %d\n", fd);
	getrlimit(RLIMIT_STACK, &stack);
	const char *client = getenv(TASK_CLIENT_ENV);
	int death = 0;
	prctl(PR_GET_PDEATHSIG, &death);
	printf("mask %03o stack %lld leader %d session %d client %s null %d death %d\n",
	       (unsigned)mask, (long long)stack.rlim_cur, getpgid(0) == getpid(),
	       getsid(0) == getpid(), client ? client : "none",
	       !fstat(0, &in) && !stat("/dev/null", &null) && in.st_rdev == null.st_rdev, death);
	if (client && write(atoi(client), "hello", 5) != 5)
		return 1;
	return fflush(stdout) ? 1 : 3;
}

static const struct {
	const char *word;
	int (*main)(void);
} programs[] = {
	{ "keep", task_keeper_main }, { "daemon", play_daemon }, { "stayer", play_stayer },
	{ "zombies", play_zombies },  { "worker", play_worker }, { "stubborn", play_stubborn },
	{ "state", play_state },      { "group", play_group },
};

/* --- The agent --- */

struct play {
	struct task_process *p;
	int out; /* the program's standard output; EOF: no process of the task is left */
};

static int start_play(struct play *y, char *const *argv, char *const *env, int client, double grace,
		      struct err *e)
{
	int fds[2];
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	struct task_start s = { .argv = argv,
				.env = env,
				.out = fds[1],
				.err = fds[1],
				.client = client,
				.mask = 027,
				.grace_s = grace,
				.patience_s = PATIENT_WAIT_S };
	int rc = task_process_start(&s, &y->p, e);
	close(fds[1]);
	y->out = fds[0];
	return rc;
}

/* Starts this test as one of its programs. */
static void play(struct play *y, const char *program, double grace)
{
	struct err e = ERR_INIT;
	char *argv[] = { self, (char *)program, NULL };
	if (start_play(y, argv, environ, -1, grace, &e))
		fail_msg("%s", e.text);
	assert_true(task_process_pid(y->p) > 0);
}

static void sh(struct play *y, const char *script)
{
	struct err e = ERR_INIT;
	char *argv[] = { "sh", "-c", (char *)script, NULL };
	if (start_play(y, argv, environ, -1, 0, &e))
		fail_msg("%s", e.text);
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, PATIENCE_S * 1000) == 1;
}

static void read_line(int fd, char line[256])
{
	size_t n = 0;
	do {
		assert_true(readable(fd));
		assert_int_equal(read(fd, line + n, 1), 1);
	} while (line[n++] != '\n' && n < 255);
	line[n - 1] = '\0';
}

/* The number behind the word at the begin of the next line. */
static pid_t read_pid(int fd, const char *word)
{
	char line[256];
	read_line(fd, line);
	assert_true(!strncmp(line, word, strlen(word)));
	return (pid_t)atoi(line + strlen(word));
}

/* Waits until no process has the pipe, and reads what they wrote. */
static void read_rest(int fd, char *text, size_t size)
{
	size_t len = 0;
	ssize_t n = 1;
	while (n && len < size - 1) {
		assert_true(readable(fd));
		n = read(fd, text + len, size - 1 - len);
		assert_true(n >= 0);
		len += (size_t)n;
	}
	text[len] = '\0';
}

static void await_end(struct play *y, struct task_end *end)
{
	struct err e = ERR_INIT;
	int rc;
	while (!(rc = task_process_poll(y->p, end, &e)))
		assert_true(readable(task_process_fd(y->p)));
	if (rc < 0)
		fail_msg("%s", e.text);
}

static bool exists(pid_t pid)
{
	return !kill(pid, 0);
}

/* Closes, and holds the agent to it that nothing is left, neither running nor as a zombie. */
static void close_play(struct play *y, struct task_left *left)
{
	char text[4096];
	struct err e = ERR_INIT;
	if (task_process_close(y->p, left, &e))
		fail_msg("%s", e.text);
	read_rest(y->out, text, sizeof text);
	close(y->out);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

/* --- What the program gets --- */

static void the_program_gets_a_clean_state(void **state)
{
	(void)state;
	char text[4096], hello[8] = "", *argv[] = { self, "state", NULL };
	int pair[2], extra = open("/dev/null", O_RDONLY); /* not close-on-exec */
	struct play y;
	struct task_end end;
	struct err e = ERR_INIT;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	struct rlimit was, small;
	getrlimit(RLIMIT_STACK, &was);
	small = (struct rlimit){ 777 * 1024, was.rlim_max };
	setrlimit(RLIMIT_STACK, &small);
	setenv(TASK_CLIENT_ENV, "99", 1);
	signal(SIGXFSZ, SIG_IGN);
	sigset_t usr1, before;
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, &before);
	int rc = start_play(&y, argv, environ, pair[1], 0, &e);
	sigprocmask(SIG_SETMASK, &before, NULL);
	signal(SIGXFSZ, SIG_DFL);
	setrlimit(RLIMIT_STACK, &was);
	close(extra);
	close(pair[1]);
	assert_int_equal(rc, 0);
	await_end(&y, &end);
	assert_true(WIFEXITED(end.status));
	assert_int_equal(WEXITSTATUS(end.status), 3);
	read_rest(y.out, text, sizeof text);
	assert_string_equal(text,
			    "open 3\nmask 027 stack 795648 leader 1 session 1 client 3 null 1 "
			    "death 9\n");
	assert_int_equal(read(pair[0], hello, 5), 5);
	assert_string_equal(hello, "hello");
	close(pair[0]);
	close_play(&y, NULL);
}

static void without_a_client_channel_there_is_no_variable(void **state)
{
	(void)state;
	char text[4096];
	struct play y;
	setenv(TASK_CLIENT_ENV, "99", 1);
	play(&y, "state", 0);
	unsetenv(TASK_CLIENT_ENV);
	read_rest(y.out, text, sizeof text);
	assert_true(!strncmp(text, "mask 027 ", 9)); /* so no descriptor is open */
	assert_non_null(strstr(text, "client none"));
	close_play(&y, NULL);
}

static void the_keeper_has_no_descriptor_of_the_agent(void **state)
{
	(void)state;
	int fds[2];
	char c;
	struct play y;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	int kept = fcntl(fds[1], F_DUPFD, 50); /* not close-on-exec */
	play(&y, "stubborn", 0);
	read_pid(y.out, "program ");
	close(fds[1]);
	close(kept);
	assert_true(readable(fds[0]));
	assert_int_equal(read(fds[0], &c, 1), 0);
	close(fds[0]);
	close_play(&y, NULL);
}

static void words_and_variables_arrive_unchanged(void **state)
{
	(void)state;
	char text[4096];
	char *argv[] = { "sh",   "-c", "printf '%s|' \"$@\" \"$A\" \"$0\"", "zero", "", "a b",
			 "*'\n", NULL };
	char *env[] = { "A=x=y ", "PATH=/usr/bin:/bin", NULL };
	struct play y;
	assert_int_equal(start_play(&y, argv, env, -1, 0, NULL), 0);
	read_rest(y.out, text, sizeof text);
	assert_string_equal(text, "|a b|*'\n|x=y |zero|");
	close_play(&y, NULL);
}

/* --- What cannot be executed --- */

static void expect_failure(char *program, char *const *env, enum err_code code, const char *cause)
{
	struct err e = ERR_INIT;
	struct play y;
	char *argv[] = { program, NULL };
	assert_int_equal(start_play(&y, argv, env, -1, 0, &e), -1);
	close(y.out);
	if (e.code != code || !strstr(e.text, cause))
		fail_msg("%s: %s", err_word(e.code), e.text);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void a_program_that_cannot_be_executed_is_an_error(void **state)
{
	(void)state;
	char dir[64], script[100], *bare[] = { "PATH=/nowhere", NULL };
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(script, sizeof script, "%s/script", dir);
	FILE *f = fopen(script, "w");
	fputs("#!/nowhere/python\n", f);
	fclose(f);
	expect_failure("python3x", environ, ERR_NOTFOUND,
		       "job.program: python3x: not found in PATH; ");
	expect_failure("sh", bare, ERR_NOTFOUND, "(PATH is /nowhere)");
	expect_failure("/nowhere/x", environ, ERR_NOTFOUND, "not found on this node");
	expect_failure("", environ, ERR_USAGE, "empty");
	chmod(script, 0600);
	expect_failure(script, environ, ERR_DENIED, "chmod +x");
	expect_failure(dir, environ, ERR_DENIED, "may not be executed");
	chmod(script, 0700);
	expect_failure(script, environ, ERR_NOTFOUND, "interpreter");
	unlink(script);
	rmdir(dir);
}

static void the_program_comes_from_the_path_of_its_own_environment(void **state)
{
	(void)state;
	char dir[64], file[100], path[100], *env[] = { path, NULL }, *argv[] = { "mine", NULL },
					    text[100];
	struct play y;
	assert_non_null(tmpdir_make(dir, sizeof dir));
	snprintf(file, sizeof file, "%s/mine", dir);
	snprintf(path, sizeof path, "PATH=/nowhere:%s", dir);
	FILE *f = fopen(file, "w");
	fputs("#!/bin/sh\necho mine\n", f);
	fclose(f);
	chmod(file, 0700);
	assert_int_equal(start_play(&y, argv, env, -1, 0, NULL), 0);
	read_rest(y.out, text, sizeof text);
	assert_string_equal(text, "mine\n");
	close_play(&y, NULL);
	unlink(file);
	rmdir(dir);
}

/* --- The end --- */

static void the_exit_status_is_reported(void **state)
{
	(void)state;
	struct play y;
	struct task_end end;
	struct task_left left;
	sh(&y, "exit 37");
	await_end(&y, &end);
	assert_true(WIFEXITED(end.status));
	assert_int_equal(WEXITSTATUS(end.status), 37);
	assert_true(end.rss > 10000);
	close_play(&y, &left);
	assert_int_equal(left.killed, 0);
	assert_string_equal(left.name, "");
}

static void the_signal_is_reported(void **state)
{
	(void)state;
	struct play y;
	struct task_end end;
	sh(&y, "kill -SEGV $$");
	await_end(&y, &end);
	assert_true(WIFSIGNALED(end.status));
	assert_int_equal(WTERMSIG(end.status), SIGSEGV);
	close_play(&y, NULL);
}

static void a_signal_goes_to_the_process_group(void **state)
{
	(void)state;
	struct play y;
	struct task_end end;
	play(&y, "group", 0);
	pid_t child = read_pid(y.out, "ready ");
	task_process_signal(y.p, SIGTERM);
	assert_int_equal(read_pid(y.out, "child "), child);
	await_end(&y, &end);
	assert_int_equal(WEXITSTATUS(end.status), 5);
	close_play(&y, NULL);
}

static void a_program_that_ignores_sigterm_is_killed(void **state)
{
	(void)state;
	struct play y;
	struct task_end end;
	play(&y, "stubborn", 0);
	assert_int_equal(read_pid(y.out, "program "), task_process_pid(y.p));
	task_process_signal(y.p, SIGTERM);
	assert_int_equal(task_process_poll(y.p, &end, NULL), 0);
	task_process_kill(y.p);
	await_end(&y, &end);
	assert_true(WIFSIGNALED(end.status));
	assert_int_equal(WTERMSIG(end.status), SIGKILL);
	close_play(&y, NULL);
}

/* --- What is left --- */

static void a_daemon_does_not_survive_the_program(void **state)
{
	(void)state;
	struct play y;
	struct task_end end;
	struct task_left left;
	play(&y, "daemon", 0.01);
	pid_t daemon = read_pid(y.out, "daemon ");
	await_end(&y, &end);
	assert_int_equal(WEXITSTATUS(end.status), 7);
	close_play(&y, &left);
	assert_false(exists(daemon));
	assert_int_equal(left.killed, 1);
	assert_true(!strncmp(left.name, strrchr(self, '/') + 1, 15)); /* that the kernel keeps */
}

static void workers_that_end_within_the_grace_are_not_killed(void **state)
{
	(void)state;
	char *argv[] = { self, "worker", NULL };
	int pair[2];
	struct play y;
	struct task_end end;
	struct task_left left;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(start_play(&y, argv, environ, pair[1], PATIENT_WAIT_S, NULL), 0);
	close(pair[1]);
	await_end(&y, &end);
	assert_int_equal(end.status, 0);
	assert_int_equal(write(pair[0], "", 1), 1);
	close_play(&y, &left);
	assert_int_equal(left.killed, 0);
	close(pair[0]);
}

static void closing_ends_a_program_that_runs(void **state)
{
	(void)state;
	struct play y;
	struct task_left left;
	play(&y, "stayer", PATIENT_WAIT_S);
	pid_t daemon = read_pid(y.out, "daemon "), program = read_pid(y.out, "program ");
	close_play(&y, &left);
	assert_false(exists(daemon));
	assert_false(exists(program));
	assert_int_equal(left.killed, 1); /* the program itself does not count */
}

static void zombies_are_waited_for(void **state)
{
	(void)state;
	struct play y;
	play(&y, "zombies", 0);
	pid_t parent = read_pid(y.out, "parent ");
	close_play(&y, NULL);
	assert_false(exists(parent));
}

static void nothing_survives_a_killed_keeper(void **state)
{
	(void)state;
	struct play y;
	struct task_end end;
	struct err e = ERR_INIT;
	play(&y, "stayer", PATIENT_WAIT_S);
	pid_t daemon = read_pid(y.out, "daemon "), program = read_pid(y.out, "program ");
	pid_t bystander = fork(); /* a child that the agent started for something else */
	if (!bystander)
		stay();
	kill(task_process_keeper(y.p), SIGKILL);
	while (!task_process_poll(y.p, &end, &e))
		assert_true(readable(task_process_fd(y.p)));
	assert_int_equal(e.code, ERR_TASK);
	assert_true(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGKILL);
	assert_false(exists(daemon));
	assert_false(exists(program));
	assert_true(exists(bystander));
	kill(bystander, SIGKILL);
	assert_int_equal(waitpid(bystander, NULL, 0), bystander);
	close_play(&y, NULL);
}

static void nothing_survives_a_killed_agent(void **state)
{
	(void)state;
	int fds[2];
	char text[100];
	prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that this test can wait for the keeper */
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid_t agent = fork();
	if (!agent) {
		struct task_process *p;
		char *argv[] = { self, "stayer", NULL };
		struct task_start s = { .argv = argv,
					.env = environ,
					.out = fds[1],
					.err = fds[1],
					.client = -1,
					.grace_s = PATIENT_WAIT_S,
					.patience_s = PATIENT_WAIT_S };
		close(fds[0]);
		if (task_process_start(&s, &p, NULL))
			_exit(1);
		close(fds[1]);
		stay();
	}
	close(fds[1]);
	pid_t daemon = read_pid(fds[0], "daemon "), program = read_pid(fds[0], "program ");
	assert_true(exists(daemon) && exists(program));
	kill(agent, SIGKILL);
	read_rest(fds[0], text, sizeof text);
	close(fds[0]);
	while (waitpid(-1, NULL, 0) > 0) /* the agent and the keeper */
		;
	assert_false(exists(daemon));
	assert_false(exists(program));
}

/* --- */

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof programs / sizeof *programs; i++)
		if (!strcmp(argv[1], programs[i].word))
			return programs[i].main();
	if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_program_gets_a_clean_state),
		cmocka_unit_test(without_a_client_channel_there_is_no_variable),
		cmocka_unit_test(the_keeper_has_no_descriptor_of_the_agent),
		cmocka_unit_test(words_and_variables_arrive_unchanged),
		cmocka_unit_test(a_program_that_cannot_be_executed_is_an_error),
		cmocka_unit_test(the_program_comes_from_the_path_of_its_own_environment),
		cmocka_unit_test(the_exit_status_is_reported),
		cmocka_unit_test(the_signal_is_reported),
		cmocka_unit_test(a_signal_goes_to_the_process_group),
		cmocka_unit_test(a_program_that_ignores_sigterm_is_killed),
		cmocka_unit_test(a_daemon_does_not_survive_the_program),
		cmocka_unit_test(workers_that_end_within_the_grace_are_not_killed),
		cmocka_unit_test(closing_ends_a_program_that_runs),
		cmocka_unit_test(zombies_are_waited_for),
		cmocka_unit_test(nothing_survives_a_killed_keeper),
		cmocka_unit_test(nothing_survives_a_killed_agent),
	};
	return cmocka_run_group_tests_name("task_process", tests, NULL, NULL);
}
