/* local: launch_local, the agents of one generation on this host. */
#include "base/auth.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "launcher/launch.h"
#include "launcher/pmix/local.h"
#include "launcher/pmix/server.h"
#include "launcher/pmix/spawn.h"
#include "topo/bind.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMESPACE_MAX = 64 };

struct agent {
	struct launch *launch;
	uv_poll_t poll; /* of pidfd */
	int rank, pidfd;
	pid_t pid;
};

struct launch {
	struct launch_events ev;
	struct local_server *server;
	int n;       /* started */
	int running; /* not reaped yet */
	int handles; /* not closed by the loop yet */
	bool closed;
	struct agent agents[];
};

static void free_when_done(struct launch *l)
{
	if (l->closed && !l->handles)
		free(l);
}

static void on_handle_closed(uv_handle_t *h)
{
	struct agent *a = h->data;
	close(a->pidfd);
	a->launch->handles--;
	free_when_done(a->launch);
}

static void on_exit_seen(uv_poll_t *poll, int uv_status, int uv_events)
{
	struct agent *a = poll->data;
	struct launch *l = a->launch;
	(void)uv_status;
	(void)uv_events;
	int status;
	if (!local_spawn_reap(a->pid, &status))
		return;
	a->pid = 0;
	uv_close((uv_handle_t *)poll, on_handle_closed);
	l->ev.exited(l->ev.arg, a->rank, status);
	if (--l->running == 0)
		l->ev.all_gone(l->ev.arg);
}

static void kill_all(struct launch *l)
{
	for (int i = 0; i < l->n; i++)
		if (l->agents[i].pid)
			local_spawn_kill(l->agents[i].pid);
}

static void local_kill(struct launch *l, bool node_lost)
{
	(void)node_lost; /* there is one node, and this process runs on it */
	kill_all(l);
}

static void local_close(struct launch *l)
{
	local_server_close(l->server);
	l->closed = true;
	free_when_done(l);
}

/* The environment of an agent; the variables point into the struct. */
struct env_text {
	char address[128], secret[128], generation[64], auth[MUNGE_WORD + 16], threads[64],
		blas[64];
	char *own[5], *soft[4];
};

static void set_environment(struct env_text *t, const struct launch_request *r)
{
	snprintf(t->address, sizeof t->address, AGENT_ENV_ADDRESS "=%s", r->address);
	snprintf(t->secret, sizeof t->secret, AGENT_ENV_SECRET "=%s", r->secret);
	snprintf(t->generation, sizeof t->generation, AGENT_ENV_GENERATION "=%u", r->generation);
	snprintf(t->auth, sizeof t->auth, AGENT_ENV_AUTH "=%s", r->auth);
	memcpy(t->own, (char *[]){ t->address, t->secret, t->generation, t->auth, NULL },
	       sizeof t->own);
	/* There may be more ranks than cores, so a waiting thread must sleep. */
	memcpy(t->soft, (char *[]){ t->threads, t->blas, "OMP_WAIT_POLICY=passive", NULL },
	       sizeof t->soft);
}

static void set_threads(struct env_text *t, int threads)
{
	snprintf(t->threads, sizeof t->threads, "OMP_NUM_THREADS=%d", threads);
	snprintf(t->blas, sizeof t->blas, "OPENBLAS_NUM_THREADS=%d", threads);
}

static int choose_cpus(const struct launch_request *r, int rank, char *cpus, int size,
		       struct err *e)
{
	enum job_bind how = r->job->launch.bind;
	cpus[0] = '\0';
	if (how == BIND_NONE)
		return 0;
	topo_bind_near(topo_cluster_kind(r->cluster, r->plan->ranks[rank].node),
		       r->plan->ranks[rank].slot, cpus, (size_t)size);
	if (*cpus)
		return 0;
	if (topo_bind_cpus(r->plan->world, rank, r->plan->threads, cpus, size, e))
		return -1;
	if (how == BIND_CORE && !*cpus)
		return err_set(e, ERR_NOFIT,
			       "[launch] bind = core: %d agents of %d threads need more cores than "
			       "this host has; "
			       "use bind = auto",
			       r->plan->world, r->plan->threads);
	return 0;
}

/* Kills the process and waits until it has ended. */
static void end_agent(const struct agent *a)
{
	int status;
	local_spawn_kill(a->pid);
	while (!local_spawn_reap(a->pid, &status))
		usleep(1000);
}

static int start_agent(uv_loop_t *loop, struct launch *l, const struct launch_request *r,
		       struct env_text *t, int log_fd, struct err *e)
{
	struct agent *a = &l->agents[l->n];
	char cpus[1024];
	*a = (struct agent){ .launch = l, .rank = l->n };
	if (choose_cpus(r, a->rank, cpus, sizeof cpus, e))
		return -1;
	set_threads(t, r->plan->ranks[a->rank].threads);
	struct spawn s = {
		.path = r->agent,
		.cpus = cpus,
		.pmix_env = local_server_env(l->server, a->rank),
		.own_env = t->own,
		.soft_env = t->soft,
		.log_fd = log_fd,
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
static void undo_start(struct launch *l)
{
	kill_all(l);
	for (int i = 0; i < l->n; i++) {
		end_agent(&l->agents[i]);
		uv_close((uv_handle_t *)&l->agents[i].poll, on_handle_closed);
	}
	local_close(l);
}

static int open_log(const struct launch_request *r, int *fd, struct err *e)
{
	char path[RUN_PATH];
	run_path_launch_log(path, r->run_dir, r->generation);
	*fd = file_open(path, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, e);
	return *fd < 0 ? -1 : 0;
}

/* The namespace's name is random, because anyone who knows it can read its contents from
 * libpmix. */
static void make_namespace(char out[NAMESPACE_MAX], uint32_t generation)
{
	unsigned char random[AUTH_SECRET_BYTES];
	char hex[AUTH_SECRET_HEX];
	auth_secret_new(random);
	auth_secret_hex(random, hex);
	snprintf(out, NAMESPACE_MAX, "muster-%u-%.32s", generation, hex); /* 128 random bits */
}

static int local_start(uv_loop_t *loop, const struct launch_request *r,
		       const struct launch_events *ev, struct launch **out, struct err *e)
{
	int world = r->plan->world, log_fd;
	char nspace[NAMESPACE_MAX];
	struct launch *l = calloc(1, sizeof *l + (size_t)world * sizeof l->agents[0]);
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory to launch %d agents", world);
	l->ev = *ev;
	make_namespace(nspace, r->generation);
	if (open_log(r, &log_fd, e))
		goto free_launch;
	if (local_server_open(nspace, world, r->run_dir, log_fd, &l->server, e))
		goto close_log;
	struct env_text t;
	set_environment(&t, r);
	while (l->n < world)
		if (start_agent(loop, l, r, &t, log_fd, e))
			break;
	explicit_bzero(t.secret, sizeof t.secret);
	close(log_fd);
	if (l->n < world) {
		undo_start(l);
		return -1;
	}
	*out = l;
	return 0;

close_log:
	close(log_fd);
free_launch:
	free(l);
	return -1;
}

static bool local_available(void)
{
	return true;
}

/* All agents are on this host, so they use the loopback address. */
static int local_control_host(const struct job *job, char host[NET_ADDR_MAX], struct err *e)
{
	(void)job;
	return net_loopback_up(e) || net_local_address(NULL, NULL, host, e) ? -1 : 0;
}

const struct launch_ops launch_local = {
	.name = "local",
	.word = LAUNCHER_LOCAL,
	.available = local_available,
	.cluster = "local",
	.control_host = local_control_host,
	.start = local_start,
	.kill = local_kill,
	.close = local_close,
};
