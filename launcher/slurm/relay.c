#include "launcher/slurm/relay.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/parts.h"
#include "base/run_paths.h"
#include "launcher/connections.h"
#include "launcher/namespace.h"
#include "launcher/slurm/relay_nodes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRANGERS = 16, TICK_MS = 500 };
static const double handshake_s = 30;

struct relay {
	struct launch_events events;
	struct connections *connections;
	char address[NET_ADDR_MAX], secret[AUTH_SECRET_HEX], run_dir[RUN_PATH];
	struct relay_nodes nodes;
	json_t *start;     /* the message helper_start, without what differs between nodes */
	struct buf *parts; /* what the ranks of all nodes have put before the fence that is sent, as
			    * packed messages */
	int n_parts;
	int64_t fence; /* the one that `parts` are of; -1: none yet */
	uint32_t generation;
	bool killed;
	double patience, met; /* met: when the first helper connected; 0: none has */
	uv_timer_t tick;
};

/* --- The ends of agents and helpers --- */

static void report_exit(struct relay *r, struct relay_node *n, int rank, int status)
{
	r->nodes.ended[rank] = true;
	n->left--;
	r->events.exited(r->events.arg, rank, status);
}

static void note_loss(struct relay *r, const struct relay_node *n, const char *text)
{
	r->events.noted(r->events.arg, LAUNCH_NOTE_HELPER_LOST, n->name, text);
}

/* The agents die with their helper. */
static void lose_helper(struct relay *r, int node, const char *text)
{
	struct relay_node *n = &r->nodes.list[node];
	n->connection = NULL;
	if (!n->left)
		return;
	if (!r->killed)
		note_loss(r, n, text);
	for (int rank = 0; rank < r->nodes.world; rank++)
		if (r->nodes.node_of[rank] == node && !r->nodes.ended[rank])
			report_exit(r, n, rank, SIGKILL);
}

static void on_closed(void *arg, int rank, const struct err *why)
{
	char text[sizeof why->text + 64];
	struct relay *r = arg;
	if (rank < 0)
		return; /* a stranger */
	snprintf(text, sizeof text, "the helper has ended, and its agents with it: %s", why->text);
	lose_helper(r, rank, text);
}

/* Ends the connection of a helper that breaks the protocol. */
static void drop_helper(struct relay *r, struct connection *c, const struct err *why)
{
	int node = launcher_connection_rank(c);
	launcher_connection_drop(c);
	if (node >= 0)
		lose_helper(r, node, why->text);
}

static void send_message(struct connection *c, enum msg_type type, json_t *body)
{
	launcher_connection_send(c, type, body, NULL); /* a failure closes the connection */
	json_decref(body);
}

static void send_abort(struct connection *c)
{
	send_message(c, MSG_ABORT,
		     msg_abort_json(&(struct msg_abort){ .reason = "the generation is over" }));
}

/* --- Fences --- */

static void send_part(struct relay *r, struct relay_node *n)
{
	if (n->connection) /* a failure closes the connection */
		launcher_connection_send_packed(n->connection, &r->parts[n->sent], NULL);
	n->sent++;
}

static void drop_parts(struct relay *r)
{
	for (int i = 0; i < r->n_parts; i++)
		buf_fini(&r->parts[i]);
	free(r->parts);
	r->parts = NULL;
	r->n_parts = 0;
}

/* Packs the messages once for all nodes. */
static int pack_parts(struct relay *r, const struct buf *all, struct err *e)
{
	int n = parts_count(all->len), rc = 0;
	drop_parts(r);
	r->parts = calloc((size_t)n, sizeof *r->parts);
	if (!r->parts)
		return err_set(e, ERR_NOMEM, "no memory for what the ranks have published");
	while (!rc && r->n_parts < n) {
		json_t *body = parts_json(r->fence, all, r->n_parts);
		rc = body ? msg_pack(MSG_HELPER_PART, r->generation, body, &r->parts[r->n_parts++],
				     e)
			  : err_set(e, ERR_NOMEM, "no memory for what the ranks have published");
		json_decref(body);
	}
	return rc;
}

/* Every node's ranks have entered the fence. */
static int send_all(struct relay *r, struct err *e)
{
	struct buf all = BUF_INIT;
	r->fence++;
	int rc = slurm_relay_nodes_collect(&r->nodes, &all, e) || pack_parts(r, &all, e) ? -1 : 0;
	buf_fini(&all);
	for (int i = 0; !rc && i < r->nodes.n; i++) {
		r->nodes.list[i].sent = 0;
		send_part(r, &r->nodes.list[i]);
	}
	return rc;
}

static int take_part(struct relay *r, struct relay_node *n, const json_t *body, struct err *e)
{
	struct msg_helper_part m;
	if (msg_helper_part_read(body, &m, e))
		return -1;
	int got = slurm_relay_nodes_put(&r->nodes, n, &m, e);
	return got == 1 ? send_all(r, e) : got;
}

static int take_next(struct relay *r, struct relay_node *n, const json_t *body, struct err *e)
{
	struct msg_helper_next m;
	if (msg_helper_next_read(body, &m, e))
		return -1;
	if (m.fence != r->fence || m.part != n->sent - 1)
		return err_set(e, ERR_PROTO,
			       "the helper has acknowledged a part that was not sent");
	if (n->sent < r->n_parts)
		send_part(r, n);
	return 0;
}

/* --- Messages --- */

static int take_exit(struct relay *r, struct relay_node *n, const json_t *body, struct err *e)
{
	struct msg_helper_exited m;
	if (msg_helper_exited_read(body, &m, e))
		return -1;
	int node = (int)(n - r->nodes.list);
	if (m.rank < 0 || m.rank >= r->nodes.world || r->nodes.node_of[m.rank] != node ||
	    r->nodes.ended[m.rank])
		return err_set(e, ERR_PROTO, "the helper has reported the end of rank %d", m.rank);
	report_exit(r, n, m.rank, m.status);
	return 0;
}

static int take_failure(struct relay *r, struct relay_node *n, const json_t *body, struct err *e)
{
	struct msg_failed m;
	if (msg_failed_read(body, &m, e))
		return -1;
	if (!r->killed)
		note_loss(r, n, m.text);
	return 0;
}

static int take_hello(struct relay *r, struct connection *c, const struct msg *m, struct err *e)
{
	struct msg_helper_hello hello;
	if (m->type != MSG_HELPER_HELLO)
		return err_set(e, ERR_PROTO, "the message %s came before helper_hello",
			       msg_word(m->type));
	if (msg_helper_hello_read(m->body, &hello, e))
		return -1;
	int node = slurm_relay_nodes_find(&r->nodes, hello.node);
	if (hello.version != MSG_VERSION || node < 0 || r->nodes.list[node].met)
		return err_set(e, ERR_PROTO,
			       "%s: another version of muster, or not a node of this "
			       "launch",
			       hello.node);
	struct relay_node *n = &r->nodes.list[node];
	launcher_connection_claim(c, node);
	n->met = true;
	r->met = r->met > 0 ? r->met : clock_s();
	n->connection = c;
	if (r->killed || !n->left) /* or its ranks were reported as lost already */
		send_abort(c);
	else
		send_message(c, MSG_HELPER_START,
			     slurm_relay_nodes_start(&r->nodes, node, r->start));
	return 0;
}

static void on_message(void *arg, struct connection *c, const struct msg *m)
{
	static int (*const takers[MSG_COUNT])(struct relay *, struct relay_node *, const json_t *,
					      struct err *) = {
		[MSG_HELPER_PART] = take_part,
		[MSG_HELPER_NEXT] = take_next,
		[MSG_HELPER_EXITED] = take_exit,
		[MSG_FAILED] = take_failure,
	};
	struct relay *r = arg;
	struct err e = ERR_INIT;
	int node = launcher_connection_rank(c), rc;
	if (node < 0)
		rc = take_hello(r, c, m, &e);
	else if (takers[m->type])
		rc = takers[m->type](r, &r->nodes.list[node], m->body, &e);
	else
		rc = err_set(&e, ERR_PROTO, "the helper has sent the message %s",
			     msg_word(m->type));
	if (rc)
		drop_helper(r, c, &e);
}

/* The descriptors' limit was checked before the run (launcher/descriptors.h); helpers that cannot
 * connect leave their agents unconnected, which the supervisor reports. */
static void on_trouble(void *arg, const struct err *why)
{
	(void)arg;
	(void)why;
}

/* A helper that fails before it can connect is only seen by its absence. */
static void lose_absent(struct relay *r)
{
	char text[160];
	snprintf(
		text, sizeof text,
		"the helper has not connected within %g s after the first one; the launch log says "
		"why, if it has started",
		r->patience);
	for (int i = 0; i < r->nodes.n && !r->killed; i++)
		if (!r->nodes.list[i].met)
			lose_helper(r, i, text);
}

static void on_tick(uv_timer_t *tick)
{
	struct relay *r = tick->data;
	double now = clock_s();
	launcher_connections_tick(r->connections, now);
	if (r->met > 0 && now - r->met > r->patience)
		lose_absent(r);
}

/* --- Opening and closing --- */

static int open_connections(struct relay *r, const struct relay_options *o, struct err *e)
{
	const char *address = o->request->address, *colon = strrchr(address, ':');
	char host[NET_ADDR_MAX];
	unsigned char secret[AUTH_SECRET_BYTES];
	struct connections_options co = {
		.loop = o->loop,
		.most = r->nodes.n + STRANGERS,
		.most_per_address = r->nodes.n + STRANGERS,
		.patience = handshake_s,
		.voucher = o->request->voucher,
		.message = on_message,
		.closed = on_closed,
		.trouble = on_trouble,
		.arg = r,
	};
	snprintf(host, sizeof host, "%.*s", colon ? (int)(colon - address) : (int)strlen(address),
		 address);
	if (net_listen(host, &co.listener, r->address, e) ||
	    launcher_connections_open(&co, &r->connections, e))
		return err_prefix(e, "the helpers' control channel");
	auth_secret_new(secret);
	auth_secret_hex(secret, r->secret);
	launcher_connections_renew(r->connections, secret, o->request->generation, clock_s());
	explicit_bzero(secret, sizeof secret);
	return 0;
}

static json_t *start_json(const struct relay *r, const struct launch_request *q)
{
	static const char *const binds[] = {
		[BIND_AUTO] = "auto", [BIND_NONE] = "none", [BIND_CORE] = "core"
	};
	char nspace[LAUNCHER_NAMESPACE];
	launcher_namespace_new(nspace, q->generation);
	json_t *node_of = slurm_relay_nodes_map(&r->nodes), *none = json_array();
	json_t *body = msg_helper_start_json(
		&(struct msg_helper_start){ .nspace = nspace,
					    .node_of = node_of,
					    .threads = none,
					    .bind = binds[q->job->launch.bind],
					    .agent = q->agent,
					    .run = q->run_dir,
					    .address = q->address,
					    .secret = q->secret,
					    .auth = q->auth,
					    .program = job_has_program(q->job) });
	json_decref(node_of);
	json_decref(none);
	return body;
}

int slurm_relay_open(const struct relay_options *o, struct relay **out, struct err *e)
{
	struct relay *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "no memory for the helpers");
	r->events = *o->events;
	r->fence = -1;
	r->patience = o->patience;
	r->generation = o->request->generation;
	snprintf(r->run_dir, sizeof r->run_dir, "%s", o->request->run_dir);
	if (slurm_relay_nodes_open(&r->nodes, o->request, e) ||
	    !(r->start = start_json(r, o->request)) || open_connections(r, o, e)) {
		if (e->code == ERR_NONE)
			err_set(e, ERR_NOMEM, "no memory for the helpers");
		slurm_relay_nodes_close(&r->nodes);
		json_decref(r->start);
		free(r);
		return -1;
	}
	uv_timer_init(o->loop, &r->tick);
	uv_unref((uv_handle_t *)&r->tick);
	r->tick.data = r;
	uv_timer_start(&r->tick, on_tick, TICK_MS, TICK_MS);
	*out = r;
	return 0;
}

const char *slurm_relay_address(const struct relay *r)
{
	return r->address;
}

const char *slurm_relay_secret(const struct relay *r)
{
	return r->secret;
}

void slurm_relay_kill(struct relay *r)
{
	if (r->killed)
		return;
	r->killed = true;
	for (int i = 0; i < r->nodes.n; i++)
		if (r->nodes.list[i].connection)
			send_abort(r->nodes.list[i].connection);
}

bool slurm_relay_is_over(const struct relay *r)
{
	for (int i = 0; i < r->nodes.n; i++)
		if (!r->nodes.list[i].met || r->nodes.list[i].left)
			return false;
	return true;
}

static void on_tick_closed(uv_handle_t *h)
{
	free(h->data);
}

void slurm_relay_close(struct relay *r)
{
	char dir[RUN_PATH];
	if (!r)
		return;
	run_path(dir, r->run_dir, RUN_PMIX);
	file_remove_tree(dir); /* a helper that was killed could not */
	launcher_connections_close(r->connections);
	slurm_relay_nodes_close(&r->nodes);
	json_decref(r->start);
	drop_parts(r);
	explicit_bzero(r->secret, sizeof r->secret);
	uv_close((uv_handle_t *)&r->tick, on_tick_closed);
}
