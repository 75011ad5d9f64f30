/* local: launch_local, the agents of one generation on this host. */
#include "base/file.h"
#include "base/run_paths.h"
#include "launcher/launch.h"
#include "launcher/namespace.h"
#include "launcher/pmix/agents.h"
#include "launcher/pmix/checks.h"
#include "launcher/pmix/local.h"
#include "launcher/pmix/server.h"
#include "topo/bind.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct launch {
	struct launch_events ev;
	struct local_server *server;
	struct local_agents *agents;
	const struct launch_request *request; /* while the agents are started */
};

static void local_kill(struct launch *l, bool node_lost)
{
	(void)node_lost; /* there is one node, and this process runs on it */
	local_agents_kill(l->agents);
}

static void local_kill_agent(struct launch *l, int rank)
{
	local_agents_kill_rank(l->agents, rank);
}

static void local_close(struct launch *l)
{
	local_server_close(l->server);
	local_agents_close(l->agents);
	free(l);
}

static void on_exited(void *arg, int rank, int status)
{
	struct launch *l = arg;
	l->ev.exited(l->ev.arg, rank, status);
}

static void on_all_gone(void *arg)
{
	struct launch *l = arg;
	l->ev.all_gone(l->ev.arg);
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

static int open_log(const struct launch_request *r, int *fd, struct err *e)
{
	char path[RUN_PATH];
	run_path_launch_log(path, r->run_dir, r->generation);
	*fd = file_open(path, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, e);
	return *fd < 0 ? -1 : 0;
}

/* Without a list of ranks, the agents' numbers are their ranks. */
static int choose_place(void *arg, int i, int *rank, int *threads, char *cpus, int size,
			struct err *e)
{
	const struct launch_request *r = ((const struct launch *)arg)->request;
	*rank = r->ranks ? r->ranks[i] : i;
	*threads = r->plan->ranks[*rank].threads;
	return choose_cpus(r, *rank, cpus, size, e);
}

static int start_server(const struct launch_request *r, int log_fd, struct local_server **out,
			struct err *e)
{
	char nspace[LAUNCHER_NAMESPACE], dir[RUN_PATH];
	launcher_namespace_new(nspace, r->generation);
	run_path(dir, r->run_dir, RUN_PMIX); /* the run's lock protects it */
	return local_server_open(&(struct local_group){ .nspace = nspace, .world = r->plan->world },
				 dir, log_fd, out, e);
}

static int start_agents(uv_loop_t *loop, struct launch *l, int log_fd, struct err *e)
{
	const struct launch_request *r = l->request;
	return local_agents_start(loop,
				  &(struct local_agents_request){ .agent = r->agent,
								  .address = r->address,
								  .secret = r->secret,
								  .auth = r->auth,
								  .generation = r->generation,
								  .server = l->server,
								  .named = r->ranks ||
									   job_has_program(r->job),
								  .log_fd = log_fd,
								  .world = r->plan->world,
								  .n = r->n_ranks,
								  .choose = choose_place,
								  .exited = on_exited,
								  .all_gone = on_all_gone,
								  .arg = l },
				  &l->agents, e);
}

static int local_start(uv_loop_t *loop, const struct launch_request *r,
		       const struct launch_events *ev, struct launch **out, struct err *e)
{
	int log_fd;
	struct launch *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory to launch %d agents", r->plan->world);
	l->ev = *ev;
	l->request = r;
	if (open_log(r, &log_fd, e)) {
		free(l);
		return -1;
	}
	int rc = r->ranks ? 0 : start_server(r, log_fd, &l->server, e);
	if (!rc && (rc = start_agents(loop, l, log_fd, e)))
		local_server_close(l->server);
	close(log_fd);
	l->request = NULL;
	if (rc)
		free(l);
	else
		*out = l;
	return rc;
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
	.kill_agent = local_kill_agent,
	.close = local_close,
	.check_nodes = local_check_nodes,
	.burn_in = local_burn_in,
};
