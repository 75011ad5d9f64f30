#include "agent/boot.h"
#include "agent/tools/bench_node.h"
#include "base/agent_env.h"
#include "base/clock.h"
#include "base/munge.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 100 };

static const double card_s = 3; /* for the other end of a link to publish its endpoints */

struct service {
	const struct bench_node *b;
	struct connection *line;
	struct msg order; /* an order that came while this node waited for a card; type 0: none */
};

/* Waits for a message. 1: *m is one. 0: there was none until then. */
static int await_message(struct service *s, double until, struct msg *m, struct err *e)
{
	for (;;) {
		int rc = agent_connection_receive(s->line, m, e);
		double left = until - clock_s();
		if (rc || left <= 0)
			return rc;
		struct pollfd p = {
			.fd = agent_connection_fd(s->line),
			.events = (short)(POLLIN |
					  (agent_connection_backlog(s->line) ? POLLOUT : 0)),
		};
		poll(&p, 1, left * 1000 < LOOK_MS ? (int)(left * 1000) + 1 : LOOK_MS);
	}
}

static int send_body(struct service *s, enum msg_type type, json_t *body, struct err *e)
{
	int rc = body ? agent_connection_send(s->line, type, body, e)
		      : err_set(e, ERR_NOMEM, "no memory for the message %s", msg_word(type));
	json_decref(body);
	return rc;
}

/* --- Both ends of a link find each other through the supervisor --------------------------- */

struct meeting {
	struct service *s;
	int64_t number;
	json_t *mine, *theirs;
	int rank;
};

static int meeting_put(void *arg, const char *key, const char *value, struct err *e)
{
	struct meeting *m = arg;
	return json_object_set_new(m->mine, key, json_string(value))
		       ? err_set(e, ERR_NOMEM, "no memory for the endpoints")
		       : 0;
}

/* 1: it is the card that the meeting waits for. */
static int take_message(struct meeting *w, struct msg *m, struct err *e)
{
	struct msg_burn_in_card card;
	if (m->type == MSG_BURN_IN_ORDER) {
		msg_fini(&w->s->order);
		w->s->order = *m;
		return err_set(e, ERR_ABORTED, "the supervisor has given up this link");
	}
	int rc = 0;
	if (m->type == MSG_BURN_IN_CARD && !msg_burn_in_card_read(m->body, &card, NULL) &&
	    card.number == w->number) {
		json_decref(w->theirs);
		w->theirs = json_incref(card.values);
		rc = 1;
	}
	msg_fini(m);
	return rc;
}

static int meeting_fence(void *arg, struct err *e)
{
	struct meeting *w = arg;
	double until = clock_s() + card_s;
	struct msg m;
	int rc;
	if (send_body(w->s, MSG_BURN_IN_CARD,
		      msg_burn_in_card_json(
			      &(struct msg_burn_in_card){ .number = w->number, .values = w->mine }),
		      e))
		return -1;
	while ((rc = await_message(w->s, until, &m, e)) > 0)
		if ((rc = take_message(w, &m, e)))
			break;
	if (!rc)
		return err_set(e, ERR_TIMEOUT, "the other end has not answered for %.0f s", card_s);
	return rc < 0 ? -1 : 0;
}

static int meeting_get(void *arg, int rank, const char *key, char **value, struct err *e)
{
	struct meeting *m = arg;
	const char *text =
		json_string_value(json_object_get(rank == m->rank ? m->mine : m->theirs, key));
	*value = text ? strdup(text) : NULL;
	return *value ? 0
		      : err_set(e, ERR_NOTFOUND, "the other end of the link did not publish %s",
				key);
}

static int measure_link(struct service *s, const struct msg_burn_in_order *o,
			struct node_figures *out, struct err *e)
{
	struct meeting m = { .s = s,
			     .number = o->number,
			     .mine = json_object(),
			     .rank = o->has_rank && o->rank == 1 };
	const struct comm_bootstrap pair = { .rank = m.rank,
					     .size = 2,
					     .put = meeting_put,
					     .fence = meeting_fence,
					     .get = meeting_get,
					     .arg = &m };
	int rc = m.mine ? bench_node_link(s->b, &pair, o->seconds, out, e)
			: err_set(e, ERR_NOMEM, "no memory for the endpoints");
	json_decref(m.mine);
	json_decref(m.theirs);
	return rc ? err_prefix(e, "the link to %s", o->peer) : 0;
}

/* --- Orders ------------------------------------------------------------------------------- */

static json_t *figures_json(const struct node_figures *f)
{
	json_t *list = json_array();
	for (int i = 0; list && i < f->n; i++) {
		const struct node_figure *g = &f->of[i];
		if (json_array_append_new(list,
					  msg_burn_in_figure_json(&(struct msg_burn_in_figure){
						  .what = bench_node_word(g->what),
						  .device = g->device,
						  .value = g->value,
						  .has_own = g->own > 0,
						  .own = g->own })))
			break;
	}
	return list;
}

static int send_result(struct service *s, int64_t number, const struct node_figures *f,
		       struct err *e)
{
	const struct msg_burn_in_result m = { .number = number,
					      .figures = figures_json(f),
					      .has_error = f->trouble.code != 0,
					      .error = f->trouble.text };
	int rc = send_body(s, MSG_BURN_IN_RESULT, m.figures ? msg_burn_in_result_json(&m) : NULL,
			   e);
	json_decref(m.figures);
	return rc;
}

static int obey(struct service *s, const struct msg *m, struct err *e)
{
	static struct node_figures f; /* large */
	struct msg_burn_in_order o;
	if (msg_burn_in_order_read(m->body, &o, e))
		return -1;
	if (!(o.seconds > 0 && o.seconds <= 3600))
		return err_set(e, ERR_PROTO, "message burn_in_order: seconds is out of range");
	f = (struct node_figures){ .trouble = ERR_INIT };
	if (o.has_peer)
		measure_link(s, &o, &f, &f.trouble);
	else
		bench_node_all(s->b, o.seconds, &f);
	return send_result(s, o.number, &f, e);
}

static int serve_orders(struct service *s, struct err *e)
{
	for (;;) {
		struct msg m = s->order;
		s->order = (struct msg){ .type = MSG_NONE };
		int rc = m.type ? 1 : await_message(s, clock_s() + LOOK_MS, &m, e);
		if (rc < 0)
			return -1;
		bool release = rc && m.type == MSG_RELEASE;
		int failed = rc && m.type == MSG_BURN_IN_ORDER ? obey(s, &m, e) : 0;
		if (rc)
			msg_fini(&m);
		if (failed || release)
			return failed;
	}
}

static int open_line(const char *host, struct voucher *munge, struct connection **out,
		     struct err *e)
{
	char *address = agent_boot_take_env(AGENT_ENV_ADDRESS),
	     *secret = agent_boot_take_env(AGENT_ENV_SECRET),
	     *auth = agent_boot_take_env(AGENT_ENV_AUTH);
	int vouched = munge_parse(auth, munge, e), rc = -1;
	const struct control_options o = { .address = address,
					   .secret = secret,
					   .generation = BURN_IN_GENERATION,
					   .rank = -1,
					   .node = host,
					   .voucher = vouched == 1 ? munge : NULL };
	if (!address || !secret)
		err_set(e, ERR_USAGE,
			AGENT_ENV_ADDRESS " or " AGENT_ENV_SECRET " is not in the environment");
	else if (vouched >= 0)
		rc = agent_connection_open(&o, out, e);
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(address);
	free(secret);
	free(auth);
	return rc;
}

int bench_node_serve(const struct bench_node *b, const char *host, struct err *e)
{
	struct voucher munge; /* the line borrows it */
	struct connection *line;
	if (open_line(host, &munge, &line, e))
		return -1;
	struct bench_node mine = *b;
	mine.comm.host = host;
	mine.comm.address_hint = agent_connection_local_address(line);
	struct service s = { .b = &mine, .line = line };
	int rc = serve_orders(&s, e);
	msg_fini(&s.order);
	agent_connection_close(line);
	return rc;
}
