#include "agent/predecessors.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/messages.h"
#include "base/process_id.h"
#include "base/process_stat.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

enum { LOOK_AGAIN_MS = 20 }; /* without a pidfd */

struct target {
	struct msg_predecessor who;
	int fd; /* its pidfd; -1: the kernel has none */
};

struct search {
	const struct predecessors_gate *gate;
	struct process_id self;
	char name[PROCESS_NAME]; /* of the program that both run */
	struct target *targets;  /* that exist */
	size_t n;
};

static int send_kill(int fd, int pid)
{
	return fd >= 0 ? pidfd_send_signal(fd, SIGKILL, NULL, 0) : kill(pid, SIGKILL);
}

/* Whether the pid is still that of the agent. Call it when the pidfd is open: then its answer holds
 * for the pidfd. */
static bool is_agent(const struct search *s, const struct msg_predecessor *p)
{
	struct process_stat stat;
	uid_t owner;
	return p->pid != s->self.pid && !process_stat_read(p->pid, &stat) &&
	       stat.start == p->start && !strcmp(stat.name, s->name) &&
	       !process_owner_read(p->pid, &owner) && owner == geteuid();
}

/* Adds it to the targets if it exists. */
static int look_for(struct search *s, const struct msg_predecessor *p, struct err *e)
{
	if (strcmp(p->boot, s->self.boot))
		return 0; /* the host has booted since */
	if (p->pid_space != s->self.pid_space) {
		log_warn("%s: the agent of generation %" PRId64 " (pid %d there) ran in another "
			 "PID namespace, so this agent cannot check that it has ended",
			 s->gate->node, p->generation, p->pid);
		return 0;
	}
	int fd = pidfd_open(p->pid, 0);
	/* EINVAL and ENOENT: the number is now that of a thread. */
	if (fd < 0 && (errno == ESRCH || errno == EINVAL || errno == ENOENT))
		return 0;
	if (fd < 0 && errno != ENOSYS && errno != EPERM)
		return err_errno(e, ERR_NOMEM,
				 "%s: cannot examine process %d, an agent of generation %" PRId64,
				 s->gate->node, p->pid, p->generation);
	if (is_agent(s, p))
		s->targets[s->n++] = (struct target){ .who = *p, .fd = fd };
	else if (fd >= 0)
		close(fd);
	return 0;
}

static int find_targets(struct search *s, const json_t *list, struct err *e)
{
	struct msg_predecessor p;
	size_t n = json_array_size(list);
	if (list && !json_is_array(list))
		return err_set(e, ERR_PROTO, "message welcome: predecessors is not a list");
	for (size_t i = 0; i < n; i++)
		if (msg_predecessor_read(json_array_get(list, i), &p, e))
			return err_prefix(e, "message welcome");
	s->targets = calloc(n + 1, sizeof *s->targets);
	if (!s->targets)
		return err_set(e, ERR_NOMEM, "%s: no memory for %zu earlier agents", s->gate->node,
			       n);
	for (size_t i = 0; i < n; i++) {
		msg_predecessor_read(json_array_get(list, i), &p, NULL);
		if (p.pid > 0 && p.start > 0 && look_for(s, &p, e))
			return -1;
	}
	return 0;
}

/* One line for all of them: every new agent of the host may report the same processes. */
static void report_killed(const struct search *s)
{
	struct buf list = BUF_INIT;
	for (size_t i = 0; i < s->n; i++)
		buf_printf(&list, "%s%d (generation %" PRId64 ")", i ? ", " : "",
			   s->targets[i].who.pid, s->targets[i].who.generation);
	if (s->n)
		log_warn("%s: agents of earlier generations still ran and were killed: processes "
			 "%s",
			 s->gate->node, buf_str(&list));
	buf_fini(&list);
}

static int kill_targets(const struct search *s, struct err *e)
{
	int (*kill_one)(int, int) = s->gate->kill ? s->gate->kill : send_kill;
	for (size_t i = 0; i < s->n; i++) {
		const struct target *t = &s->targets[i];
		if (kill_one(t->fd, t->who.pid) && errno != ESRCH)
			return err_errno(e, ERR_STUCK,
					 "%s: process %d, an agent of generation %" PRId64
					 ", still runs and cannot be killed",
					 s->gate->node, t->who.pid, t->who.generation);
	}
	report_killed(s);
	return 0;
}

/* A signal that interrupts the wait begins it anew. */
static bool wait_readable(struct pollfd *p, double seconds)
{
	int n;
	do
		n = poll(p, 1, seconds > 0 ? (int)(seconds * 1000) + 1 : 0);
	while (n < 0 && errno == EINTR);
	return n == 1;
}

static bool has_ended(const struct search *s, const struct target *t, double seconds)
{
	struct pollfd p = { .fd = t->fd, .events = POLLIN };
	struct process_stat stat;
	if (t->fd >= 0)
		return wait_readable(&p, seconds);
	for (double end = clock_s() + seconds; is_agent(s, &t->who);) {
		if (!process_stat_read(t->who.pid, &stat) && stat.state == 'Z')
			return true;
		if (clock_s() >= end)
			return false;
		poll(NULL, 0, LOOK_AGAIN_MS);
	}
	return true;
}

static int report_stuck(const struct search *s, const struct target *t, double seconds,
			struct err *e)
{
	struct process_stat stat = { .state = '?' };
	process_stat_read(t->who.pid, &stat);
	return err_set(
		e, ERR_STUCK,
		"%s: process %d, an agent of generation %" PRId64
		", still runs (state %c) %g s after SIGKILL; %s",
		s->gate->node, t->who.pid, t->who.generation, stat.state, seconds,
		stat.state == 'D'
			? "it is stuck in the kernel: the node needs a reboot, or its driver "
			  "a reset"
			: "end it there, or run without this node");
}

static int await_targets(const struct search *s, struct err *e)
{
	double patience = s->gate->patience > 0 ? s->gate->patience : PREDECESSORS_PATIENCE,
	       end = clock_s() + patience;
	for (size_t i = 0; i < s->n; i++)
		if (!has_ended(s, &s->targets[i], end - clock_s()))
			return report_stuck(s, &s->targets[i], patience, e);
	return 0;
}

int agent_predecessors_end(const struct predecessors_gate *gate, const json_t *list, struct err *e)
{
	struct search s = { .gate = gate };
	struct process_stat self;
	if (!list)
		return 0;
	process_id_self(&s.self);
	if (process_stat_read(s.self.pid, &self))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: /proc cannot be read, so agents of earlier generations cannot "
			       "be found; mount it",
			       gate->node);
	memcpy(s.name, self.name, sizeof s.name);
	int rc = find_targets(&s, list, e);
	if (!rc)
		rc = kill_targets(&s, e);
	if (!rc)
		rc = await_targets(&s, e);
	for (size_t i = 0; i < s.n; i++)
		if (s.targets[i].fd >= 0)
			close(s.targets[i].fd);
	free(s.targets);
	return rc;
}
