/* links: the connections between agents and the supervisor. Each direction keeps its order. */
#include "launcher/simulate/world.h"

#include <stdlib.h>

static double draw_latency(struct process *p)
{
	struct simulation *sim = p->sim;
	double s = random_between(&sim->delays, 1e-4, 2e-3);
	return sim->queue.now < p->link.slow_until ? s + p->link.slow : s;
}

static struct parcel *take_first(struct lane *l)
{
	struct parcel *m = l->first;
	l->first = m->next;
	if (!l->first)
		l->last = &l->first;
	return m;
}

static void free_parcel(struct parcel *m)
{
	json_decref(m->body);
	free(m);
}

static void clear_lane(struct lane *l)
{
	while (l->first)
		free_parcel(take_first(l));
}

static bool is_cut(const struct process *p)
{
	return !simulate_node_reached(p->sim, p->node);
}

/* --- To the supervisor -------------------------------------------------------------------- */

static void on_sent(void *arg, uint32_t generation, enum msg_type type, json_t *body);

static void read_out(void *arg);

/* The supervisor has closed the connection. */
static void on_closed(void *arg)
{
	struct process *p = arg;
	p->link.connection = NULL;
	on_sent(p, 0, MSG_NONE, NULL);
}

static void attach(struct process *p)
{
	const struct connection_carrier by = {
		.sent = on_sent, .read_out = read_out, .closed = on_closed, .arg = p
	};
	struct supervisor *s = p->sim->supervisor;
	p->link.attached = true;
	if (!s) /* nobody listens */
		on_closed(p);
	else
		supervise_attach(s, &by, p->secret, &p->link.connection, NULL);
}

static void deliver_up(struct process *p, struct parcel *m)
{
	struct link *l = &p->link;
	const struct msg as = { .type = m->type, .generation = m->generation, .body = m->body };
	struct err why;
	if (!l->attached && m->type != MSG_NONE)
		attach(p);
	if (!l->connection) {
		free_parcel(m);
		return;
	}
	p->failed |= m->type == MSG_FAILED && simulate_check_is_own(m->body);
	if (m->type == MSG_NONE) {
		err_set(&why, ERR_NET, "connection closed");
		launcher_connection_lose(l->connection, &why);
	} else {
		launcher_connection_deliver(l->connection, &as);
	}
	free_parcel(m);
}

/* What has arrived. If the process has ended, the kernel has all its messages. */
static void read_out(void *arg)
{
	struct process *p = arg;
	bool ended = !simulate_process_lives(p);
	while (p->link.up.first && !is_cut(p) &&
	       (ended || p->link.up.first->at <= p->sim->queue.now))
		deliver_up(p, take_first(&p->link.up));
}

static void pump_up(void *arg)
{
	struct process *p = arg;
	struct simulation *sim = p->sim;
	if (sim->queue.now < sim->asleep) {
		simulate_later(sim, sim->asleep - sim->queue.now, pump_up, p);
		return;
	}
	while (p->link.up.first && p->link.up.first->at <= sim->queue.now && !is_cut(p))
		deliver_up(p, take_first(&p->link.up));
}

/* --- To the agent ------------------------------------------------------------------------- */

static void pump_down(void *arg)
{
	struct process *p = arg;
	struct lane *l = &p->link.down;
	if (!simulate_process_lives(p) || !p->link.open)
		clear_lane(l);
	while (l->first && l->first->at <= p->sim->queue.now && !is_cut(p) && !p->frozen &&
	       p->link.open) {
		struct parcel *m = take_first(l);
		simulate_process_receive(p, m);
		free_parcel(m);
	}
}

/* --- Both --------------------------------------------------------------------------------- */

/* Steals body. */
static void send_parcel(struct process *p, struct lane *l, void (*pump)(void *), enum msg_type type,
			uint32_t generation, json_t *body)
{
	double now = p->sim->queue.now, at = now + draw_latency(p);
	struct parcel *m = malloc(sizeof *m);
	if (!m) {
		p->sim->queue.failed = true;
		json_decref(body);
		return;
	}
	at = at > l->latest ? at : l->latest;
	*m = (struct parcel){ .at = at, .generation = generation, .type = type, .body = body };
	*l->last = m;
	l->last = &m->next;
	l->latest = at;
	simulate_later(p->sim, at - now, pump, p);
}

static void on_sent(void *arg, uint32_t generation, enum msg_type type, json_t *body)
{
	struct process *p = arg;
	simulate_check_sent(p, type);
	if (simulate_process_lives(p) && p->link.open)
		send_parcel(p, &p->link.down, pump_down, type, generation,
			    body ? json_incref(body) : json_object());
}

void simulate_link_send(struct process *p, enum msg_type type, json_t *body)
{
	bool listens = p->link.connection || !p->link.attached;
	if (p->link.open && listens && !is_cut(p))
		p->heard = p->sim->queue.now;
	if (p->link.open)
		send_parcel(p, &p->link.up, pump_up, type, p->generation, body);
	else
		json_decref(body);
}

void simulate_link_close(struct process *p)
{
	simulate_link_send(p, MSG_NONE, NULL);
	p->link.open = false;
	clear_lane(&p->link.down);
}

/* What is under way is lost, and each end is told for itself. */
void simulate_link_reset(struct process *p)
{
	struct link *l = &p->link;
	if (!l->open)
		return;
	l->attached = true; /* nothing that it says later is a first message */
	clear_lane(&l->up);
	clear_lane(&l->down);
	simulate_link_send(p, MSG_NONE, NULL);
	send_parcel(p, &l->down, pump_down, MSG_NONE, 0, NULL);
}

void simulate_link_pump(struct process *p)
{
	simulate_later(p->sim, draw_latency(p), pump_up, p);
	simulate_later(p->sim, draw_latency(p), pump_down, p);
}

/* The kernel of the supervisor's host gives up. */
static void expire(void *arg)
{
	struct process *p = arg;
	struct simulation *sim = p->sim;
	struct err why;
	if (sim->queue.now < sim->asleep) {
		simulate_later(sim, sim->asleep - sim->queue.now, expire, p);
		return;
	}
	if (!p->link.connection || (simulate_process_lives(p) && !is_cut(p)))
		return;
	err_set(&why, ERR_NET, "connection timed out");
	launcher_connection_lose(p->link.connection, &why);
}

void simulate_link_watch(struct process *p)
{
	simulate_later(p->sim, SIMULATE_KEEPALIVE, expire, p);
}

void simulate_link_vanish(struct process *p)
{
	simulate_link_watch(p);
	p->link.open = false;
	clear_lane(&p->link.up);
	clear_lane(&p->link.down);
}

void simulate_link_free(struct process *p)
{
	clear_lane(&p->link.up);
	clear_lane(&p->link.down);
}
