#include "topo/discover/command.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { COMPLAINT = 512, GRACE_MS = 1000 };

/* A child process, with the pipes of its stdout and stderr. */
struct child {
	pid_t pid;
	int out, bad;
	char complaint[COMPLAINT];
	size_t n_bad;
};

static int spawn_child(const struct command *c, int out, int bad, pid_t *pid)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	if (posix_spawn_file_actions_init(&files))
		return ENOMEM;
	if (posix_spawnattr_init(&attr)) {
		posix_spawn_file_actions_destroy(&files);
		return ENOMEM;
	}
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, out, 1);
	posix_spawn_file_actions_adddup2(&files, bad, 2);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	int rc = posix_spawnp(pid, c->argv[0], &files, &attr, c->argv, c->env ? c->env : environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return rc;
}

static int start_child(const struct command *c, struct child *ch, struct err *e)
{
	int out[2], bad[2];
	if (pipe2(out, O_CLOEXEC))
		return err_errno(e, ERR_NOMEM, "%s: no pipe for it", c->argv[0]);
	if (pipe2(bad, O_CLOEXEC)) {
		close(out[0]);
		close(out[1]);
		return err_errno(e, ERR_NOMEM, "%s: no pipe for it", c->argv[0]);
	}
	int rc = spawn_child(c, out[1], bad[1], &ch->pid);
	close(out[1]);
	close(bad[1]);
	ch->out = out[0];
	ch->bad = bad[0];
	if (!rc)
		return 0;
	close(out[0]);
	close(bad[0]);
	errno = rc;
	return err_errno(e, rc == ENOENT ? ERR_NOTFOUND : ERR_UNSUPPORTED, "%s: cannot be executed",
			 c->argv[0]);
}

/* Reads what is available, and closes the descriptor at its end. */
static void read_output(struct child *ch, struct buf *out)
{
	char *to = buf_room(out, 65536);
	ssize_t n = to ? read(ch->out, to, 65536) : -1;
	if (n > 0) {
		out->len += (size_t)n;
	} else if (n == 0 || errno != EINTR) {
		close(ch->out);
		ch->out = -1;
	}
}

static void read_complaint(struct child *ch)
{
	char rest[256];
	bool full = ch->n_bad == sizeof ch->complaint - 1;
	ssize_t n = full ? read(ch->bad, rest, sizeof rest)
			 : read(ch->bad, ch->complaint + ch->n_bad,
				sizeof ch->complaint - 1 - ch->n_bad);
	if (n > 0 && !full) {
		ch->n_bad += (size_t)n;
	} else if (n == 0 || (n < 0 && errno != EINTR)) {
		close(ch->bad);
		ch->bad = -1;
	}
}

/* Reads until both pipes are closed (returns 0), the time is over, or there is more than `most`. */
static int read_pipes(struct child *ch, double until, size_t most, struct buf *out)
{
	while (ch->out >= 0 || ch->bad >= 0) {
		struct pollfd fds[2] = { { .fd = ch->out, .events = POLLIN },
					 { .fd = ch->bad, .events = POLLIN } };
		double left = until - clock_s();
		if (left <= 0 || out->len > most)
			return -1;
		if (poll(fds, 2, (int)(left * 1000) + 1) < 0 && errno != EINTR)
			return -1;
		if (ch->out >= 0 && fds[0].revents)
			read_output(ch, out);
		if (ch->bad >= 0 && fds[1].revents)
			read_complaint(ch);
	}
	return 0;
}

static bool ended_within(pid_t pid, int ms, int *status)
{
	for (double until = clock_s() + ms * 1e-3; clock_s() < until;) {
		if (waitpid(pid, status, WNOHANG) != 0)
			return true;
		poll(NULL, 0, 1);
	}
	return false;
}

static void end_child(pid_t pid, int *status)
{
	kill(pid, SIGTERM);
	if (ended_within(pid, GRACE_MS, status))
		return;
	kill(pid, SIGKILL);
	while (waitpid(pid, status, 0) < 0 && errno == EINTR)
		;
}

int topo_command_run(const struct command *c, struct buf *out, struct err *e)
{
	struct child ch = { .pid = -1 };
	size_t before = out->len;
	int status = 0;
	if (start_child(c, &ch, e))
		return -1;
	double until = clock_s() + c->timeout;
	int cut = read_pipes(&ch, until, before + c->most, out);
	if (ch.out >= 0)
		close(ch.out);
	if (ch.bad >= 0)
		close(ch.bad);
	/* The process may still run although its pipes are closed. */
	if (cut || !ended_within(ch.pid, GRACE_MS, &status))
		end_child(ch.pid, &status);
	buf_puts(out, "");
	if (buf_failed(out))
		return err_set(e, ERR_NOMEM, "%s: no memory for its answer", c->argv[0]);
	if (cut && out->len - before > c->most)
		return err_set(e, ERR_UNSUPPORTED, "%s: more than %zu bytes of answer", c->argv[0],
			       c->most);
	if (cut)
		return err_set(e, ERR_TIMEOUT, "%s: no answer within %g s", c->argv[0], c->timeout);
	if (!status)
		return 0;
	ch.complaint[strcspn(ch.complaint, "\n")] = '\0';
	return err_set(e, ERR_UNSUPPORTED, "%s failed: %s", c->argv[0],
		       *ch.complaint ? ch.complaint : "no error message");
}
