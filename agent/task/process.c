#include "agent/task/process.h"

#include "agent/task/keeper.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/process_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const double kill_s = 5, sweep_s = 3; /* how long processes may take to die */

struct task_process {
	pid_t keeper; /* 0: it has been waited for */
	pid_t keeper_was, pid;
	int socket;
	char *name, *path; /* argv[0] and PATH of the program; NULL: it has none */
	double grace_s;
	bool ended, gone;
	int failure; /* errno of the exec */
	bool lost;   /* the keeper was killed */
	struct task_end end;
	struct task_left left;
};

/* --- Start --- */

static bool is_client_variable(const char *variable)
{
	size_t n = sizeof TASK_CLIENT_ENV - 1;
	return !strncmp(variable, TASK_CLIENT_ENV, n) && variable[n] == '=';
}

static uint32_t add_variables(const struct task_start *s, struct buf *out)
{
	uint32_t n = 0;
	for (char *const *at = s->env; at && *at; at++) {
		if (is_client_variable(*at))
			continue;
		buf_add(out, *at, strlen(*at) + 1);
		n++;
	}
	if (s->client < 0)
		return n;
	buf_printf(out, TASK_CLIENT_ENV "=%d", TASK_CLIENT);
	buf_add(out, "", 1);
	return n + 1;
}

/* A file in memory with all that the keeper must know. -1: no memory. */
static int describe(const struct task_start *s)
{
	struct keeper_task t = { .mask = s->mask, .client = s->client >= 0, .grace_s = s->grace_s };
	struct buf text = BUF_INIT;
	for (; s->argv[t.words]; t.words++)
		buf_add(&text, s->argv[t.words], strlen(s->argv[t.words]) + 1);
	t.variables = add_variables(s, &text);
	int fd = buf_failed(&text) ? -1 : memfd_create("muster-task", MFD_CLOEXEC);
	if (fd >= 0 &&
	    (file_write_full(fd, &t, sizeof t) || file_write_full(fd, text.data, text.len))) {
		close(fd);
		fd = -1;
	}
	buf_fini(&text);
	return fd;
}

/* 0, or an errno. Each of the descriptors, -1 for none, gets its index as its number. They must be
 * beyond those numbers. */
static int set_files(posix_spawn_file_actions_t *files, const int fds[KEEPER_OTHERS])
{
	int rc = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	for (int i = STDOUT_FILENO; i < KEEPER_OTHERS && !rc; i++)
		if (fds[i] >= 0)
			rc = posix_spawn_file_actions_adddup2(files, fds[i], i);
	return rc;
}

static int spawn_keeper(const int fds[KEEPER_OTHERS], pid_t *pid)
{
	static const char *const argv[] = { "muster-agent", "keep", NULL };
	posix_spawn_file_actions_t files;
	posix_spawn_file_actions_init(&files);
	int rc = set_files(&files, fds);
	if (!rc)
		rc = process_spawn_self(argv, &files, true, pid);
	posix_spawn_file_actions_destroy(&files);
	return rc;
}

/* Starts the keeper with copies of the descriptors, none of which has a number that another one
 * gets. 0, or an errno. */
static int start_keeper(const struct task_start *s, int socket, int task, pid_t *pid)
{
	const int given[KEEPER_OTHERS] = { -1, s->out, s->err, socket, task, s->client };
	int fds[KEEPER_OTHERS], rc = 0;
	for (int i = 0; i < KEEPER_OTHERS; i++) {
		fds[i] = given[i] < 0 ? -1 : fcntl(given[i], F_DUPFD_CLOEXEC, KEEPER_OTHERS);
		if (given[i] >= 0 && fds[i] < 0 && !rc)
			rc = errno;
	}
	if (!rc)
		rc = spawn_keeper(fds, pid);
	for (int i = 0; i < KEEPER_OTHERS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return rc;
}

static char *copy_path(char *const *env)
{
	for (; env && *env; env++)
		if (!strncmp(*env, "PATH=", 5))
			return strdup(*env + 5);
	return NULL;
}

static void free_process(struct task_process *p)
{
	close(p->socket);
	free(p->name);
	free(p->path);
	free(p);
}

static int cannot_start(int why, struct err *e)
{
	errno = why;
	return err_errno(
		e, ERR_NOMEM,
		"job.program: cannot start a process for it (ulimit -u and ulimit -n print "
		"the limits)");
}

static int connect_keeper(const struct task_start *s, struct task_process *p)
{
	int pair[2], rc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return errno;
	p->socket = pair[0];
	int task = describe(s);
	rc = task < 0 ? ENOMEM : start_keeper(s, pair[1], task, &p->keeper);
	if (task >= 0)
		close(task);
	close(pair[1]);
	p->keeper_was = p->keeper;
	return rc;
}

/* The exec has either happened or failed, or the time is over. */
static int await_exec(struct task_process *p, double seconds, struct err *e)
{
	struct pollfd fd = { .fd = p->socket, .events = POLLIN };
	double until = clock_s() + seconds;
	struct task_end end;
	for (;;) {
		if (task_process_poll(p, &end, e) < 0)
			return -1;
		double left = until - clock_s();
		if (p->pid || p->ended || left <= 0)
			return 0;
		poll(&fd, 1, (int)(left * 1000) + 1);
	}
}

int task_process_start(const struct task_start *start, struct task_process **out, struct err *e)
{
	if (!start->argv[0] || !*start->argv[0])
		return err_set(e, ERR_USAGE, "job.program: it is empty; name a program");
	struct task_process *p = calloc(1, sizeof *p);
	if (!p)
		return err_set(e, ERR_NOMEM, "job.program: no memory to start it");
	p->socket = -1;
	p->grace_s = start->grace_s;
	p->name = strdup(start->argv[0]);
	p->path = copy_path(start->env);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	int why = p->name ? connect_keeper(start, p) : ENOMEM;
	if (why) {
		free_process(p);
		return cannot_start(why, e);
	}
	if (await_exec(p, start->patience_s, e)) {
		task_process_close(p, NULL, NULL);
		return -1;
	}
	*out = p;
	return 0;
}

/* --- Errors --- */

static int not_found(const struct task_process *p, struct err *e)
{
	if (strchr(p->name, '/') && !access(p->name, F_OK))
		return err_set(
			e, ERR_NOTFOUND,
			"job.program: %s: the interpreter that it names is not on this node; look "
			"at its first line, or at `file %s`",
			p->name, p->name);
	if (strchr(p->name, '/'))
		return err_set(
			e, ERR_NOTFOUND,
			"job.program: %s: not found on this node; every node needs it under "
			"this path, and a path without a leading / counts from the folder in which "
			"muster was started",
			p->name);
	return err_set(e, ERR_NOTFOUND,
		       "job.program: %s: not found in PATH; give its path, or load its module or "
		       "environment before muster starts (PATH is %.600s)",
		       p->name, p->path ? p->path : "not set");
}

static int exec_failed(const struct task_process *p, struct err *e)
{
	switch (p->failure) {
	case ENOENT:
	case ENOTDIR:
		return not_found(p, e);
	case EACCES:
	case EPERM:
		return err_set(e, ERR_DENIED,
			       "job.program: %s: may not be executed; set its x bit (chmod +x), or "
			       "give it "
			       "to its interpreter, as in `python %s`",
			       p->name, p->name);
	case E2BIG:
		return err_set(
			e, ERR_USAGE,
			"job.program: %s: its arguments and its environment are too long for the "
			"kernel; give long lists in a file",
			p->name);
	case EAGAIN:
	case ENOMEM:
		return cannot_start(p->failure, e);
	default:
		errno = p->failure;
		return err_errno(e, ERR_UNSUPPORTED, "job.program: %s: cannot be executed",
				 p->name);
	}
}

/* --- After the keeper's death --- */

/* The children of this process that the task left. The task cannot join this session. */
static void find_orphans(struct task_process *p, struct task_tree *out)
{
	pid_t own = getsid(0);
	int kept = 0;
	task_tree_read(getpid(), out);
	for (int i = 0; i < out->n; i++)
		if (out->nodes[i].pid != p->keeper && getsid(out->nodes[i].pid) != own)
			out->nodes[kept++] = out->nodes[i];
	out->n = kept;
}

/* Kills the orphans and waits for those that are dead. Returns how many are left. */
static int sweep_once(struct task_process *p, struct task_tree *orphans)
{
	char name[PROCESS_NAME];
	find_orphans(p, orphans);
	int left = orphans->n;
	for (int i = 0; i < orphans->n; i++) {
		pid_t pid = orphans->nodes[i].pid;
		if (task_tree_kill(&orphans->nodes[i], name) && pid != p->pid && !*p->left.name)
			memcpy(p->left.name, name, sizeof name);
		if (orphans->nodes[i].parent != getpid() || waitpid(pid, NULL, WNOHANG) != pid)
			continue;
		p->left.killed += pid != p->pid;
		left--;
	}
	return left;
}

static void sweep(struct task_process *p)
{
	struct task_tree orphans = { 0 };
	double until = clock_s() + sweep_s;
	while (sweep_once(p, &orphans) && clock_s() < until)
		poll(NULL, 0, 1);
	p->gone = !orphans.n || !sweep_once(p, &orphans);
	task_tree_free(&orphans);
}

/* --- Reports --- */

static void take_report(struct task_process *p, const struct keeper_report *r)
{
	switch (r->kind) {
	case KEEPER_STARTED:
		p->pid = r->value;
		break;
	case KEEPER_FAILED:
		p->failure = r->value;
		break;
	case KEEPER_ENDED:
		p->ended = true;
		p->end = (struct task_end){ .status = r->value,
					    .user_s = r->user_s,
					    .system_s = r->system_s,
					    .rss = r->rss };
		break;
	case KEEPER_GONE:
		p->gone = true;
		p->left.killed = r->value;
		memcpy(p->left.name, r->name, sizeof r->name);
		p->left.name[sizeof r->name - 1] = '\0';
		break;
	}
}

/* The keeper has closed its end, so it is dead, or will be at once. */
static void keeper_ended(struct task_process *p)
{
	if (!p->keeper)
		return;
	while (waitpid(p->keeper, NULL, 0) < 0 && errno == EINTR)
		;
	p->keeper = 0;
	p->lost = !p->gone;
	if (p->lost)
		sweep(p);
}

static void read_reports(struct task_process *p)
{
	struct keeper_report r;
	while (p->keeper) {
		ssize_t n = recv(p->socket, &r, sizeof r, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n == (ssize_t)sizeof r)
			take_report(p, &r);
		else
			keeper_ended(p);
	}
}

int task_process_poll(struct task_process *p, struct task_end *end, struct err *e)
{
	read_reports(p);
	if (p->failure)
		return exec_failed(p, e);
	if (p->ended) {
		*end = p->end;
		return 1;
	}
	if (!p->lost)
		return 0;
	*end = (struct task_end){ .status = SIGKILL };
	return err_set(
		e, ERR_TASK,
		"job.program: %s: muster's process that keeps it (%d) was killed, and the program "
		"with it; if nobody killed it, the node lacks memory: see dmesg",
		p->name, (int)p->keeper_was);
}

int task_process_fd(const struct task_process *p)
{
	return p->socket;
}

pid_t task_process_pid(const struct task_process *p)
{
	return p->pid;
}

pid_t task_process_keeper(const struct task_process *p)
{
	return p->keeper_was;
}

/* --- Signals and the end --- */

static void order(struct task_process *p, int number)
{
	struct keeper_order o = { .signal = number };
	if (p->keeper)
		send(p->socket, &o, sizeof o, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void task_process_signal(struct task_process *p, int number)
{
	if (number > 0)
		order(p, number);
}

void task_process_kill(struct task_process *p)
{
	order(p, 0);
}

/* Whether the keeper has ended within the time. */
static bool await_keeper(struct task_process *p, double seconds)
{
	struct pollfd fd = { .fd = p->socket, .events = POLLIN };
	double until = clock_s() + seconds, left;
	for (read_reports(p); p->keeper && (left = until - clock_s()) > 0; read_reports(p))
		poll(&fd, 1, (int)(left * 1000) + 1);
	return !p->keeper;
}

static int still_there(struct task_process *p, struct err *e)
{
	struct task_tree orphans = { 0 };
	struct process_stat s = { .name = "?", .state = '?' };
	pid_t pid = 0;
	find_orphans(p, &orphans);
	if (orphans.n) {
		pid = orphans.nodes[0].pid;
		process_stat_read(pid, &s);
	}
	task_tree_free(&orphans);
	return err_set(
		e, ERR_STUCK,
		"job.program: its process %d (%s, state %c) cannot be ended; a process in state D "
		"waits inside the kernel, for a file system or a device",
		(int)pid, s.name, s.state);
}

int task_process_close(struct task_process *p, struct task_left *left, struct err *e)
{
	if (!p)
		return 0;
	if (!p->ended)
		task_process_kill(p);
	if (!await_keeper(p, kill_s + (p->ended ? p->grace_s : 0))) {
		kill(p->keeper, SIGKILL);
		await_keeper(p, kill_s);
	}
	if (left)
		*left = p->left;
	int rc = p->gone ? 0 : still_there(p, e);
	free_process(p);
	return rc;
}
