/* A child never runs the launcher's signal handlers. */
#include "launcher/fork.h"
#include "launcher/pmix/spawn.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static int received[2];

static void on_signal(int number)
{
	unsigned char byte = (unsigned char)number;
	if (write(received[1], &byte, 1) != 1)
		abort();
}

static int status_of(pid_t pid)
{
	int status = -1;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void a_signal_before_the_reset_is_dropped(void **state)
{
	(void)state;
	char byte;
	assert_int_equal(pipe(received), 0);
	signal(SIGINT, on_signal);
	pid_t pid = launcher_fork_blocked();
	if (pid == 0) {
		raise(SIGINT);
		launcher_fork_reset_signals();
		_exit(7);
	}
	assert_int_equal(WEXITSTATUS(status_of(pid)), 7);
	close(received[1]);
	assert_int_equal(read(received[0], &byte, 1), 0);
	close(received[0]);
	signal(SIGINT, SIG_DFL);
}

static void signals_after_the_reset_have_the_default_action(void **state)
{
	(void)state;
	struct sigaction now;
	int go[2]; /* the child may end only when SIGCHLD has its default action again */
	char byte;
	assert_int_equal(pipe(go), 0);
	signal(SIGTERM, on_signal);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* a careless parent of the launcher may have set this */
	signal(SIGHUP, SIG_IGN);
	pid_t pid = launcher_fork_blocked();
	if (pid == 0) {
		launcher_fork_reset_signals();
		if (sigaction(SIGCHLD, NULL, &now) || now.sa_handler != SIG_DFL)
			_exit(8);
		close(go[1]);
		if (read(go[0], &byte, 1))
			_exit(9);
		raise(SIGHUP); /* nohup sets this */
		raise(SIGTERM);
		_exit(7);
	}
	signal(SIGCHLD, SIG_DFL);
	close(go[0]);
	close(go[1]);
	int status = status_of(pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	pid = launcher_fork_blocked();
	if (pid == 0) {
		launcher_fork_reset_signals();
		raise(SIGPIPE);
		_exit(7);
	}
	status = status_of(pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
}

/* Without this, a loop that waits for the end of an agent would never see it and would run for
 * ever. */
static void a_process_that_somebody_else_has_waited_for_has_ended(void **state)
{
	(void)state;
	int status = -1;
	pid_t pid = launcher_fork_blocked();
	if (pid == 0)
		_exit(0);
	status_of(pid);
	assert_int_equal(local_spawn_reap(pid, &status), 1);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 255);
}

static void the_parent_still_receives_signals(void **state)
{
	(void)state;
	sigset_t now;
	pid_t pid = launcher_fork_blocked();
	if (pid == 0)
		_exit(0);
	status_of(pid);
	assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &now), 0);
	assert_int_equal(sigismember(&now, SIGINT), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_signal_before_the_reset_is_dropped),
		cmocka_unit_test(signals_after_the_reset_have_the_default_action),
		cmocka_unit_test(a_process_that_somebody_else_has_waited_for_has_ended),
		cmocka_unit_test(the_parent_still_receives_signals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
