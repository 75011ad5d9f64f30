#include "launcher/doctor/doctor.h"

#include "base/clock.h"
#include "base/file.h"
#include "launcher/fork.h"

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

enum { CHECKS_MAX = 32, ANSWER_MAX = 4 << 20 };

/* Seconds to wait for the end of a killed process. A process that is blocked in a driver may never
 * end; the doctor does not wait for it. */
#define GRACE 0.5

struct running_check {
	const struct check *check;
	pid_t pid;
	int fd; /* -1: the answer is complete, or there is none */
	double until;
	bool late;
	struct buf answer;
};

/* Runs in the child. What libraries print is discarded. */
static void run_check_in_child(const struct check *c, const struct needs *n, int fd)
{
	struct findings f = { .check = c->name };
	int null = open("/dev/null", O_RDWR);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	launcher_fork_reset_signals();
	for (int std = 0; null >= 0 && std <= STDERR_FILENO; std++)
		dup2(null, std);
	c->fn(n, &f);
	json_t *list = doctor_findings_json(&f);
	char *text = json_dumps(list, JSON_COMPACT);
	if (text)
		file_write_full(fd, text, strlen(text));
	_exit(0); /* not exit(): a library's exit handler may hang */
}

static void start_check(struct running_check *r, const struct check *c, const struct needs *n,
			struct findings *f)
{
	int ends[2];
	*r = (struct running_check){
		.check = c, .pid = -1, .fd = -1, .until = clock_s() + c->seconds
	};
	if (pipe2(ends, O_CLOEXEC)) {
		doctor_found_bad(f, FINDING_FAIL, c->name, "raise ulimit -n",
				 "the check cannot be started: %s", strerror(errno));
		return;
	}
	r->pid = launcher_fork_blocked();
	if (!r->pid) {
		close(ends[0]);
		run_check_in_child(c, n, ends[1]);
	}
	close(ends[1]);
	r->fd = ends[0];
	if (r->pid < 0) {
		close(r->fd);
		r->fd = -1;
		doctor_found_bad(f, FINDING_FAIL, c->name, "raise ulimit -u, or end other programs",
				 "the check cannot be started: %s", strerror(errno));
	}
}

static void read_output(struct running_check *r)
{
	char *to = r->answer.len < ANSWER_MAX ? buf_room(&r->answer, 65536) : NULL;
	ssize_t got = to ? read(r->fd, to, 65536) : 0;
	if (got > 0) {
		r->answer.len += (size_t)got;
	} else if (!got || errno != EINTR) {
		close(r->fd);
		r->fd = -1;
	}
}

/* Reads all answers until each process has closed its pipe or exceeded its time limit. */
static void read_all_outputs(struct running_check *all, int n)
{
	for (;;) {
		/* only open pipes: poll() refuses more entries than RLIMIT_NOFILE */
		struct pollfd fds[CHECKS_MAX];
		struct running_check *of[CHECKS_MAX];
		double now = clock_s(), next = -1;
		int open = 0;
		for (int i = 0; i < n; i++) {
			if (all[i].fd < 0)
				continue;
			if (now >= all[i].until) {
				all[i].late = true;
				close(all[i].fd);
				all[i].fd = -1;
				continue;
			}
			of[open] = &all[i];
			fds[open++] = (struct pollfd){ .fd = all[i].fd, .events = POLLIN };
			next = next < 0 || all[i].until < next ? all[i].until : next;
		}
		if (!open)
			return;
		if (poll(fds, (nfds_t)open, (int)((next - now) * 1000) + 1) < 0)
			continue;
		for (int i = 0; i < open; i++)
			if (fds[i].revents)
				read_output(of[i]);
	}
}

/* Waits for the end of the process and returns its status; -1: it has not ended. */
static int wait_for_end(const struct running_check *r)
{
	int status = -1;
	if (r->late)
		kill(-r->pid, SIGKILL);
	for (double until = clock_s() + GRACE;; poll(NULL, 0, 1)) {
		if (waitpid(r->pid, &status, WNOHANG) == r->pid)
			return status;
		if (clock_s() >= until && r->late)
			return -1;
		if (clock_s() >= until)
			kill(-r->pid, SIGKILL);
		if (clock_s() >= until + GRACE)
			return -1;
	}
}

/* Reports a check without a complete answer. status: of its process; -1: the process still runs. */
static void report_no_answer(const struct running_check *r, int status, struct findings *f)
{
	if (r->late)
		doctor_found_bad(f, FINDING_FAIL, r->check->name,
				 "a driver or a file system may hang: look at dmesg, and reboot "
				 "the node if the check hangs again",
				 "the check did not answer within %g s", r->check->seconds);
	else if (status > 0 && WIFSIGNALED(status))
		doctor_found_bad(f, FINDING_FAIL, r->check->name,
				 "a library may not match this machine: reinstall it, or the "
				 "driver",
				 "the check was ended by signal %d (%s)", WTERMSIG(status),
				 strsignal(WTERMSIG(status)));
	else
		doctor_found_bad(f, FINDING_FAIL, r->check->name, "run muster doctor again",
				 "the check's answer cannot be read");
}

/* A complete answer counts, however its process ended: a driver may keep a process from ending. */
static void collect_findings(struct running_check *r, struct findings *f)
{
	int status = r->pid > 0 ? wait_for_end(r) : 0;
	json_t *list = json_loadb(buf_str(&r->answer), r->answer.len, 0, NULL);
	/* Without a process, start_check() has reported the cause. */
	if (r->pid > 0 && doctor_findings_read(f, list))
		report_no_answer(r, status, f);
	json_decref(list);
	buf_fini(&r->answer);
}

void doctor_run(const struct check *checks, const struct needs *n, enum doctor_which which,
		struct findings *f)
{
	struct running_check all[CHECKS_MAX];
	int count = 0;
	fflush(NULL);
	for (const struct check *c = checks; c->name && count < CHECKS_MAX; c++) {
		if (which != DOCTOR_ALL && c->once != (which == DOCTOR_ONCE))
			continue;
		f->check = c->name;
		start_check(&all[count++], c, n, f);
	}
	read_all_outputs(all, count);
	for (int i = 0; i < count; i++) {
		int before = f->n;
		f->check = all[i].check->name;
		collect_findings(&all[i], f);
		for (int k = before; k < f->n; k++)
			f->rows[k].whole = all[i].check->once;
	}
}
