/* Tests that a program starts in the same state, whatever its parent left it. Tests what it
 * reports about its limits. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* Returns the exit status of a check that runs in its own process. */
static int status_of(int (*check)(void))
{
	int status = -1;
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0)
		_exit(check());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void ignore_everything(void)
{
	sigset_t all;
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_IGN);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
}

/* Returns the number of the first signal whose state is wrong, or 0 if all are correct. */
static int first_wrong(void)
{
	struct sigaction now;
	sigset_t mask;
	ignore_everything();
	process_begin();
	if (sigprocmask(SIG_BLOCK, NULL, &mask))
		return 200;
	for (int number = 1; number < NSIG; number++) {
		bool ignored = number == SIGHUP || number == SIGXFSZ;
		if (sigaction(number, NULL, &now))
			continue;
		if (now.sa_handler != (ignored ? SIG_IGN : SIG_DFL) ||
		    sigismember(&mask, number) == 1)
			return number;
	}
	return 0;
}

static void every_signal_has_its_default_action(void **state)
{
	(void)state;
	assert_int_equal(status_of(first_wrong), 0);
}

static int blocked_termination(void)
{
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	raise(SIGTERM);
	process_begin();
	return 0;
}

static void a_blocked_signal_that_waits_is_delivered(void **state)
{
	(void)state;
	int status = status_of(blocked_termination);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static int closed_streams(void)
{
	close(0);
	close(1);
	close(2);
	process_begin();
	int fd = open("/dev/null", O_RDONLY);
	return fd > 2 && write(1, "lost", 4) == 4 && write(2, "lost", 4) == 4 ? 0 : 1;
}

static void no_file_gets_a_standard_stream_s_number(void **state)
{
	(void)state;
	assert_int_equal(status_of(closed_streams), 0);
}

static int strict_umask(void)
{
	umask(0777);
	process_begin();
	return umask(0) != 077 || process_inherited_umask() != 0777;
}

static void the_umask_is_that_of_private_files(void **state)
{
	(void)state;
	assert_int_equal(status_of(strict_umask), 0);
}

static int large_write(void)
{
	char text[4096] = "";
	struct rlimit limit = { 1024, 1024 };
	process_begin();
	FILE *file = tmpfile();
	setrlimit(RLIMIT_FSIZE, &limit);
	if (write(fileno(file), text, sizeof text) != 1024)
		return 1;
	return write(fileno(file), text, 1) != -1 || errno != EFBIG ||
	       !strstr(process_write_remedy(errno), "ulimit -f");
}

static void the_limit_of_file_sizes_is_an_error_and_kills_nobody(void **state)
{
	(void)state;
	assert_int_equal(status_of(large_write), 0);
	assert_non_null(strstr(process_write_remedy(ENOSPC), "free some room"));
	assert_string_equal(process_write_remedy(EIO), "");
}

/* The limit is 0.5 GiB above what this process uses now. */
static int little_room(void)
{
	struct err e = ERR_INIT;
	unsigned long pages = 0;
	FILE *statm = fopen("/proc/self/statm", "re");
	if (!statm || fscanf(statm, "%lu", &pages) != 1 || process_address_limit() ||
	    process_check_memory("a thing", 1e18, &e))
		return 1;
	fclose(statm);
	rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1 << 29);
	setrlimit(RLIMIT_AS, &(struct rlimit){ most, most });
	if (process_address_limit() != (double)most || process_check_memory("a thing", 1 << 20, &e))
		return 2;
	if (!process_check_memory("a thing", 1 << 30, &e) || e.code != ERR_NOMEM)
		return 3;
	return !strstr(e.text, "a thing") || !strstr(e.text, "ulimit -v");
}

static void too_little_address_space_is_reported(void **state)
{
	(void)state;
	assert_int_equal(status_of(little_room), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_signal_has_its_default_action),
		cmocka_unit_test(a_blocked_signal_that_waits_is_delivered),
		cmocka_unit_test(no_file_gets_a_standard_stream_s_number),
		cmocka_unit_test(the_umask_is_that_of_private_files),
		cmocka_unit_test(the_limit_of_file_sizes_is_an_error_and_kills_nobody),
		cmocka_unit_test(too_little_address_space_is_reported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
