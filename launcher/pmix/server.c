#include "launcher/pmix/server.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "launcher/fork.h"
#include "launcher/pmix/exchange.h"
#include "launcher/pmix/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const double answer_s = 20; /* starting takes about 10 ms */
static const int end_ms = 5000;    /* removing takes some milliseconds, more on a busy disk */
static const time_t send_s = 10;   /* a process that takes nothing for so long is stuck */

struct local_server {
	pid_t pid;
	int fd;    /* frames (frame.h) from and to the process; -1: it does not run */
	int ranks; /* of this node */
	char dir[RUN_PATH];
	struct buf in;
	char *env_text; /* all ranks' variables */
	char **words;   /* pointers into env_text; each rank's end with NULL */
	char ***env;    /* ranks */
};

static int make_dir(struct local_server *s, const char *dir, struct err *e)
{
	if (strlen(dir) >= PATH_MAX)
		return err_set(e, ERR_USAGE,
			       "%s: the path is too long; choose a shorter run_dir or name", dir);
	snprintf(s->dir, sizeof s->dir, "%s", dir);
	file_remove_tree(s->dir); /* left by an owner that was killed */
	return file_make_own_dir(s->dir, e);
}

/* Makes `fd` descriptor 3 of this process, the log 1 and 2, and closes all others. */
static int keep_descriptors(int fd, int log_fd)
{
	if (dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0 || dup2(fd, 3) < 0)
		return -1;
	close_range(4, ~0U, 0);
	return 0;
}

/* The forked process: answers, exchanges frames, and ends with its owner. */
static _Noreturn void run_server(const struct local_server *s, const struct local_group *g, int fd,
				 int log_fd, pid_t owner)
{
	/* the owner handles these */
	static const int unwanted[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
	struct buf env = BUF_INIT, answer = BUF_INIT;
	struct err e = ERR_INIT;
	sigset_t none;
	for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
		signal(unwanted[i], SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_NAME, "muster-pmix");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	if (getppid() != owner || keep_descriptors(fd, log_fd))
		_exit(1);
	if (local_register_ranks(g, s->dir, &env, &e))
		local_frame_add(&answer, LOCAL_FRAME_FAILED, e.text, strlen(e.text));
	else
		local_frame_add(&answer, LOCAL_FRAME_READY, env.data, env.len);
	if (buf_failed(&answer) || file_write_full(3, answer.data, answer.len))
		_exit(1);
	local_exchange_serve(3);
	local_unregister_ranks(g);
	_exit(0);
}

static int set_ended(struct err *e)
{
	return err_set(e, ERR_PEER,
		       "the PMIx server's process ended while it started; read its output in "
		       "logs/ of the run folder");
}

/* Waits for the first frame, and leaves it in s->in. */
static int await_answer(struct local_server *s, enum local_frame *type, char **data, size_t *len,
			struct err *e)
{
	double end = clock_s() + answer_s;
	while (!local_frame_peek(&s->in, type, data, len)) {
		struct pollfd p = { .fd = s->fd, .events = POLLIN };
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
		if (local_frame_receive(s->fd, &s->in) >= 0)
			continue;
		return errno && errno != ECONNRESET
			       ? err_errno(e, ERR_IO, "cannot read the PMIx server's answer")
			       : set_ended(e);
	}
	return 0;
}

/* Splits the environments into variables. */
static int parse_environments(struct local_server *s, const char *text, size_t len, struct err *e)
{
	s->env_text = malloc(len + 1);
	/* each variable has at least its NUL */
	s->words = calloc(len + 1, sizeof *s->words);
	s->env = calloc((size_t)s->ranks + 1, sizeof *s->env);
	if (!s->env_text || !s->words || !s->env)
		return err_set(e, ERR_NOMEM, "no memory for the environment of %d ranks", s->ranks);
	memcpy(s->env_text, text, len);
	s->env_text[len] = '\0';
	char **word = s->words, *at = s->env_text, *end = s->env_text + len;
	for (int r = 0; r < s->ranks; r++) {
		s->env[r] = word;
		for (; at < end && *at; at += strlen(at) + 1)
			*word++ = at;
		if (at++ >= end)
			return set_ended(e);
		*word++ = NULL;
	}
	return 0;
}

static int read_answer(struct local_server *s, struct err *e)
{
	enum local_frame type = LOCAL_FRAME_FAILED;
	char *data = NULL;
	size_t len = 0;
	if (await_answer(s, &type, &data, &len, e))
		return -1;
	int rc = type == LOCAL_FRAME_READY ? parse_environments(s, data, len, e)
					   : err_set(e, ERR_INTERNAL, "%.*s", (int)len, data);
	local_frame_drop(&s->in);
	return rc;
}

static int fork_server(struct local_server *s, const struct local_group *g, int log_fd,
		       struct err *e)
{
	int ends[2];
	const struct timeval limit = { .tv_sec = send_s };
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return err_errno(e, ERR_NOMEM,
				 "cannot create sockets (ulimit -n prints the limit)");
	setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	pid_t owner = getpid();
	s->fd = ends[0];
	s->pid = launcher_fork_blocked();
	if (s->pid == 0)
		run_server(s, g, ends[1], log_fd, owner);
	close(ends[1]);
	if (s->pid < 0)
		return err_errno(
			e, ERR_NOMEM,
			"cannot start the PMIx server's process (ulimit -u prints the limit)");
	return 0;
}

static int count_ranks(const struct local_group *g)
{
	int n = 0;
	for (int r = 0; r < g->world; r++)
		n += !g->node_of || g->node_of[r] == g->node;
	return n;
}

int local_server_open(const struct local_group *g, const char *dir, int log_fd,
		      struct local_server **out, struct err *e)
{
	struct local_server *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "no memory for the PMIx server");
	s->ranks = count_ranks(g);
	s->pid = s->fd = -1;
	if (make_dir(s, dir, e) || fork_server(s, g, log_fd, e) || read_answer(s, e)) {
		local_server_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

/* The process ends by itself, once it has removed what its clients left; if it is stuck, it is
 * killed. */
static void end_process(struct local_server *s)
{
	struct pollfd p = { .events = POLLIN };
	if (s->pid <= 0)
		return;
	shutdown(s->fd, SHUT_RDWR);
	p.fd = pidfd_open(s->pid, 0);
	if (p.fd < 0 || poll(&p, 1, end_ms) <= 0)
		kill(s->pid, SIGKILL);
	while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (p.fd >= 0)
		close(p.fd);
}

void local_server_close(struct local_server *s)
{
	if (!s)
		return;
	end_process(s);
	if (s->fd >= 0)
		close(s->fd);
	if (*s->dir)
		file_remove_tree(s->dir);
	free(s->env);
	free(s->words);
	free(s->env_text);
	buf_fini(&s->in);
	free(s);
}

char *const *local_server_env(const struct local_server *s, int place)
{
	return s->env[place];
}

int local_server_fd(const struct local_server *s)
{
	return s->fd;
}

int local_server_receive(struct local_server *s, struct buf *put, struct err *e)
{
	enum local_frame type;
	char *data;
	size_t len;
	int got = 0;
	while (!local_frame_peek(&s->in, &type, &data, &len))
		if ((got = local_frame_receive(s->fd, &s->in)) <= 0)
			return got ? err_set(e, ERR_PEER, "the PMIx server's process has ended")
				   : 0;
	buf_clear(put);
	buf_add(put, data, len);
	local_frame_drop(&s->in);
	return buf_failed(put) ? err_set(e, ERR_NOMEM, "no memory for what ranks have published")
			       : 1;
}

int local_server_answer(struct local_server *s, const struct buf *all, struct err *e)
{
	struct buf frame = BUF_INIT;
	local_frame_add(&frame, LOCAL_FRAME_FENCED, all->data, all->len);
	int rc = buf_failed(&frame)
			 ? err_set(e, ERR_NOMEM, "no memory for what ranks have published")
			 : 0;
	for (size_t sent = 0; !rc && sent < frame.len;) {
		ssize_t n = send(s->fd, frame.data + sent, frame.len - sent, MSG_NOSIGNAL);
		if (n > 0)
			sent += (size_t)n;
		else if (errno != EINTR)
			rc = err_errno(e, ERR_PEER, "the PMIx server's process takes no data");
	}
	buf_fini(&frame);
	return rc;
}
