/* debugger: runs gdb or eu-stack. */
#include "agent/stacks/frames.h"
#include "base/clock.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_MAX = 4 << 20, CHUNK = 8192, NOT_INSTALLED = 127 };

/* Neither reads files of the current folder or of a home, asks a server for symbols, or prints
 * arguments, which may be secrets. */
static char *const gdb[] = { (char[]){ "gdb" },
			     (char[]){ "--nx" },
			     (char[]){ "--batch" },
			     (char[]){ "-iex" },
			     (char[]){ "set auto-load off" },
			     (char[]){ "-iex" },
			     (char[]){ "set debuginfod enabled off" },
			     (char[]){ "-iex" },
			     (char[]){ "set width 0" },
			     (char[]){ "-iex" },
			     (char[]){ "set print frame-arguments none" },
			     (char[]){ "-iex" },
			     (char[]){ "set print entry-values no" },
			     (char[]){ "-p" },
			     NULL, /* the process */
			     (char[]){ "-ex" },
			     (char[]){ "thread apply all bt 64" },
			     NULL };
static char *const eu_stack[] = { (char[]){ "eu-stack" },
				  (char[]){ "-m" },
				  (char[]){ "-n" },
				  (char[]){ "64" },
				  (char[]){ "-p" },
				  NULL, /* the process */
				  NULL };

enum { GDB_WORDS = sizeof gdb / sizeof *gdb, EU_STACK_WORDS = sizeof eu_stack / sizeof *eu_stack };

/* In the child. It dies with the process that started it, and then the kernel lets the threads
 * go. */
static void execute(char *const *words, int n, int pid, int out)
{
	char number[16], *argv[GDB_WORDS + EU_STACK_WORDS];
	int null = open("/dev/null", O_RDONLY);
	snprintf(number, sizeof number, "%d", pid);
	for (int i = 0; i < n; i++)
		argv[i] = words[i] || i == n - 1 ? words[i] : number;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	process_signals();
	if (null >= 0)
		dup2(null, 0);
	dup2(out, 1);
	dup2(out, 2);
	unsetenv("DEBUGINFOD_URLS");
	execvp(argv[0], argv);
	_exit(NOT_INSTALLED);
}

/* Reads until the end of the output, or until the time is over: false. */
static bool read_output(int fd, double end, struct buf *out)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		double left = end - clock_s();
		if (left <= 0)
			return false;
		if (poll(&p, 1, (int)(left * 1000) + 1) < 1)
			continue;
		char chunk[CHUNK];
		ssize_t n = read(fd, chunk, sizeof chunk);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return true;
		if (out->len < OUTPUT_MAX)
			buf_add(out, chunk, (size_t)n);
	}
}

static int run(char *const *words, int n, int pid, double end, struct buf *out, struct err *e)
{
	int fds[2], status = 0;
	if (pipe2(fds, O_CLOEXEC))
		return err_errno(e, ERR_NOMEM, "%s: no descriptors", words[0]);
	pid_t child = fork();
	if (!child)
		execute(words, n, pid, fds[1]);
	close(fds[1]);
	bool ended = child > 0 && read_output(fds[0], end, out);
	close(fds[0]);
	if (child < 0)
		return err_errno(e, ERR_NOMEM, "%s: no process", words[0]);
	if (!ended)
		kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (!ended)
		return err_set(e, ERR_TIMEOUT, "%s took too long and was killed", words[0]);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_INSTALLED)
		return err_set(e, ERR_NOTFOUND, "%s is not installed", words[0]);
	return 0;
}

int stacks_debug(int pid, double seconds, struct buf *out, struct err *e)
{
	static const struct {
		char *const *words;
		int n;
	} programs[] = { { gdb, GDB_WORDS }, { eu_stack, EU_STACK_WORDS } };
	double end = clock_s() + seconds;
	int rc = -1;
	for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
		struct err why = ERR_INIT;
		rc = run(programs[i].words, programs[i].n, pid, end, out, &why);
		if (!rc || why.code != ERR_NOTFOUND)
			return rc ? err_set(e, why.code, "%s", why.text) : 0;
	}
	return err_set(e, ERR_NOTFOUND,
		       "neither gdb nor eu-stack (elfutils) is installed, so the functions are not "
		       "known");
}
