#include "launcher/pmix/agents.h"

#include "base/agent_env.h"
#include "base/munge.h"
#include "launcher/pmix/spawn.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CPUS = 1024 };

struct agent {
	struct local_agents *all;
	uv_poll_t poll; /* of pidfd */
	int rank, pidfd;
	pid_t pid; /* 0: it has ended */
};

struct local_agents {
	void (*exited)(void *arg, int rank, int status);
	void (*all_gone)(void *arg);
	void *arg;
	int n;       /* started */
	int running; /* not reaped yet */
	int handles; /* not closed by the loop yet */
	bool closed;
	struct agent agents[];
};

static void free_when_done(struct local_agents *l)
{
	if (l->closed && !l->handles)
		free(l);
}

static void on_handle_closed(uv_handle_t *h)
{
	struct agent *a = h->data;
	close(a->pidfd);
	a->all->handles--;
	free_when_done(a->all);
}

static void on_exit_seen(uv_poll_t *poll, int uv_status, int uv_events)
{
	struct agent *a = poll->data;
	struct local_agents *l = a->all;
	(void)uv_status;
	(void)uv_events;
	int status;
	if (!local_spawn_reap(a->pid, &status))
		return;
	a->pid = 0;
	uv_close((uv_handle_t *)poll, on_handle_closed);
	l->exited(l->arg, a->rank, status);
	if (--l->running == 0)
		l->all_gone(l->arg);
}

void local_agents_kill(struct local_agents *l)
{
	for (int i = 0; i < l->n; i++)
		if (l->agents[i].pid)
			local_spawn_kill(l->agents[i].pid);
}

void local_agents_kill_rank(struct local_agents *l, int rank)
{
	for (int i = 0; i < l->n; i++)
		if (l->agents[i].pid && l->agents[i].rank == rank)
			local_spawn_kill(l->agents[i].pid);
}

void local_agents_signal(struct local_agents *l, int number)
{
	for (int i = 0; i < l->n; i++)
		if (l->agents[i].pid)
			kill(l->agents[i].pid, number);
}

void local_agents_close(struct local_agents *l)
{
	l->closed = true;
	free_when_done(l);
}

/* The environment of an agent; the variables point into the struct. */
struct env_text {
	char address[128], secret[128], generation[64], auth[MUNGE_WORD + 16], threads[64],
		blas[64], ranks[64];
	char *own[6], *soft[4];
};

static void set_environment(struct env_text *t, const struct local_agents_request *r)
{
	snprintf(t->address, sizeof t->address, AGENT_ENV_ADDRESS "=%s", r->address);
	snprintf(t->secret, sizeof t->secret, AGENT_ENV_SECRET "=%s", r->secret);
	snprintf(t->generation, sizeof t->generation, AGENT_ENV_GENERATION "=%u", r->generation);
	snprintf(t->auth, sizeof t->auth, AGENT_ENV_AUTH "=%s", r->auth);
	memcpy(t->own,
	       (char *[]){ t->address, t->secret, t->generation, t->auth,
			   r->named ? t->ranks : NULL, NULL },
	       sizeof t->own);
	/* There may be more ranks than cores, so a waiting thread must sleep. */
	memcpy(t->soft, (char *[]){ t->threads, t->blas, "OMP_WAIT_POLICY=passive", NULL },
	       sizeof t->soft);
}

static void set_place(struct env_text *t, int rank, int world, int threads)
{
	snprintf(t->ranks, sizeof t->ranks, AGENT_ENV_RANKS "=%d/%d", rank, world);
	snprintf(t->threads, sizeof t->threads, "OMP_NUM_THREADS=%d", threads);
	snprintf(t->blas, sizeof t->blas, "OPENBLAS_NUM_THREADS=%d", threads);
}

/* Kills the process and waits until it has ended. */
static void end_agent(const struct agent *a)
{
	int status;
	local_spawn_kill(a->pid);
	while (!local_spawn_reap(a->pid, &status))
		usleep(1000);
}

static int start_agent(uv_loop_t *loop, struct local_agents *l,
		       const struct local_agents_request *r, struct env_text *t, struct err *e)
{
	struct agent *a = &l->agents[l->n];
	char cpus[CPUS];
	int threads;
	*a = (struct agent){ .all = l };
	if (r->choose(r->arg, l->n, &a->rank, &threads, cpus, sizeof cpus, e))
		return -1;
	set_place(t, a->rank, r->world, threads);
	struct spawn s = {
		.path = r->agent,
		.cpus = cpus,
		.pmix_env = r->server ? local_server_env(r->server, l->n) : NULL,
		.own_env = t->own,
		.soft_env = t->soft,
		.log_fd = r->log_fd,
	};
	if (local_spawn_start(&s, &a->pid, &a->pidfd, e))
		return -1;
	if (uv_poll_init(loop, &a->poll, a->pidfd)) {
		end_agent(a);
		close(a->pidfd);
		return err_set(e, ERR_NOMEM, "%s: cannot watch process %ld", r->agent,
			       (long)a->pid);
	}
	l->n++;
	l->running++;
	l->handles++;
	a->poll.data = a;
	uv_poll_start(&a->poll, UV_READABLE, on_exit_seen);
	return 0;
}

/* Ends everything that was started, and waits for it. */
static void undo_start(struct local_agents *l)
{
	local_agents_kill(l);
	for (int i = 0; i < l->n; i++) {
		end_agent(&l->agents[i]);
		uv_close((uv_handle_t *)&l->agents[i].poll, on_handle_closed);
	}
	local_agents_close(l);
}

int local_agents_start(uv_loop_t *loop, const struct local_agents_request *r,
		       struct local_agents **out, struct err *e)
{
	struct local_agents *l = calloc(1, sizeof *l + (size_t)r->n * sizeof l->agents[0]);
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory to start %d agents", r->n);
	l->exited = r->exited;
	l->all_gone = r->all_gone;
	l->arg = r->arg;
	struct env_text t;
	set_environment(&t, r);
	while (l->n < r->n)
		if (start_agent(loop, l, r, &t, e))
			break;
	explicit_bzero(t.secret, sizeof t.secret);
	if (l->n < r->n) {
		undo_start(l);
		return -1;
	}
	*out = l;
	return 0;
}
