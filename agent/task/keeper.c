#include "agent/task/keeper.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that is about to end must not be waited for long, one that is stuck in the kernel not
 * be looked at often. */
static const double first_pause_s = 0.01, longest_pause_s = 1;

struct keeper {
	int socket;  /* -1: the agent has ended */
	int signals; /* SIGCHLD */
	int exec;    /* the errno of a failed exec comes from it; -1: the program runs */
	struct keeper_task task;
	char *text;
	char **argv, **env;
	pid_t agent;
	pid_t pid;      /* the program; 0: it has ended */
	bool killing;   /* what is left, at kill_at or since then */
	double kill_at; /* the next time */
	double pause_s; /* from then to the following */
	int killed;     /* other processes */
	char name[PROCESS_NAME];
	struct task_tree tree;
};

/* --- The task --- */

/* Points the words of a list into the text, which ends with a NUL. NULL: it has fewer, or there is
 * no memory. */
static char **take_words(uint32_t n, char **at, const char *end)
{
	if (n > (size_t)(end - *at))
		return NULL;
	char **words = calloc((size_t)n + 1, sizeof *words);
	for (uint32_t i = 0; words && i < n; i++) {
		if (*at == end) {
			free(words);
			return NULL;
		}
		words[i] = *at;
		*at += strlen(*at) + 1;
	}
	return words;
}

static int read_task(struct keeper *k)
{
	struct stat st;
	if (fstat(KEEPER_TASK, &st) || st.st_size <= (off_t)sizeof k->task ||
	    file_pread_full(KEEPER_TASK, &k->task, sizeof k->task, 0))
		return -1;
	size_t len = (size_t)st.st_size - sizeof k->task;
	k->text = malloc(len);
	if (!k->text || file_pread_full(KEEPER_TASK, k->text, len, sizeof k->task) ||
	    k->text[len - 1] || !k->task.words)
		return -1;
	char *at = k->text;
	k->argv = take_words(k->task.words, &at, k->text + len);
	k->env = k->argv ? take_words(k->task.variables, &at, k->text + len) : NULL;
	return k->env ? 0 : -1;
}

/* --- To the agent --- */

static void report(struct keeper *k, const struct keeper_report *r)
{
	if (k->socket >= 0)
		send(k->socket, r, sizeof *r, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void report_value(struct keeper *k, enum keeper_kind kind, int value)
{
	report(k, &(struct keeper_report){ .kind = (int32_t)kind, .value = value });
}

/* --- Start --- */

/* The child of the keeper. No other thread exists, so every function may be called. */
static void become_program(const struct keeper *k, const struct program *program, pid_t keeper,
			   int failure)
{
	setsid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != keeper)
		_exit(127);
	/* Where Yama permits only what a process has named, the agent's tools may look at its stacks if
	 * it hangs. Without Yama this fails, and nothing is lost. */
	prctl(PR_SET_PTRACER, (unsigned long)k->agent, 0, 0, 0);
	umask((mode_t)k->task.mask);
	if (k->task.client)
		dup2(KEEPER_CLIENT, TASK_CLIENT);
	else
		close(TASK_CLIENT);
	close_range(TASK_CLIENT + 1, ~0U, CLOSE_RANGE_CLOEXEC);
	process_signals();
	program_execute(program, k->argv, k->env);
	int why = errno;
	_exit(file_write_full(failure, &why, sizeof why) ? 126 : 127);
}

/* An errno, or 0. */
static int start(struct keeper *k)
{
	struct program program;
	int failure[2];
	pid_t self = getpid();
	environ = k->env; /* its PATH counts */
	if (program_open(&program, k->argv))
		return ENOMEM;
	if (pipe2(failure, O_CLOEXEC | O_NONBLOCK)) {
		program_close(&program);
		return errno;
	}
	k->pid = fork();
	int why = k->pid < 0 ? errno : 0;
	if (!k->pid)
		become_program(k, &program, self, failure[1]);
	program_close(&program);
	close(failure[1]);
	k->exec = failure[0];
	return why;
}

/* The keeper must not hold the ends that it gave to the program. */
static void release_descriptors(void)
{
	dup2(STDIN_FILENO, STDOUT_FILENO);
	dup2(STDIN_FILENO, STDERR_FILENO);
	close(KEEPER_CLIENT);
	close(KEEPER_TASK);
}

/* Whether it is known now that the program runs, or why not. */
static void read_exec(struct keeper *k)
{
	int why = 0;
	if (k->exec < 0)
		return;
	ssize_t n = read(k->exec, &why, sizeof why);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	close(k->exec);
	k->exec = -1;
	if (n != (ssize_t)sizeof why) {
		report_value(k, KEEPER_STARTED, k->pid);
		return;
	}
	report_value(k, KEEPER_FAILED, why);
	waitpid(k->pid, NULL, 0);
	k->pid = 0;
}

/* --- End --- */

static void kill_all(struct keeper *k)
{
	char name[PROCESS_NAME];
	task_tree_read(getpid(), &k->tree);
	for (int i = 0; i < k->tree.n; i++)
		if (task_tree_kill(&k->tree.nodes[i], name) && k->tree.nodes[i].pid != k->pid &&
		    !*k->name)
			memcpy(k->name, name, sizeof k->name);
}

/* Again and again, because a process may have started another one before it died. */
static void kill_if_due(struct keeper *k)
{
	if (!k->killing || clock_s() < k->kill_at)
		return;
	kill_all(k);
	k->kill_at = clock_s() + k->pause_s;
	k->pause_s = 2 * k->pause_s < longest_pause_s ? 2 * k->pause_s : longest_pause_s;
}

static void kill_after(struct keeper *k, double seconds)
{
	double at = clock_s() + seconds;
	if (k->killing && k->kill_at <= at)
		return;
	k->killing = true;
	k->kill_at = at;
	k->pause_s = first_pause_s;
}

static void program_ended(struct keeper *k, int status, const struct rusage *used)
{
	read_exec(k);
	if (!k->pid)
		return;
	k->pid = 0;
	report(k, &(struct keeper_report){
			  .kind = KEEPER_ENDED,
			  .value = status,
			  .user_s = (double)used->ru_utime.tv_sec +
				    (double)used->ru_utime.tv_usec * 1e-6,
			  .system_s = (double)used->ru_stime.tv_sec +
				      (double)used->ru_stime.tv_usec * 1e-6,
			  .rss = (double)used->ru_maxrss * 1024,
		  });
	kill_after(k, k->task.grace_s);
}

/* Waits for all that have ended. False: nothing is left. */
static bool reap(struct keeper *k)
{
	struct rusage used;
	int status;
	pid_t pid;
	read_exec(k);
	while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
		if (pid == k->pid)
			program_ended(k, status, &used);
		else if (k->killing && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
			k->killed++;
		if (k->killing &&
		    k->pause_s > first_pause_s) /* its children are the keeper's now */
			k->kill_at = clock_s();
	}
	return !pid || errno != ECHILD;
}

/* --- Orders --- */

static void agent_ended(struct keeper *k)
{
	close(k->socket);
	k->socket = -1;
	kill_after(k, 0);
}

static void send_signal(pid_t program, int number)
{
	if (kill(-program, number))
		kill(program, number); /* it does not lead its group yet */
}

/* A program that is stopped takes no signal before it continues. */
static void signal_program(struct keeper *k, int number)
{
	struct process_stat s;
	send_signal(k->pid, number);
	if (!process_stat_read(k->pid, &s) && s.state == 'T')
		send_signal(k->pid, SIGCONT);
}

static void read_orders(struct keeper *k)
{
	struct keeper_order order;
	ssize_t n;
	while (k->socket >= 0) {
		n = recv(k->socket, &order, sizeof order, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n != (ssize_t)sizeof order)
			agent_ended(k);
		else if (!order.signal)
			kill_after(k, 0);
		else if (k->pid)
			signal_program(k, order.signal);
	}
}

static int milliseconds(const struct keeper *k)
{
	if (!k->killing)
		return -1;
	double left = k->kill_at - clock_s();
	return left <= 0 ? 0 : left > 1e6 ? INT_MAX : (int)(left * 1000) + 1;
}

static void keep(struct keeper *k)
{
	struct signalfd_siginfo info;
	while (reap(k)) {
		struct pollfd fds[] = {
			{ .fd = k->signals, .events = POLLIN },
			{ .fd = k->socket, .events = POLLIN },
			{ .fd = k->exec, .events = POLLIN },
		};
		kill_if_due(k);
		poll(fds, sizeof fds / sizeof *fds, milliseconds(k));
		while (read(k->signals, &info, sizeof info) > 0)
			;
		read_orders(k);
	}
}

/* Only SIGKILL ends the keeper. */
static int block_signals(void)
{
	sigset_t all, children;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool is_socket(int fd)
{
	struct stat st;
	return !fstat(fd, &st) && S_ISSOCK(st.st_mode);
}

int task_keeper_main(void)
{
	struct keeper k = { .socket = KEEPER_SOCKET, .agent = getppid(), .exec = -1 };
	if (!is_socket(KEEPER_SOCKET) || read_task(&k))
		return 2;
	close_range(KEEPER_OTHERS, ~0U, 0);
	if (!k.task.client)
		dup2(STDIN_FILENO, KEEPER_CLIENT); /* keeps the number */
	fcntl(KEEPER_SOCKET, F_SETFD, FD_CLOEXEC);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	k.signals = block_signals();
	int why = k.signals < 0 ? errno : start(&k);
	release_descriptors();
	if (why)
		report_value(&k, KEEPER_FAILED, why);
	else
		keep(&k);
	struct keeper_report gone = { .kind = KEEPER_GONE, .value = k.killed };
	memcpy(gone.name, k.name, sizeof gone.name);
	report(&k, &gone);
	task_tree_free(&k.tree);
	free(k.argv);
	free(k.env);
	free(k.text);
	return 0;
}
