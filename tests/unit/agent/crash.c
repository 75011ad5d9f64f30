#include "tests/unit/agent/crash.h"

#include "base/philox.h"
#include "tests/large.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MARK = 0x6d61726b, TRACEES = 512, PROCESSES = 64, PATH = 400 };

#if defined(__x86_64__)

/* --- the calls that name files --- */

static const struct row {
	long nr;
	const char *name;
	signed char path, path2; /* the arguments that are paths; -1: none */
	signed char at;          /* the descriptor that the path begins at */
	signed char fd;          /* the argument that is a descriptor */
} rows[] = {
	{ SYS_open, "open", 0, -1, -1, -1 },
	{ SYS_openat, "openat", 1, -1, 0, -1 },
	{ SYS_mkdir, "mkdir", 0, -1, -1, -1 },
	{ SYS_mkdirat, "mkdirat", 1, -1, 0, -1 },
	{ SYS_rename, "rename", 0, 1, -1, -1 },
	{ SYS_renameat, "renameat", 1, 3, 0, -1 },
	{ SYS_renameat2, "renameat2", 1, 3, 0, -1 },
	{ SYS_link, "link", 0, 1, -1, -1 },
	{ SYS_linkat, "linkat", 1, 3, 0, -1 },
	{ SYS_symlink, "symlink", 1, -1, -1, -1 },
	{ SYS_unlink, "unlink", 0, -1, -1, -1 },
	{ SYS_unlinkat, "unlinkat", 1, -1, 0, -1 },
	{ SYS_rmdir, "rmdir", 0, -1, -1, -1 },
	{ SYS_truncate, "truncate", 0, -1, -1, -1 },
	{ SYS_stat, "stat", 0, -1, -1, -1 },
	{ SYS_lstat, "lstat", 0, -1, -1, -1 },
	{ SYS_newfstatat, "newfstatat", 1, -1, 0, -1 },
	{ SYS_statx, "statx", 1, -1, 0, -1 },
	{ SYS_access, "access", 0, -1, -1, -1 },
	{ SYS_faccessat2, "faccessat2", 1, -1, 0, -1 },
	{ SYS_read, "read", -1, -1, -1, 0 },
	{ SYS_pread64, "pread64", -1, -1, -1, 0 },
	{ SYS_write, "write", -1, -1, -1, 0 },
	{ SYS_pwrite64, "pwrite64", -1, -1, -1, 0 },
	{ SYS_writev, "writev", -1, -1, -1, 0 },
	{ SYS_pwritev, "pwritev", -1, -1, -1, 0 },
	{ SYS_fsync, "fsync", -1, -1, -1, 0 },
	{ SYS_fdatasync, "fdatasync", -1, -1, -1, 0 },
	{ SYS_sync_file_range, "sync_file_range", -1, -1, -1, 0 },
	{ SYS_ftruncate, "ftruncate", -1, -1, -1, 0 },
	{ SYS_fallocate, "fallocate", -1, -1, -1, 0 },
	{ SYS_fstat, "fstat", -1, -1, -1, 0 },
	{ SYS_getdents64, "getdents64", -1, -1, -1, 0 },
	{ SYS_close, "close", -1, -1, -1, 0 },
};
enum { ROWS = sizeof rows / sizeof *rows };

static const struct row *row_of(long nr)
{
	for (int i = 0; i < ROWS; i++)
		if (rows[i].nr == nr)
			return &rows[i];
	return NULL;
}

/* --- what is followed --- */

struct tracee {
	pid_t id, process;
	bool counts; /* with a path: this thread has named it */
	bool inside; /* it is in a call */
	int error;   /* the call in progress is to return this; 0: its own result */
};

struct tracer {
	const struct crash_plan *plan;
	struct crash_seen *seen;
	struct tracee list[TRACEES];
	int n;
	pid_t process[PROCESSES]; /* those that count, and their numbers */
	int who[PROCESSES], processes;
	bool ended; /* everything is to be killed */
};

struct call {
	long nr;
	uint64_t args[6];
};

static pid_t process_of(pid_t id)
{
	char path[64], line[128];
	pid_t process = id;
	snprintf(path, sizeof path, "/proc/%d/status", (int)id);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "Tgid: %d", &process) == 1)
			break;
	if (f)
		fclose(f);
	return process;
}

static struct tracee *find(struct tracer *t, pid_t id)
{
	for (int i = 0; i < t->n; i++)
		if (t->list[i].id == id)
			return &t->list[i];
	return NULL;
}

static struct tracee *add(struct tracer *t, pid_t id)
{
	struct tracee *found = find(t, id);
	if (found || t->n == TRACEES)
		return found;
	t->list[t->n] = (struct tracee){ .id = id, .process = process_of(id) };
	if (t->ended)
		kill(id, SIGKILL);
	return &t->list[t->n++];
}

static void forget(struct tracer *t, pid_t id)
{
	struct tracee *found = find(t, id);
	if (found)
		*found = t->list[--t->n];
}

static void kill_all(struct tracer *t)
{
	t->ended = true;
	for (int i = 0; i < t->n; i++)
		kill(t->list[i].process, SIGKILL);
}

/* --- the files of a call --- */

static void read_text(pid_t id, uint64_t at, char out[PATH])
{
	size_t n = 0;
	memset(out, 0, PATH);
	while (n < PATH - 1) { /* no further than the page: the next one may not be there */
		size_t most = 4096 - (at + n) % 4096;
		struct iovec to = { out + n, most < PATH - 1 - n ? most : PATH - 1 - n };
		struct iovec from = { (void *)(uintptr_t)(at + n), to.iov_len };
		ssize_t got = process_vm_readv(id, &to, 1, &from, 1, 0);
		if (got <= 0 || memchr(out + n, '\0', (size_t)got))
			break;
		n += (size_t)got;
	}
	out[PATH - 1] = '\0';
}

static void read_link(pid_t id, int fd, char out[PATH])
{
	char path[64];
	if (fd == AT_FDCWD)
		snprintf(path, sizeof path, "/proc/%d/cwd", (int)id);
	else
		snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)id, fd);
	ssize_t n = readlink(path, out, PATH - 1);
	out[n < 0 ? 0 : n] = '\0';
}

static void path_of(pid_t id, const struct call *c, int path, int at, char out[PATH])
{
	char name[PATH] = "", folder[PATH];
	read_text(id, c->args[path], name);
	read_link(id, at < 0 ? AT_FDCWD : (int)c->args[at], folder);
	if (name[0] == '/')
		memcpy(out, name, PATH);
	else
		snprintf(out, PATH, "%.250s%s%.140s", folder, *name ? "/" : "", name);
}

/* Sets the first file that the call names, and the second one or "". */
static void files_of(pid_t id, const struct call *c, char first[PATH], char second[PATH])
{
	const struct row *row = row_of(c->nr);
	first[0] = second[0] = '\0';
	if (row && row->path >= 0)
		path_of(id, c, row->path, row->at, first);
	if (row && row->path2 >= 0)
		path_of(id, c, row->path2, row->at < 0 ? -1 : row->path2 - 1, second);
	if (row && row->fd >= 0)
		read_link(id, (int)c->args[row->fd], first);
}

/* --- which calls count --- */

/* The number of a process that counts; -1: it does not. */
static int number_of(const struct tracer *t, pid_t process)
{
	for (int i = 0; i < t->processes; i++)
		if (t->process[i] == process)
			return t->who[i];
	return -1;
}

static int mark(struct tracer *t, pid_t process, int who)
{
	for (int i = 0; i < t->processes; i++)
		if (t->process[i] == process)
			return t->who[i] = who;
	if (t->processes == PROCESSES)
		return -1;
	t->process[t->processes] = process;
	return t->who[t->processes++] = who;
}

static bool moves_bytes(long nr)
{
	return nr == SYS_write || nr == SYS_pwrite64 || nr == SYS_read || nr == SYS_pread64;
}

static bool only_looks(long nr)
{
	static const long looks[] = { SYS_stat,  SYS_lstat,  SYS_fstat,     SYS_newfstatat,
				      SYS_statx, SYS_access, SYS_faccessat2 };
	for (size_t i = 0; i < sizeof looks / sizeof *looks; i++)
		if (looks[i] == nr)
			return true;
	return false;
}

static bool counts(struct tracer *t, struct tracee *p, const struct call *c, char file[PATH])
{
	const struct crash_plan *plan = t->plan;
	char second[PATH];
	int who;
	if (c->nr == SYS_prctl && c->args[0] == MARK && !plan->path) {
		mark(t, p->process, (int)c->args[1]);
		return false;
	}
	who = number_of(t, p->process);
	if (!plan->path && who < 0)
		return false;
	files_of(p->id, c, file, second);
	if (plan->path && !p->counts && !strstr(file, plan->path) && !strstr(second, plan->path))
		return false;
	p->counts = true;
	if (who < 0)
		who = mark(t, p->process, t->processes);
	if (plan->who >= 0 && who != plan->who)
		return false;
	if (plan->what == CRASH_SHORT && !moves_bytes(c->nr))
		return false;
	if (plan->what == CRASH_FAIL && plan->error == EINTR && only_looks(c->nr))
		return false;
	size_t n = plan->under ? strlen(plan->under) : 0;
	return !n || !strncmp(file, plan->under, n) || !strncmp(second, plan->under, n);
}

/* --- what happens to them --- */

static void change(struct tracer *t, struct tracee *p, const struct call *c)
{
	struct user_regs_struct regs;
	if (ptrace(PTRACE_GETREGS, p->id, NULL, &regs))
		return;
	if (t->plan->what == CRASH_SHORT)
		regs.rdx = regs.rdx > 1 ? regs.rdx / 2 : regs.rdx;
	else
		p->error = t->plan->error;
	if (t->plan->what == CRASH_FAIL && c->nr != SYS_close)
		regs.orig_rax = (unsigned long)-1;
	ptrace(PTRACE_SETREGS, p->id, NULL, &regs);
}

static void set_result(struct tracee *p)
{
	struct user_regs_struct regs;
	if (!p->error || ptrace(PTRACE_GETREGS, p->id, NULL, &regs))
		return;
	regs.rax = (unsigned long)-p->error;
	p->error = 0;
	ptrace(PTRACE_SETREGS, p->id, NULL, &regs);
}

static void enter(struct tracer *t, struct tracee *p, const struct call *c)
{
	char file[PATH] = "";
	if (t->ended || !counts(t, p, c, file))
		return;
	t->seen->count++;
	if (t->seen->hit)
		return;
	const struct row *row = row_of(c->nr);
	if (row)
		snprintf(t->seen->call, sizeof t->seen->call, "%s %s", row->name, file);
	else
		snprintf(t->seen->call, sizeof t->seen->call, "call %ld", c->nr);
	if (t->plan->what == CRASH_NOTHING || t->seen->count != t->plan->at)
		return;
	t->seen->hit = true;
	if (t->plan->what == CRASH_ALL)
		kill_all(t);
	else if (t->plan->what == CRASH_ONE)
		kill(p->process, SIGKILL);
	else
		change(t, p, c);
}

/* --- following --- */

static void go_on(const struct tracer *t, const struct tracee *p, int sig)
{
	bool every = !t->plan->path || p->counts;
	ptrace(every ? PTRACE_SYSCALL : PTRACE_CONT, p->id, NULL, (void *)(intptr_t)sig);
}

/* A call begins or ends. Before a thread counts, only the calls of the filter stop it, once each;
 * afterwards the filter's stop follows that of the call itself and is ignored. */
static void look(struct tracer *t, struct tracee *p)
{
	struct __ptrace_syscall_info info;
	struct call c = { 0 };
	if (ptrace(PTRACE_GET_SYSCALL_INFO, p->id, sizeof info, &info) <= 0)
		return;
	if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
		p->inside = false;
		set_result(p);
		return;
	}
	if (p->inside || info.op == PTRACE_SYSCALL_INFO_NONE)
		return;
	bool filtered = info.op == PTRACE_SYSCALL_INFO_SECCOMP;
	c.nr = (long)(filtered ? info.seccomp.nr : info.entry.nr);
	memcpy(c.args, filtered ? info.seccomp.args : info.entry.args, sizeof c.args);
	enter(t, p, &c);
	p->inside = !t->plan->path || p->counts;
}

static void stopped(struct tracer *t, pid_t id, int status)
{
	struct tracee *p = add(t, id);
	int sig = WSTOPSIG(status), event = status >> 16;
	unsigned long child;
	if (!p) /* more than the table holds: cannot be followed */
		return (void)ptrace(PTRACE_DETACH, id, NULL, NULL);
	if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK ||
	    event == PTRACE_EVENT_CLONE) {
		if (!ptrace(PTRACE_GETEVENTMSG, id, NULL, &child))
			add(t, (pid_t)child);
		sig = 0;
	} else if (event == PTRACE_EVENT_STOP && sig != SIGTRAP) {
		ptrace(PTRACE_LISTEN, id, NULL, NULL);
		return;
	} else if (event == PTRACE_EVENT_SECCOMP || sig == (SIGTRAP | 0x80)) {
		look(t, p);
		sig = 0;
	} else if (event) {
		sig = 0;
	}
	go_on(t, p, sig);
}

static void follow(struct tracer *t, pid_t first)
{
	add(t, first);
	while (t->n) {
		int status;
		pid_t id = waitpid(-1, &status, __WALL);
		if (id < 0 && errno != EINTR)
			return;
		if (id < 0)
			continue;
		if (WIFSTOPPED(status)) {
			stopped(t, id, status);
			continue;
		}
		if (id == first)
			t->seen->status = status;
		forget(t, id);
	}
}

/* The calls that name paths stop the process. */
static int filter_calls(void)
{
	struct sock_filter code[2 * ROWS + 2];
	int n = 0;
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, nr));
	for (int i = 0; i < ROWS; i++) {
		if (rows[i].path < 0)
			continue;
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							 (unsigned)rows[i].nr, 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	const struct sock_fprog program = { (unsigned short)n, code };
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
			       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
		       ? -1
		       : 0;
}

int crash_run(int (*body)(void *arg), void *arg, const struct crash_plan *plan,
	      struct crash_seen *seen)
{
	static struct tracer t;
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE |
			     PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACESECCOMP;
	int gate[2];
	char byte = 0;
	memset(&t, 0, sizeof t);
	memset(seen, 0, sizeof *seen);
	t.plan = plan;
	t.seen = seen;
	fflush(NULL);
	if (pipe2(gate, O_CLOEXEC))
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		close(gate[1]);
		if (read(gate[0], &byte, 1) != 1 || (plan->path && filter_calls()))
			_exit(126);
		close(gate[0]);
		_exit(body(arg));
	}
	close(gate[0]);
	int rc = pid < 0 || ptrace(PTRACE_SEIZE, pid, NULL, (void *)options) ||
				 ptrace(PTRACE_INTERRUPT, pid, NULL, NULL)
			 ? -1
			 : 0;
	int saved = errno;
	if (!rc && write(gate[1], &byte, 1) != 1)
		kill(pid, SIGKILL);
	close(gate[1]);
	if (!rc)
		follow(&t, pid);
	else if (pid > 0)
		waitpid(pid, NULL, 0);
	errno = saved;
	return rc;
}

#else

int crash_run(int (*body)(void *arg), void *arg, const struct crash_plan *plan,
	      struct crash_seen *seen)
{
	(void)body;
	(void)arg;
	(void)plan;
	(void)seen;
	errno = ENOSYS;
	return -1;
}

#endif

static int nothing(void *arg)
{
	(void)arg;
	return 0;
}

bool crash_possible(void)
{
	const struct crash_plan plan = { .path = "/" };
	struct crash_seen seen;
	return !crash_run(nothing, NULL, &plan, &seen) && WIFEXITED(seen.status) &&
	       WEXITSTATUS(seen.status) == 0;
}

long crash_choose(struct crash_plan *plan, long count, long some)
{
	static uint64_t seed;
	static uint32_t n;
	uint32_t r[4];
	if (!n++) {
		const char *set = getenv("SEED");
		seed = set ? strtoull(set, NULL, 10) : (uint64_t)getpid();
		printf("# SEED=%" PRIu64 "\n", seed);
	}
	long distance = large_run() ? 1 : (count + some - 1) / some;
	philox4(philox_key(seed, PHILOX_TEST, 5), n, r);
	plan->at = 1 + (long)(r[0] % (uint32_t)distance);
	return distance;
}

void crash_mark(int who)
{
	prctl(MARK, who, 0, 0, 0);
}
