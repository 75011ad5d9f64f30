#include "launcher/pmix/spawn.h"

#include "base/pin.h"
#include "launcher/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static size_t count_words(char *const *env)
{
	size_t n = 0;
	while (env && env[n])
		n++;
	return n;
}

static bool same_name(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");
	return !strncmp(a, b, n) && b[n] == '=';
}

static bool has_name(char *const *env, const char *word)
{
	for (; env && *env; env++)
		if (same_name(*env, word))
			return true;
	return false;
}

/* Variables of another launch or of an outer step must not reach the agent. */
static bool belongs_to_other_launch(const char *word)
{
	static const char *const prefixes[] = { "PMIX_", "PMI_", "MUSTER_" };
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
		if (!strncmp(word, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/* An array of borrowed strings; free() only the array. */
static char **merge_env(const struct spawn *s)
{
	size_t most = count_words(environ) + count_words(s->pmix_env) + count_words(s->own_env) +
		      count_words(s->soft_env) + 1;
	char **out = malloc(most * sizeof *out);
	size_t n = 0;
	if (!out)
		return NULL;
	for (char **at = environ; *at; at++)
		if (!belongs_to_other_launch(*at) && !has_name(s->own_env, *at))
			out[n++] = *at;
	for (char *const *at = s->soft_env; at && *at; at++)
		if (!has_name(environ, *at))
			out[n++] = *at;
	for (char *const *at = s->pmix_env; at && *at; at++)
		out[n++] = *at;
	for (char *const *at = s->own_env; at && *at; at++)
		out[n++] = *at;
	out[n] = NULL;
	return out;
}

/* Writes one line, so that it is not mixed with others. Async-signal-safe: it does not allocate. */
static void report_exec_failure(const char *path, int error)
{
	const char *cause = strerrordesc_np(error);
	const char *const parts[] = { "muster: ", path,
				      ": cannot execute: ", cause ? cause : "unknown error", "\n" };
	char line[PATH_MAX + 128];
	size_t n = 0;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		size_t len = strnlen(parts[i], sizeof line - n);
		memcpy(line + n, parts[i], len);
		n += len;
	}
	if (write(2, line, n) < 0)
		_exit(126);
}

/* Runs between fork and exec of a process with threads, so it makes async-signal-safe calls
 * only. */
static void become_agent(const struct spawn *s, pid_t launcher, char *const *env)
{
	setsid();
	launcher_fork_reset_signals();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != launcher) /* the launcher died before the line above */
		_exit(127);
	int null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, 0) < 0 || dup2(s->log_fd, 1) < 0 || dup2(s->log_fd, 2) < 0)
		_exit(127);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	pin_cpus(s->cpus, NULL);
	char *argv[] = { (char *)s->path, NULL };
	execve(s->path, argv, env);
	report_exec_failure(s->path, errno);
	_exit(127);
}

int local_spawn_start(const struct spawn *s, pid_t *pid, int *pidfd, struct err *e)
{
	char **env = merge_env(s);
	if (!env)
		return err_set(e, ERR_NOMEM, "%s: no memory to start it", s->path);
	pid_t launcher = getpid(), child = launcher_fork_blocked();
	if (child == 0)
		become_agent(s, launcher, env);
	free(env);
	if (child < 0)
		return err_errno(e, ERR_NOMEM,
				 "%s: cannot start another process (ulimit -u prints the limit)",
				 s->path);
	int fd = pidfd_open(child, 0);
	if (fd < 0) {
		err_errno(e, ERR_NOMEM, "%s: cannot watch process %ld", s->path, (long)child);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		return -1;
	}
	*pid = child;
	*pidfd = fd;
	return 0;
}

void local_spawn_kill(pid_t pid)
{
	kill(-pid, SIGKILL);
	kill(pid, SIGKILL); /* it may not lead its group yet */
}

int local_spawn_reap(pid_t pid, int *status)
{
	siginfo_t info = { 0 };
	if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) && errno == ECHILD) {
		*status = 255 << 8;
		return 1;
	}
	if (info.si_pid != pid)
		return 0;
	kill(-pid, SIGKILL); /* until waitpid() no other process can have this pid */
	return waitpid(pid, status, 0) == pid;
}
