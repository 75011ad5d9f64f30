#include "launcher/helper/node.h"

#include "base/file.h"
#include "base/log.h"
#include "base/net.h"
#include "base/run_paths.h"
#include "launcher/helper/cores.h"
#include "launcher/pmix/agents.h"
#include "launcher/pmix/server.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SERVER_STARTS = 3 }; /* libpmix's server may crash while it starts */

struct node {
	struct node_options o;
	struct local_server *server;
	bool serving; /* the server's process runs */
	uv_poll_t poll;
	struct local_agents *agents;
};

/* Agents that still need the server report its end themselves; the others need it no more. */
static void lose_server(struct node *n, const struct err *why)
{
	if (n->serving)
		log_warn("%s; agents that are wired up continue without it", why->text);
	n->serving = false;
	uv_poll_stop(&n->poll);
}

static void on_server(uv_poll_t *poll, int status, int events)
{
	struct node *n = poll->data;
	struct buf put = BUF_INIT;
	struct err e = ERR_INIT;
	int got;
	(void)status;
	(void)events;
	while ((got = local_server_receive(n->server, &put, &e)) == 1)
		n->o.put(n->o.arg, &put);
	buf_fini(&put);
	if (got < 0)
		lose_server(n, &e);
}

static void on_closed(uv_handle_t *h)
{
	struct node *n = h->data;
	local_server_close(n->server);
	free(n);
}

/* The run's lock protects the folder <run>/.pmix, which the nodes share. */
static int open_server(struct node *n, struct err *e)
{
	const struct helper_start *s = n->o.start;
	const struct local_group g = {
		.nspace = s->m.nspace, .world = s->world, .node_of = s->node_of, .node = s->m.node
	};
	char dir[RUN_PATH], name[32];
	run_path(dir, s->m.run, RUN_PMIX);
	if (net_loopback_up(e) || file_make_own_dir(dir, e))
		return -1;
	snprintf(name, sizeof name, RUN_PMIX "/node%d", s->m.node);
	run_path(dir, s->m.run, name);
	int rc = -1;
	for (int i = 0; rc && i < SERVER_STARTS && (!i || e->code == ERR_PEER); i++)
		rc = local_server_open(&g, dir, STDERR_FILENO, &n->server, e);
	return rc;
}

static int watch_server(struct node *n, struct err *e)
{
	if (uv_poll_init(n->o.loop, &n->poll, local_server_fd(n->server)))
		return err_set(e, ERR_NOMEM, "cannot watch the PMIx server");
	n->poll.data = n;
	n->serving = true;
	uv_poll_start(&n->poll, UV_READABLE, on_server);
	return 0;
}

static int choose_place(void *arg, int i, int *rank, int *threads, char *cpus, int size,
			struct err *e)
{
	const struct helper_start *s = ((const struct node *)arg)->o.start;
	*rank = s->ranks[i];
	*threads = s->threads[i];
	return helper_cores_choose(s->bind, s->n, i, *threads, cpus, size, e);
}

static void on_exited(void *arg, int rank, int status)
{
	const struct node *n = arg;
	n->o.exited(n->o.arg, rank, status);
}

static void on_all_gone(void *arg)
{
	const struct node *n = arg;
	n->o.all_gone(n->o.arg);
}

static int start_agents(struct node *n, struct err *e)
{
	const struct helper_start *s = n->o.start;
	return local_agents_start(n->o.loop,
				  &(struct local_agents_request){ .agent = s->m.agent,
								  .address = s->m.address,
								  .secret = s->m.secret,
								  .auth = s->m.auth,
								  .generation = n->o.generation,
								  .server = n->server,
								  .named = s->m.program,
								  .world = s->world,
								  .log_fd = STDERR_FILENO,
								  .n = s->n,
								  .choose = choose_place,
								  .exited = on_exited,
								  .all_gone = on_all_gone,
								  .arg = n },
				  &n->agents, e);
}

int helper_node_open(const struct node_options *o, struct node **out, struct err *e)
{
	struct node *n = calloc(1, sizeof *n);
	if (!n)
		return err_set(e, ERR_NOMEM, "no memory for the agents of this node");
	n->o = *o;
	if (open_server(n, e)) {
		free(n);
		return -1;
	}
	if (watch_server(n, e)) {
		local_server_close(n->server);
		free(n);
		return -1;
	}
	if (start_agents(n, e)) {
		uv_close((uv_handle_t *)&n->poll, on_closed);
		return -1;
	}
	*out = n;
	return 0;
}

void helper_node_answer(struct node *n, const struct buf *all)
{
	struct err e = ERR_INIT;
	if (n->serving && local_server_answer(n->server, all, &e))
		lose_server(n, &e);
}

void helper_node_kill(struct node *n)
{
	local_agents_kill(n->agents);
}

void helper_node_signal(struct node *n, int number)
{
	local_agents_signal(n->agents, number);
}

void helper_node_close(struct node *n)
{
	if (!n)
		return;
	local_agents_close(n->agents);
	uv_close((uv_handle_t *)&n->poll, on_closed);
}
