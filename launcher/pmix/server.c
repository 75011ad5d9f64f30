#include "launcher/pmix/server.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "launcher/fork.h"
#include "launcher/pmix/register.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The first byte of the process's answer. The environments or the error's text follow. */
enum answer { ANSWER_READY = 'r', ANSWER_FAILED = 'f' };

static const double answer_s = 20; /* starting takes about 10 ms */

struct local_server {
	pid_t pid;
	int world;
	char dir[RUN_PATH];
	struct buf answer;
	char **words; /* all ranks' variables, pointers into `answer`; each rank's end with NULL */
	char ***env;  /* world */
};

/* The contents of the folder are removed without a look. Its name is hidden, because a user may
 * have a folder "pmix" here. */
static int make_dir(struct local_server *s, const char *run_dir, struct err *e)
{
	run_path(s->dir, run_dir, RUN_PMIX);
	if (strlen(s->dir) >= PATH_MAX)
		return err_set(e, ERR_USAGE,
			       "%s: the path is too long; choose a shorter run_dir or name",
			       run_dir);
	file_remove_tree(s->dir); /* left by a launcher that was killed */
	return file_make_own_dir(s->dir, e);
}

/* The forked process: answers, then waits to be killed. */
static void run_server(const struct local_server *s, const char *nspace, int out, int log_fd,
		       pid_t launcher)
{
	/* the launcher handles these */
	static const int unwanted[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
	struct buf answer = BUF_INIT;
	struct err e = ERR_INIT;
	sigset_t none;
	for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
		signal(unwanted[i], SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_NAME, "muster-pmix");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	if (getppid() != launcher || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0 || dup2(out, 3) < 0)
		_exit(1);
	close_range(4, ~0U, 0);
	char word = ANSWER_READY;
	buf_add(&answer, &word, 1);
	if (local_register_ranks(nspace, s->world, s->dir, &answer, &e)) {
		buf_clear(&answer);
		buf_printf(&answer, "%c%s", ANSWER_FAILED, e.text);
	}
	if (buf_failed(&answer) || file_write_full(3, answer.data, answer.len))
		_exit(1);
	close(3);
	for (;;)
		pause();
}

/* Reads to the end of the stream: the process closes it after its answer. */
static int read_answer(struct local_server *s, int fd, struct err *e)
{
	double end = clock_s() + answer_s;
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		double left = end - clock_s();
		int ready = poll(&p, 1, left > 0 ? (int)(left * 1e3) + 1 : 0);
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return err_set(
				e, ERR_TIMEOUT,
				"the PMIx server did not start within %g s; read its output in "
				"logs/ of the run folder",
				answer_s);
		char *to = buf_room(&s->answer, 65536);
		ssize_t n = to ? read(fd, to, 65536) : -1;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, ERR_IO, "cannot read the PMIx server's answer");
		if (n == 0)
			return 0;
		s->answer.len += (size_t)n;
	}
}

/* Splits the answer into variables. */
static int parse_answer(struct local_server *s, struct err *e)
{
	const char *text = buf_str(&s->answer);
	if (s->answer.len && *text == ANSWER_FAILED)
		return err_set(e, ERR_INTERNAL, "%.*s", (int)s->answer.len - 1, text + 1);
	if (!s->answer.len || *text != ANSWER_READY)
		return err_set(
			e, ERR_PEER,
			"the PMIx server's process ended while it started; read its output in "
			"logs/ of the run folder");
	/* each variable has at least its NUL */
	s->words = calloc(s->answer.len + 1, sizeof *s->words);
	s->env = calloc((size_t)s->world, sizeof *s->env);
	if (!s->words || !s->env)
		return err_set(e, ERR_NOMEM, "no memory for the environment of %d ranks", s->world);
	char **word = s->words, *at = s->answer.data + 1, *end = s->answer.data + s->answer.len;
	for (int r = 0; r < s->world; r++) {
		s->env[r] = word;
		for (; at < end && *at; at += strlen(at) + 1)
			*word++ = at;
		if (at++ >= end)
			return err_set(e, ERR_PEER,
				       "the PMIx server's process ended while it answered");
		*word++ = NULL;
	}
	return 0;
}

static int fork_server(struct local_server *s, const char *nspace, int log_fd, int *answer,
		       struct err *e)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC))
		return err_errno(e, ERR_NOMEM, "cannot create a pipe (ulimit -n prints the limit)");
	pid_t launcher = getpid();
	s->pid = launcher_fork_blocked();
	if (s->pid == 0)
		run_server(s, nspace, ends[1], log_fd, launcher);
	close(ends[1]);
	if (s->pid < 0) {
		close(ends[0]);
		return err_errno(
			e, ERR_NOMEM,
			"cannot start the PMIx server's process (ulimit -u prints the limit)");
	}
	*answer = ends[0];
	return 0;
}

int local_server_open(const char *nspace, int world, const char *run_dir, int log_fd,
		      struct local_server **out, struct err *e)
{
	struct local_server *s = calloc(1, sizeof *s);
	int answer = -1;
	if (!s)
		return err_set(e, ERR_NOMEM, "no memory for the PMIx server");
	s->world = world;
	s->pid = -1;
	if (make_dir(s, run_dir, e) || fork_server(s, nspace, log_fd, &answer, e)) {
		local_server_close(s);
		return -1;
	}
	int rc = read_answer(s, answer, e);
	close(answer);
	if (rc || parse_answer(s, e)) {
		local_server_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

void local_server_close(struct local_server *s)
{
	if (!s)
		return;
	if (s->pid > 0) {
		kill(s->pid, SIGKILL);
		while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (*s->dir)
		file_remove_tree(s->dir);
	free(s->env);
	free(s->words);
	buf_fini(&s->answer);
	free(s);
}

char *const *local_server_env(const struct local_server *s, int rank)
{
	return s->env[rank];
}
