/* debugger: runs gdb, eu-stack or py-spy. */
#include "agent/stacks/frames.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/program.h"

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

/* It reads the memory of the process without stopping it. */
static char *const py_spy[] = { (char[]){ "py-spy" },
				(char[]){ "dump" },
				(char[]){ "--nonblocking" },
				(char[]){ "--full-filenames" },
				(char[]){ "--pid" },
				NULL, /* the process */
				NULL };

enum {
	GDB_WORDS = sizeof gdb / sizeof *gdb,
	EU_STACK_WORDS = sizeof eu_stack / sizeof *eu_stack,
	PY_SPY_WORDS = sizeof py_spy / sizeof *py_spy
};

/* Those for one language are tried in this order. */
static const struct debugger_kind {
	enum debugger_reads reads;
	char *const *words;
	int n;
} kinds[] = {
	{ DEBUGGER_NATIVE, gdb, GDB_WORDS },
	{ DEBUGGER_NATIVE, eu_stack, EU_STACK_WORDS },
	{ DEBUGGER_PYTHON, py_spy, PY_SPY_WORDS },
};

/* What the child executes. It is complete before the fork, because another thread may hold the lock
 * of malloc or of the environment then. */
struct debugger {
	char number[16], *argv[GDB_WORDS + EU_STACK_WORDS];
	char **env;
	struct program program;
};

static void debugger_fini(struct debugger *d)
{
	program_close(&d->program);
	free(d->env);
}

/* The environment without the servers of symbols. */
static char **own_environment(void)
{
	static const char servers[] = "DEBUGINFOD_URLS=";
	size_t n = 0, kept = 0;
	while (environ[n])
		n++;
	char **env = calloc(n + 1, sizeof *env);
	for (size_t i = 0; env && i < n; i++)
		if (strncmp(environ[i], servers, sizeof servers - 1))
			env[kept++] = environ[i];
	return env;
}

static int debugger_init(struct debugger *d, char *const *words, int n, int pid, struct err *e)
{
	snprintf(d->number, sizeof d->number, "%d", pid);
	for (int i = 0; i < n; i++)
		d->argv[i] = words[i] || i == n - 1 ? words[i] : d->number;
	d->env = own_environment();
	d->program = (struct program){ 0 };
	if (d->env && !program_open(&d->program, d->argv))
		return 0;
	debugger_fini(d);
	return err_set(e, ERR_NOMEM, "%s: no memory to start it", words[0]);
}

/* In the child. It dies with the process that started it, and then the kernel lets the threads
 * go. */
static void execute(const struct debugger *d, int out)
{
	int null = open("/dev/null", O_RDONLY);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	process_signals();
	if (null >= 0)
		dup2(null, 0);
	dup2(out, 1);
	dup2(out, 2);
	program_execute(&d->program, d->argv, d->env);
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

static int run(const struct debugger *d, double end, struct buf *out, struct err *e)
{
	char *const *words = d->argv;
	int fds[2], status = 0;
	if (pipe2(fds, O_CLOEXEC))
		return err_errno(e, ERR_NOMEM, "%s: no descriptors", words[0]);
	pid_t child = fork();
	if (!child)
		execute(d, fds[1]);
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

int stacks_debug(enum debugger_reads what, int pid, double seconds, struct buf *out, struct err *e)
{
	static const char *const missing[] = {
		"neither gdb nor eu-stack (elfutils) is installed, so the functions are not known",
		"py-spy is not installed, so the functions of Python are not known"
	};
	double end = clock_s() + seconds;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct err why = ERR_INIT;
		struct debugger d;
		if (kinds[i].reads != what)
			continue;
		if (debugger_init(&d, kinds[i].words, kinds[i].n, pid, e))
			return -1;
		int rc = run(&d, end, out, &why);
		debugger_fini(&d);
		if (!rc || why.code != ERR_NOTFOUND)
			return rc ? err_set(e, why.code, "%s", why.text) : 0;
	}
	return err_set(e, ERR_NOTFOUND, "%s", missing[what]);
}
