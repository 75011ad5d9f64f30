#include "launcher/supervise/guard.h"

#include "base/net.h"
#include "launcher/agent_path.h"
#include "launcher/child.h"
#include "launcher/connections.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRANGERS_MAX = 8 };
/* Seconds. A guard that has lost its connection connects anew within `return_s`, or is replaced.
 * `start_s` includes Slurm's time to start a step. */
static const double alive_s = 1, silent_s = 15, return_s = 20, start_s = 60, delay_s = 10,
		    backoff_s = 1, backoff_most_s = 60, asleep_s = 1;

struct guard_node {
	char name[TOPO_NAME];
	bool up, used; /* used: it has ranks */
	double lost;   /* when its last guard was lost; 0: never */
};

struct supervise_guard {
	struct supervise_guard_options o;
	struct connections *connections;
	char address[NET_ADDR_MAX], secret[AUTH_SECRET_HEX];
	struct guard_node *nodes;
	int n_nodes, node;  /* node: of the guard; -1: there is none */
	int number;         /* of the last guard that was started */
	struct child *step; /* its srun; NULL: it has ended */
	struct connection *line;
	double opened, last_tick, next_alive, next_start, backoff;
	double heard; /* from the guard, or its start */
	bool met;     /* it has been connected */
	bool closing;
	char program[PATH_MAX];
};

static void report(struct supervise_guard *g, const char *text)
{
	g->o.report(g->o.arg, g->node < 0 ? "" : g->nodes[g->node].name, text);
}

/* The guard on the present node is lost, or could not be started. */
static void lose_guard(struct supervise_guard *g, const char *why)
{
	double now = g->o.now();
	report(g, why);
	if (g->line)
		launcher_connection_drop(g->line);
	g->line = NULL;
	if (g->step) {
		launcher_child_signal(g->step, SIGTERM); /* srun ends its step */
		launcher_child_forget(g->step);
	}
	g->step = NULL;
	g->nodes[g->node].lost = now;
	g->node = -1;
	g->next_start = now + g->backoff;
	g->backoff = fmin(2 * g->backoff, backoff_most_s);
}

static void on_step_ended(void *arg, int status, const char *output)
{
	struct supervise_guard *g = arg;
	(void)output;
	(void)status;
	g->step = NULL;
	/* A guard outlives its srun, so its connection decides. */
	if (!g->closing && g->node >= 0 && !g->line)
		lose_guard(g, "the guard has ended; another one follows");
}

static void send_to(struct connection *c, enum msg_type type)
{
	launcher_connection_send(c, type, NULL, NULL); /* a failure closes the connection */
}

static void on_hello(struct supervise_guard *g, struct connection *c, const struct msg *m)
{
	struct msg_guard_hello hello;
	struct err e = ERR_INIT;
	if (m->type != MSG_GUARD_HELLO || msg_guard_hello_read(m->body, &hello, &e) ||
	    hello.version != MSG_VERSION) {
		launcher_connection_drop(c);
		return;
	}
	if (hello.number != g->number || g->node < 0) { /* another one has taken its place */
		send_to(c, MSG_RELEASE);
		launcher_connection_drop(c);
		return;
	}
	if (g->line)
		launcher_connection_drop(g->line);
	else
		report(g, "the guard is connected");
	launcher_connection_claim(c, 0);
	g->line = c;
	g->met = true;
	g->heard = g->o.now();
	g->backoff = backoff_s;
	send_to(c, MSG_ALIVE);
}

static void on_message(void *arg, struct connection *c, const struct msg *m)
{
	struct supervise_guard *g = arg;
	if (launcher_connection_rank(c) < 0)
		on_hello(g, c, m);
	else if (m->type == MSG_ALIVE)
		g->heard = g->o.now();
	else
		lose_guard(g, "the guard has broken the protocol; another one follows");
}

static void on_closed(void *arg, int rank, const struct err *why)
{
	struct supervise_guard *g = arg;
	(void)why;
	if (rank < 0)
		return;
	g->line = NULL;
	g->heard = g->o.now(); /* it may connect again */
	if (!g->step)
		lose_guard(g, "the guard has ended; another one follows");
}

static void on_trouble(void *arg, const struct err *why)
{
	struct supervise_guard *g = arg;
	g->o.report(g->o.arg, "", why->text);
}

/* Listens on the host of the agents' address. */
static int open_connections(struct supervise_guard *g, struct err *e)
{
	char host[NET_ADDR_MAX];
	unsigned char secret[AUTH_SECRET_BYTES];
	struct connections_options co = {
		.loop = g->o.loop,
		.most = STRANGERS_MAX,
		.most_per_address = STRANGERS_MAX,
		.patience = 10,
		.voucher = g->o.voucher,
		.message = on_message,
		.closed = on_closed,
		.trouble = on_trouble,
		.arg = g,
	};
	const char *colon = strrchr(g->o.address, ':');
	snprintf(host, sizeof host, "%.*s",
		 (int)(colon ? colon - g->o.address : (ptrdiff_t)strlen(g->o.address)),
		 g->o.address);
	if (net_listen(host, &co.listener, g->address, e) ||
	    launcher_connections_open(&co, &g->connections, e))
		return err_prefix(e, "the guard's control channel");
	auth_secret_new(secret);
	auth_secret_hex(secret, g->secret);
	launcher_connections_renew(g->connections, secret, GUARD_GENERATION, g->opened);
	explicit_bzero(secret, sizeof secret);
	return 0;
}

int supervise_guard_open(const struct supervise_guard_options *o, struct supervise_guard **out,
			 struct err *e)
{
	*out = NULL;
	if (!o->ops->guard || !o->ops->own_node || !o->ops->own_node())
		return 0;
	struct supervise_guard *g = calloc(1, sizeof *g);
	if (!g)
		return err_set(e, ERR_NOMEM, "no memory for the guard");
	g->o = *o;
	g->node = -1;
	g->backoff = backoff_s;
	g->opened = g->last_tick = o->now();
	if (launcher_self_path(g->program, sizeof g->program, e) || open_connections(g, e)) {
		free(g);
		return -1;
	}
	*out = g;
	return 0;
}

static double lost_before(const struct supervise_guard *g, const char *name)
{
	for (int i = 0; i < g->n_nodes; i++)
		if (!strcmp(g->nodes[i].name, name))
			return g->nodes[i].lost;
	return 0;
}

static int find_node(const struct guard_node *nodes, int n, const char *name)
{
	while (--n >= 0 && strcmp(nodes[n].name, name))
		;
	return n;
}

void supervise_guard_nodes(struct supervise_guard *g, const struct pool *pool,
			   const struct deployment *used)
{
	int n = pool->machines->n_nodes;
	struct guard_node *nodes = g && n > 0 ? calloc((size_t)n, sizeof *nodes) : NULL;
	if (!nodes)
		return; /* the old list stays */
	for (int i = 0; i < n; i++) {
		const char *name = pool->machines->nodes[i].name;
		snprintf(nodes[i].name, sizeof nodes[i].name, "%s", name);
		nodes[i].up = supervise_pool_usable(pool, i) &&
			      strcmp(name, g->o.ops->own_node()) != 0;
		nodes[i].lost = lost_before(g, name);
	}
	for (int r = 0; r < used->plan.world; r++) {
		const char *name = used->cluster.nodes[used->plan.ranks[r].node].name;
		int node = find_node(nodes, n, name);
		if (node >= 0)
			nodes[node].used = true;
	}
	int at = g->node < 0 ? -1 : find_node(nodes, n, g->nodes[g->node].name);
	if (g->node >= 0 && (at < 0 || !nodes[at].up)) {
		lose_guard(g, "the node of the guard is lost; another guard follows");
		at = -1;
	}
	free(g->nodes);
	g->nodes = nodes;
	g->n_nodes = n;
	g->node = at;
}

/* Whether a guard is better on node a than on node b, which comes before it. */
static bool is_better(const struct guard_node *a, const struct guard_node *b)
{
	if ((a->lost > 0) != (b->lost > 0))
		return a->lost <= 0;
	return a->lost > 0 ? a->lost < b->lost : a->used <= b->used;
}

static int choose_node(const struct supervise_guard *g)
{
	int best = -1;
	for (int i = 0; i < g->n_nodes; i++)
		if (g->nodes[i].up && (best < 0 || is_better(&g->nodes[i], &g->nodes[best])))
			best = i;
	return best;
}

static void start_guard(struct supervise_guard *g, double now)
{
	struct err e = ERR_INIT;
	g->node = choose_node(g);
	if (g->node < 0)
		return;
	g->number++;
	g->heard = now;
	g->met = false;
	const struct guard_request r = {
		.node = g->nodes[g->node].name,
		.program = g->program,
		.address = g->address,
		.secret = g->secret,
		.auth = g->o.auth,
		.run_dir = g->o.run_dir,
		.number = g->number,
		.requeue = g->o.job->slurm.requeue,
		.patience = g->o.job->restart.patience,
	};
	if (g->o.ops->guard(g->o.loop, &r, on_step_ended, g, &g->step, &e)) {
		g->step = NULL;
		lose_guard(g, e.text);
	}
}

static void watch_guard(struct supervise_guard *g, double now)
{
	double silence = now - g->heard;
	if (g->line && silence > silent_s)
		lose_guard(g, "the guard is silent; another one follows");
	else if (!g->line && silence > (g->met ? return_s : start_s))
		lose_guard(g, "the guard does not connect; another one follows");
}

void supervise_guard_tick(struct supervise_guard *g, bool stepped)
{
	if (!g)
		return;
	double now = g->o.now(), gap = now - g->last_tick;
	g->last_tick = now;
	if (gap > asleep_s) /* this process did not run: the guard's messages may wait */
		g->heard += gap;
	launcher_connections_tick(g->connections, now);
	if (g->node >= 0)
		watch_guard(g, now);
	else if (now >= g->next_start && (stepped || g->number || now - g->opened >= delay_s))
		start_guard(g, now);
	if (g->line && now >= g->next_alive) {
		g->next_alive = now + alive_s;
		send_to(g->line, MSG_ALIVE);
	}
}

void supervise_guard_close(struct supervise_guard *g)
{
	if (!g)
		return;
	g->closing = true;
	if (g->line)
		send_to(g->line, MSG_RELEASE);
	else if (g->step)
		launcher_child_signal(g->step, SIGTERM);
	if (g->step)
		launcher_child_forget(g->step);
	launcher_connections_close(g->connections);
	explicit_bzero(g->secret, sizeof g->secret);
	free(g->nodes);
	free(g);
}
