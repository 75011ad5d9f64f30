#include "launcher/supervise/burn_in.h"

#include "base/numbers.h"
#include "launcher/child.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of [health] preflight_timeout: the share of each phase, what the measurements take of it, and
 * until when they are repeated. */
static const double connect_share = 0.25, nodes_share = 0.6, link_share = 0.2, measure_share = 0.1,
		    link_measure_share = 0.02, repeat_share = 0.7;
static const double measure_most_s = 1.5, link_most_s = 0.4;

enum { STRANGERS = 16 };

static void begin_phase(struct burn_in *b, enum burn_in_phase phase);
static void finish(struct burn_in *b);

static double limit_of(const struct burn_in *b)
{
	return b->s->d->job.health.preflight_timeout;
}

static const char *name_of(const struct burn_in *b, int i)
{
	return b->s->o.machines->nodes[b->nodes[i].number].name;
}

/* --- Orders ------------------------------------------------------------------------------- */

static void lose_node(struct burn_in *b, int i, const char *why)
{
	struct burn_in_node *n = &b->nodes[i];
	n->lost = true;
	n->order = 0;
	if (!*n->why)
		snprintf(n->why, sizeof n->why, "%s", why);
	if (n->line)
		launcher_connection_drop(n->line);
	n->line = NULL;
}

static bool is_idle(const struct burn_in_node *n)
{
	return n->line && !n->lost && !n->order;
}

static void give_order(struct burn_in *b, int i, int partner, int64_t number, double seconds)
{
	struct burn_in_node *n = &b->nodes[i];
	const struct msg_burn_in_order m = { .number = number,
					     .seconds = seconds,
					     .has_peer = partner >= 0,
					     .peer = partner >= 0 ? name_of(b, partner) : NULL,
					     .has_rank = partner >= 0,
					     .rank = partner >= 0 && i > partner };
	json_t *body = msg_burn_in_order_json(&m);
	struct err e = ERR_INIT;
	n->order = number;
	n->partner = partner;
	if (!body || launcher_connection_send(n->line, MSG_BURN_IN_ORDER, body, &e))
		lose_node(b, i, body ? e.text : "no memory for an order");
	json_decref(body);
}

static bool all_idle(const struct burn_in *b)
{
	for (int i = 0; i < b->n; i++)
		if (b->nodes[i].order)
			return false;
	return true;
}

static void order_nodes(struct burn_in *b)
{
	for (int i = 0; i < b->n; i++)
		if (is_idle(&b->nodes[i]))
			give_order(b, i, -1, ++b->orders,
				   min_double(measure_most_s, measure_share * limit_of(b)));
}

/* Both ends of a link get the same number. A node that cannot take part leaves its partner idle. */
static void order_links(struct burn_in *b)
{
	double seconds = min_double(link_most_s, link_measure_share * limit_of(b));
	for (int i = 0; i < b->n; i++) {
		int partner = b->partners[i * BURN_IN_ROUNDS + b->round];
		if (partner <= i || !is_idle(&b->nodes[i]) || !is_idle(&b->nodes[partner]))
			continue;
		int64_t number = ++b->orders;
		give_order(b, i, partner, number, seconds);
		give_order(b, partner, i, number, seconds);
	}
}

/* --- Phases ------------------------------------------------------------------------------- */

/* A bad figure: one of a node, or of a link between nodes that are not bad. */
static bool has_suspect(struct burn_in *b)
{
	struct burn_in_findings *f = &b->findings;
	for (int i = 0; i < b->n; i++)
		if (*b->nodes[i].note)
			return true;
	for (int i = 0; i < f->n; i++)
		if (f->of[i].fault != BURN_IN_OWN)
			return true;
	return false;
}

/* The number of the first kind with the same devices and cores: kinds may also differ in what no
 * figure shows, such as in which devices are left out. */
static int kind_of(const struct cluster *c, int node)
{
	const struct node_kind *k = topo_cluster_kind(c, node);
	for (int i = 0; i < c->n_kinds; i++)
		if (!strcmp(c->kinds[i].device, k->device) && c->kinds[i].cores == k->cores)
			return i;
	return 0;
}

static int judge(struct burn_in *b)
{
	const struct cluster *c = b->s->o.machines;
	int *kinds = calloc((size_t)c->n_nodes + 1, sizeof *kinds);
	for (int i = 0; kinds && i < c->n_nodes; i++)
		kinds[i] = kind_of(c, i);
	int rc = kinds ? supervise_burn_in_judge(&b->table, kinds, c->n_nodes,
						 b->s->d->job.health.preflight_factor, &b->findings,
						 &b->failed)
		       : err_set(&b->failed, ERR_NOMEM, "no memory to compare the nodes");
	free(kinds);
	return rc;
}

/* All is measured: once more, if a figure is bad and the time allows it. */
static void end_cycle(struct burn_in *b)
{
	bool in_time = supervise_now(b->s) - b->met <= repeat_share * limit_of(b);
	if (judge(b) || b->repeated || !has_suspect(b) || !in_time) {
		finish(b);
		return;
	}
	b->repeated = true;
	for (int i = 0; i < b->n; i++)
		*b->nodes[i].note = '\0';
	begin_phase(b, BURN_IN_NODES);
}

/* Goes on if no node works on an order. It may end the burn-in, so it is the last call of each
 * caller. */
static void go_on(struct burn_in *b)
{
	if (b->busy || b->phase == BURN_IN_CONNECT || !all_idle(b))
		return;
	if (b->phase == BURN_IN_NODES)
		b->round = -1;
	if (++b->round < b->rounds)
		begin_phase(b, BURN_IN_LINKS);
	else
		end_cycle(b);
}

static void begin_phase(struct burn_in *b, enum burn_in_phase phase)
{
	double now = supervise_now(b->s);
	b->phase = phase;
	b->busy++;
	if (phase == BURN_IN_NODES) {
		b->deadline = now + nodes_share * limit_of(b);
		order_nodes(b);
	} else {
		b->deadline = now + link_share * limit_of(b);
		order_links(b);
	}
	b->busy--;
	go_on(b);
}

static void end_connecting(struct burn_in *b)
{
	for (int i = 0; i < b->n; i++)
		if (!b->nodes[i].line && !b->nodes[i].lost)
			lose_node(b, i, "its burn-in has not started");
	begin_phase(b, BURN_IN_NODES);
}

/* --- What the nodes send ------------------------------------------------------------------ */

static int find_node(const struct burn_in *b, const char *name)
{
	for (int i = 0; i < b->n; i++)
		if (!strcmp(name_of(b, i), name))
			return i;
	return -1;
}

static void on_hello(struct burn_in *b, struct connection *c, const struct msg *m)
{
	struct msg_hello hello;
	struct err e = ERR_INIT;
	int i = -1, connected = 0;
	if (m->type == MSG_HELLO && !msg_hello_read(m->body, &hello, &e) &&
	    hello.version == MSG_VERSION)
		i = find_node(b, hello.node);
	if (i < 0 || b->nodes[i].line || b->nodes[i].lost) {
		launcher_connection_drop(c);
		return;
	}
	launcher_connection_claim(c, i);
	b->nodes[i].line = c;
	if (b->met < 0) {
		b->met = supervise_now(b->s);
		b->deadline = b->met + connect_share * limit_of(b);
	}
	for (int k = 0; k < b->n; k++)
		connected += b->nodes[k].line || b->nodes[k].lost;
	if (b->phase == BURN_IN_CONNECT && connected == b->n)
		end_connecting(b);
}

/* Forwards the endpoints of one end of a link to the other end. */
static void on_card(struct burn_in *b, int i, const struct msg *m)
{
	struct msg_burn_in_card card;
	const struct burn_in_node *n = &b->nodes[i];
	if (msg_burn_in_card_read(m->body, &card, NULL)) {
		lose_node(b, i, "its burn-in sent an invalid message");
		return;
	}
	if (card.number == n->order && n->partner >= 0 && b->nodes[n->partner].order == card.number)
		launcher_connection_send(b->nodes[n->partner].line, MSG_BURN_IN_CARD, m->body,
					 NULL);
}

static void on_result(struct burn_in *b, int i, const struct msg *m)
{
	struct msg_burn_in_result r;
	struct burn_in_node *n = &b->nodes[i];
	struct err e = ERR_INIT;
	if (msg_burn_in_result_read(m->body, &r, &e)) {
		lose_node(b, i, e.text);
		return;
	}
	if (r.number != n->order || !n->order)
		return; /* it was given up */
	n->order = 0;
	if (supervise_burn_in_read(&b->table, n->number,
				   n->partner < 0 ? -1 : b->nodes[n->partner].number, r.figures,
				   &e))
		lose_node(b, i, e.text);
	else if (r.has_error && n->partner < 0)
		lose_node(b, i, r.error);
	else if (r.has_error) {
		snprintf(n->note, sizeof n->note, "%s", r.error);
		n->note_peer = n->partner;
	}
}

static void on_message(void *arg, struct connection *c, const struct msg *m)
{
	struct burn_in *b = arg;
	int i = launcher_connection_rank(c);
	if (i < 0) {
		on_hello(b, c, m);
		return;
	}
	b->busy++;
	if (m->type == MSG_BURN_IN_CARD)
		on_card(b, i, m);
	else if (m->type == MSG_BURN_IN_RESULT)
		on_result(b, i, m);
	else
		lose_node(b, i, "its burn-in sent an unexpected message");
	b->busy--;
	go_on(b);
}

static void on_closed(void *arg, int rank, const struct err *why)
{
	struct burn_in *b = arg;
	char text[256];
	if (rank < 0)
		return;
	b->nodes[rank].line = NULL;
	snprintf(text, sizeof text, "its burn-in has ended early: %.200s", why->text);
	lose_node(b, rank, text);
	go_on(b);
}

static void on_trouble(void *arg, const struct err *why)
{
	struct burn_in *b = arg;
	supervise_terminal_event(b->s->o.term, TONE_WARN, "nodes", "the burn-in: %s", why->text);
}

/* --- Start ------------------------------------------------------------------------------- */

static void on_step_ended(void *arg, int status, const char *output)
{
	struct burn_in *b = arg;
	struct err e = ERR_INIT;
	b->step = NULL;
	if (b->met >= 0)
		return; /* the connections decide */
	if (!launcher_child_result("its step", status, output, &e))
		err_set(&e, ERR_PROTO, "no node has connected");
	b->failed = e;
	finish(b);
}

/* Processes that were released end by themselves. */
static bool is_released(const struct burn_in *b)
{
	for (int i = 0; i < b->n; i++)
		if (b->nodes[i].lost || b->nodes[i].order || !b->nodes[i].line)
			return false;
	return true;
}

static void free_burn_in(struct burn_in *b)
{
	b->s->recovery.burn_in = NULL;
	if (b->step && !is_released(b))
		launcher_child_signal(b->step, SIGTERM); /* srun ends its step */
	if (b->step)
		launcher_child_forget(b->step);
	launcher_connections_close(b->connections);
	explicit_bzero(b->secret, sizeof b->secret);
	supervise_burn_in_table_fini(&b->table);
	supervise_burn_in_findings_fini(&b->findings);
	free(b->nodes);
	free(b->partners);
	free(b);
}

static int open_connections(struct burn_in *b, struct err *e)
{
	struct connections_options co = {
		.loop = b->s->o.loop,
		.most = STRANGERS + b->n,
		.most_per_address = STRANGERS + b->n,
		.patience = b->s->o.limits.handshake,
		.voucher = b->s->munge.work ? &b->s->munge : NULL,
		.message = on_message,
		.closed = on_closed,
		.trouble = on_trouble,
		.arg = b,
	};
	return supervise_burn_in_listen(b, &co, e);
}

bool supervise_burn_in_start(struct supervisor *s)
{
	struct err e = ERR_INIT;
	if (s->recovery.burnt_in || s->o.job->launch.preflight != PREFLIGHT_FULL ||
	    !s->o.ops->burn_in)
		return false;
	s->recovery.burnt_in = true;
	struct burn_in *b = calloc(1, sizeof *b);
	if (!b)
		return false;
	b->s = s;
	b->met = -1;
	b->began = supervise_now(s);
	b->deadline = b->began + NODE_CHECK_SECONDS;
	s->recovery.burn_in = b;
	if (!supervise_burn_in_take_nodes(b, &e) && b->n > 0 && !open_connections(b, &e) &&
	    !supervise_burn_in_step(b, on_step_ended, &e))
		return true;
	if (e.code)
		supervise_terminal_event(s->o.term, TONE_WARN, "nodes",
					 "they cannot be measured, and the run starts without "
					 "that: %s",
					 e.text);
	free_burn_in(b);
	return false;
}

/* --- End ---------------------------------------------------------------------------------- */

static void finish(struct burn_in *b)
{
	struct supervisor *s = b->s;
	b->busy++; /* the loss of a connection has no effect any more */
	for (int i = 0; i < b->n; i++)
		if (b->nodes[i].line && !b->nodes[i].lost)
			launcher_connection_send(b->nodes[i].line, MSG_RELEASE, NULL, NULL);
	if (b->met >= 0)
		judge(b);
	supervise_burn_in_report(b, supervise_now(s) - b->began);
	free_burn_in(b);
	supervise_checks_go_on(s);
}

/* Nodes that still measure when the time of the phase is over. */
static void lose_late_nodes(struct burn_in *b)
{
	const char *why = b->phase == BURN_IN_NODES
				  ? "its products, its memory or its folder of checkpoints could "
				    "not be measured in time"
				  : "it does not answer while its links are measured";
	for (int i = 0; i < b->n; i++)
		if (b->nodes[i].order)
			lose_node(b, i, why);
}

/* The time of the phase, or of all, is over. A node that had less than the time of its phase is not
 * blamed. */
static void end_late(struct burn_in *b, bool phase_over)
{
	if (b->met < 0) {
		err_set(&b->failed, ERR_TIMEOUT, "no node has connected within %d s",
			NODE_CHECK_SECONDS);
		finish(b);
	} else if (b->phase == BURN_IN_CONNECT) {
		end_connecting(b);
	} else if (!phase_over) {
		finish(b);
	} else if (b->n == 1) {
		err_set(&b->failed, ERR_TIMEOUT, "this takes too long");
		finish(b);
	} else {
		lose_late_nodes(b);
		go_on(b);
	}
}

void supervise_burn_in_tick(struct supervisor *s)
{
	struct burn_in *b = s->recovery.burn_in;
	if (!b)
		return;
	double now = supervise_now(s);
	launcher_connections_tick(b->connections, now);
	if (now >= b->deadline || (b->met >= 0 && now >= b->met + limit_of(b)))
		end_late(b, now >= b->deadline);
}

void supervise_burn_in_stop(struct supervisor *s)
{
	if (s->recovery.burn_in)
		free_burn_in(s->recovery.burn_in);
}
