#include "launcher/drill/processes.h"

#include "base/agent_env.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/pidfd.h>
#include <unistd.h>

enum { ENVIRONMENT_MAX = 4 << 20, MAPS_MAX = 16 << 20, STAT = 512, PROGRAM = 64 };

void drill_mark_new(char mark[DRILL_MARK])
{
	static int number;
	snprintf(mark, DRILL_MARK, "%ld-%lld-%d", (long)getpid(), (long long)clock_ns(), ++number);
	setenv(AGENT_ENV_DRILL_MARK, mark, 1);
}

/* Reads a file of /proc, whose size is unknown before. */
static int read_proc(pid_t pid, const char *name, size_t most, struct buf *out)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : 1;
	while (n > 0 && out->len < most) {
		char *to = buf_room(out, 4096);
		n = to ? read(fd, to, 4096) : -1;
		out->len += n > 0 ? (size_t)n : 0;
	}
	if (fd >= 0)
		close(fd);
	buf_add(out, "", 1);
	return n < 0 || buf_failed(out) ? -1 : 0;
}

bool drill_mark_has(pid_t pid, const char *mark)
{
	struct buf env = BUF_INIT;
	char want[sizeof AGENT_ENV_DRILL_MARK + DRILL_MARK];
	bool has = false;
	snprintf(want, sizeof want, AGENT_ENV_DRILL_MARK "=%s", mark);
	if (!read_proc(pid, "environ", ENVIRONMENT_MAX, &env))
		for (const char *at = env.data, *end = env.data + env.len; at < end && !has;
		     at += strlen(at) + 1)
			has = !strcmp(at, want);
	buf_fini(&env);
	return has;
}

/* Calls see() for each process of this host until it returns false. */
static void each_process(bool (*see)(void *arg, pid_t pid), void *arg)
{
	DIR *d = opendir("/proc");
	for (struct dirent *at; d && (at = readdir(d));)
		if (isdigit((unsigned char)at->d_name[0]) && !see(arg, (pid_t)atol(at->d_name)))
			break;
	if (d)
		closedir(d);
}

struct marked {
	const char *mark;
	pid_t *pids;
	int n, most;
};

static bool see_marked(void *arg, pid_t pid)
{
	struct marked *m = arg;
	if (pid != getpid() && drill_mark_has(pid, m->mark))
		m->pids[m->n++] = pid;
	return m->n < m->most;
}

int drill_mark_list(const char *mark, pid_t *pids, int most)
{
	struct marked m = { mark, pids, 0, most };
	each_process(see_marked, &m);
	return m.n;
}

int drill_process_signal(pid_t pid, const char *mark, int signal, struct err *e)
{
	int fd = pidfd_open(pid, 0), rc = -1;
	if (fd < 0 || !drill_mark_has(pid, mark))
		err_set(e, ERR_NOTFOUND, "process %ld is no process of the run on this host",
			(long)pid);
	else if (pidfd_send_signal(fd, signal, NULL, 0))
		err_errno(e, errno == EPERM ? ERR_DENIED : ERR_NOTFOUND,
			  "process %ld: cannot send signal %d", (long)pid, signal);
	else
		rc = 0;
	if (fd >= 0)
		close(fd);
	return rc;
}

/* The name of a process's program, as in /proc/<pid>/comm, and its parent; 0: it has ended. */
static pid_t look_up(pid_t pid, char program[PROGRAM])
{
	struct buf stat = BUF_INIT;
	pid_t parent = 0;
	*program = '\0';
	if (!read_proc(pid, "stat", STAT, &stat)) {
		const char *open = strchr(stat.data, '('), *close = strrchr(stat.data, ')');
		long ppid = 0;
		if (open && close > open && sscanf(close + 1, " %*c %ld", &ppid) == 1) {
			snprintf(program, PROGRAM, "%.*s", (int)(close - open - 1), open + 1);
			parent = (pid_t)ppid;
		}
	}
	buf_fini(&stat);
	return parent;
}

struct sought {
	pid_t parent, found;
	const char *program;
};

static bool see_child(void *arg, pid_t pid)
{
	struct sought *s = arg;
	char program[PROGRAM];
	if (look_up(pid, program) == s->parent && !strcmp(program, s->program))
		s->found = pid;
	return !s->found;
}

pid_t drill_process_child(pid_t parent, const char *program)
{
	struct sought s = { parent, 0, program };
	each_process(see_child, &s);
	return s.found;
}

pid_t drill_process_parent(pid_t pid, const char *program)
{
	char name[PROGRAM];
	pid_t parent = look_up(pid, name);
	look_up(parent, name);
	return strcmp(name, program) ? 0 : parent;
}

struct mapped {
	char path[PATH_MAX];
	bool found;
};

static bool see_mapped(void *arg, pid_t pid)
{
	struct mapped *m = arg;
	struct buf maps = BUF_INIT;
	if (!read_proc(pid, "maps", MAPS_MAX, &maps))
		m->found = strstr(maps.data, m->path) != NULL;
	buf_fini(&maps);
	return !m->found;
}

static bool is_mapped(const char *name)
{
	struct mapped m = { .found = false };
	snprintf(m.path, sizeof m.path, "/dev/shm/%s", name);
	each_process(see_mapped, &m);
	return m.found;
}

int drill_shm_names(void)
{
	DIR *d = opendir("/dev/shm");
	int n = 0;
	for (struct dirent *at; d && (at = readdir(d));)
		n += (strcasestr(at->d_name, "muster") || strcasestr(at->d_name, "pmix")) &&
		     !is_mapped(at->d_name);
	if (d)
		closedir(d);
	return n;
}
