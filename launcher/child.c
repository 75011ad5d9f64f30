#include "launcher/child.h"

#include "base/file.h"
#include "base/program.h"
#include "launcher/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A running child and the file that captures its output (-1: none). */
struct process {
	pid_t pid;
	int pidfd, capture;
};

struct child {
	struct process p;
	uv_poll_t poll;
	void (*ended)(void *arg, int status, const char *output);
	void *arg;
};

/* A file in memory. Unlike a pipe it need not be read while the child runs. */
static int memory_file(const char *text, struct err *e)
{
	int fd = memfd_create("muster", MFD_CLOEXEC);
	if (fd < 0)
		return err_errno(e, ERR_NOMEM, "cannot create a file in memory");
	if (text && (file_write_full(fd, text, strlen(text)) || lseek(fd, 0, SEEK_SET) < 0)) {
		err_errno(e, ERR_NOMEM, "cannot write a file in memory");
		close(fd);
		return -1;
	}
	return fd;
}

static bool join_cgroup(const char *procs)
{
	int fd = open(procs, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && !file_write_full(fd, "0", 1);
}

/* Runs after fork, so it makes async-signal-safe calls only. Writes errno to `report` if exec
 * fails. */
static void execute_command(const struct child_command *c, const struct program *program, int in,
			    int out, int report)
{
	setpgid(0, 0);
	if (c->tied)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	launcher_fork_reset_signals();
	if ((!c->cgroup || join_cgroup(c->cgroup)) && dup2(in, 0) >= 0 && dup2(out, 1) >= 0 &&
	    dup2(out, 2) >= 0)
		program_execute(program, c->argv, c->env ? c->env : environ);
	int why = errno;
	_exit(file_write_full(report, &why, sizeof why) ? 126 : 127);
}

static int fork_child(const struct child_command *c, const struct program *program, int in, int out,
		      pid_t *pid, struct err *e)
{
	int report[2], why = 0;
	if (pipe2(report, O_CLOEXEC))
		return err_errno(e, ERR_NOMEM,
				 "%s: cannot create a pipe for it (ulimit -n prints the limit)",
				 c->argv[0]);
	*pid = launcher_fork_blocked();
	if (*pid == 0)
		execute_command(c, program, in, out, report[1]);
	close(report[1]);
	if (*pid < 0)
		err_errno(e, ERR_NOMEM, "%s: cannot start a process (ulimit -u prints the limit)",
			  c->argv[0]);
	else if (!file_read_full(report[0], &why, sizeof why)) {
		waitpid(*pid, NULL, 0);
		errno = why;
		err_errno(e, why == ENOENT ? ERR_NOTFOUND : ERR_UNSUPPORTED,
			  "%s: cannot be executed%s", c->argv[0], c->absent ? c->absent : "");
	}
	close(report[0]);
	return *pid < 0 || why ? -1 : 0;
}

static int start_program(const struct child_command *c, int in, int out, pid_t *pid, struct err *e)
{
	struct program program;
	if (program_open(&program, c->argv))
		return err_set(e, ERR_NOMEM, "%s: no memory to start it", c->argv[0]);
	int rc = fork_child(c, &program, in, out, pid, e);
	program_close(&program);
	return rc;
}

static int process_start(const struct child_command *c, struct process *p, struct err *e)
{
	int in = c->input ? memory_file(c->input, e) : open("/dev/null", O_RDONLY | O_CLOEXEC),
	    rc = -1;
	if (in < 0)
		return c->input ? -1 : err_errno(e, ERR_IO, "/dev/null: cannot open");
	p->capture = c->out < 0 ? memory_file(NULL, e) : -1;
	if (c->out >= 0 || p->capture >= 0)
		rc = start_program(c, in, c->out < 0 ? p->capture : c->out, &p->pid, e);
	close(in);
	if (!rc && (p->pidfd = pidfd_open(p->pid, 0)) < 0) {
		rc = err_errno(e, ERR_NOMEM,
			       "%s: cannot watch its process (ulimit -n prints the limit)",
			       c->argv[0]);
		kill(p->pid, SIGKILL);
		waitpid(p->pid, NULL, 0);
	}
	if (rc && p->capture >= 0)
		close(p->capture);
	return rc;
}

/* Takes the status and the output of a child that has ended, and closes its files. */
static int process_end(struct process *p, struct buf *output)
{
	int status = 0;
	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
		;
	close(p->pidfd);
	if (p->capture < 0)
		return status;
	off_t size = lseek(p->capture, 0, SEEK_END);
	size_t n = size <= 0 ? 0 : size < CHILD_OUTPUT_MAX ? (size_t)size : CHILD_OUTPUT_MAX;
	char *to = buf_room(output, n + 1);
	if (to && !file_pread_full(p->capture, to, n, 0)) {
		to[n] = '\0';
		output->len += n;
	}
	close(p->capture);
	return status;
}

static void free_child(uv_handle_t *h)
{
	free(h->data);
}

static void on_end(uv_poll_t *poll, int uv_status, int uv_events)
{
	struct child *c = poll->data;
	struct buf output = BUF_INIT;
	(void)uv_status;
	(void)uv_events;
	uv_poll_stop(poll);
	int status = process_end(&c->p, &output);
	uv_close((uv_handle_t *)poll, free_child);
	c->ended(c->arg, status, buf_str(&output));
	buf_fini(&output);
}

int launcher_child_watch(uv_loop_t *loop, const struct child_command *c,
			 void (*ended)(void *arg, int status, const char *output), void *arg,
			 struct child **out, struct err *e)
{
	struct child *ch = calloc(1, sizeof *ch);
	if (!ch)
		return err_set(e, ERR_NOMEM, "%s: no memory to watch it", c->argv[0]);
	if (process_start(c, &ch->p, e)) {
		free(ch);
		return -1;
	}
	if (uv_poll_init(loop, &ch->poll, ch->p.pidfd)) {
		struct buf output = BUF_INIT;
		kill(ch->p.pid, SIGKILL);
		process_end(&ch->p, &output);
		buf_fini(&output);
		free(ch);
		return err_set(e, ERR_NOMEM, "%s: cannot watch its process", c->argv[0]);
	}
	ch->ended = ended;
	ch->arg = arg;
	ch->poll.data = ch;
	uv_poll_start(&ch->poll, UV_READABLE, on_end);
	*out = ch;
	return 0;
}

pid_t launcher_child_pid(const struct child *c)
{
	return c->p.pid;
}

void launcher_child_signal(struct child *c, int signal)
{
	pidfd_send_signal(c->p.pidfd, signal, NULL, 0);
}

static void nobody_listens(void *arg, int status, const char *output)
{
	(void)arg;
	(void)status;
	(void)output;
}

void launcher_child_forget(struct child *c)
{
	c->ended = nobody_listens;
	uv_unref((uv_handle_t *)&c->poll);
}

/* The last line that is not empty, without its newline. */
static void last_line(const char *text, const char **line, int *len)
{
	const char *end = text + strlen(text);
	while (end > text && (end[-1] == '\n' || end[-1] == ' '))
		end--;
	const char *at = end;
	while (at > text && at[-1] != '\n')
		at--;
	*line = at;
	*len = (int)(end - at);
}

int launcher_child_result(const char *name, int status, const char *output, struct err *e)
{
	const char *line;
	int len;
	if (!status)
		return 0;
	if (WIFSIGNALED(status))
		return err_set(e, ERR_UNSUPPORTED, "%s: killed by signal %d", name,
			       WTERMSIG(status));
	last_line(output, &line, &len);
	return err_set(e, ERR_UNSUPPORTED, "%s failed (%d)%s%.*s", name, WEXITSTATUS(status),
		       len ? ": " : "", len, line);
}

int launcher_child_run(const struct child_command *c, double timeout_s, struct buf *output,
		       struct err *e)
{
	struct process p;
	if (process_start(c, &p, e))
		return -1;
	struct pollfd fds[2] = { { .fd = p.pidfd, .events = POLLIN },
				 { .fd = c->cut ? *c->cut : -1, .events = POLLIN } };
	int ready;
	do
		ready = poll(fds, 2, (int)(timeout_s * 1000));
	while (ready < 0 && errno == EINTR);
	bool ended = ready > 0 && fds[0].revents;
	if (!ended)
		kill(-p.pid, SIGKILL);
	int status = process_end(&p, output);
	if (!ended)
		return err_set(e, ERR_TIMEOUT, "%s: it did not end within %g s and was killed%s",
			       c->argv[0], timeout_s, c->late ? c->late : "");
	return launcher_child_result(c->argv[0], status, buf_str(output), e);
}
