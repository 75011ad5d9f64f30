/* control_report: what the control thread reports about the training thread, how often, and to whom: to the
 * supervisor, or to the relay of its node. */
#include "agent/control_inner.h"

#include "base/clock.h"

#include <math.h>

enum {
	BACKLOG_MAX = 4 * MSG_MAX, /* queued bytes: with more, no progress and no report is sent */
	CONTACT_BEATS = 3
};

/* Seconds between two looks at the training thread: the longer of 0.1 s and 0.5 ms per rank of the world, so
 * that the supervisor gets at most some thousand messages per second. A report that is relayed waits for
 * two looks, so they are 0.05 s apart then. */
static const double look_s = 0.1, look_relayed_s = 0.05, look_rank_s = 0.0005;

/* The reports that are due now. */
struct due {
	bool progress, times;
	struct train_times sums;
};

/* --- the intervals and the relay --------------------------------------------------------------- */

void agent_control_end_reports(struct control *c)
{
	agent_node_relay_close(c->relay);
	agent_node_member_close(c->member);
	c->relay = NULL;
	c->member = NULL;
	c->served = false;
}

int agent_control_begin_reports(struct control *c, const struct msg_welcome *welcome, struct err *e)
{
	double heartbeat_s = welcome->heartbeat_s;
	if (!(heartbeat_s >= 0.01 && heartbeat_s <= 3600))
		return err_set(e, ERR_PROTO,
			       "message welcome: heartbeat_s is %g; it must be 0.01 to 3600",
			       heartbeat_s);
	if (!(welcome->silent_s > 0))
		return err_set(e, ERR_PROTO, "message welcome: silent_s is %g; it must be above 0",
			       welcome->silent_s);
	agent_control_end_reports(c);
	if (agent_node_relay_open(welcome, &c->relay, e) ||
	    agent_node_member_open(welcome, &c->member, e))
		return -1;
	double least = c->relay || c->member ? look_relayed_s : look_s;
	c->heartbeat_s = heartbeat_s;
	c->progress_s = fmin(fmax(least, welcome->world * look_rank_s), heartbeat_s);
	c->next_beat = c->next_look = clock_s();
	return 0;
}

/* --- one report ------------------------------------------------------------------------------- */

static void fill_progress(struct control *c, struct msg_progress *m)
{
	*m = (struct msg_progress){ .step = atomic_load(&c->step),
				    .phase = atomic_load(&c->phase),
				    .count = (int64_t)atomic_load(&c->count),
				    .active = atomic_load(&c->active) };
	agent_pace_fill(&c->pace, m);
}

json_t *agent_control_progress_json(struct control *c)
{
	struct msg_progress m;
	fill_progress(c, &m);
	return msg_progress_json(&m);
}

/* Sends a message that waits. */
static void send_report(struct control *c, int report, int64_t number, json_t *body)
{
	agent_control_send(c, msg_report_type(report), json_incref(body));
	agent_reports_settle(&c->reports, report, number);
}

static void send_reports(struct control *c)
{
	for (int i = 0; i < REPORTS_COUNT; i++) {
		int64_t number;
		json_t *body = agent_reports_waiting(&c->reports, i, &number);
		if (body)
			send_report(c, i, number, body);
		json_decref(body);
	}
}

static void report_directly(struct control *c, const struct due *d)
{
	bool backlog = agent_control_backlog(c) >= BACKLOG_MAX;
	if (!backlog)
		send_reports(c);
	if (d->progress && !backlog)
		agent_control_send(c, MSG_PROGRESS, agent_control_progress_json(c));
	if (!d->times)
		return;
	agent_control_send(c, MSG_TIMES, agent_times_json(&d->sums));
	agent_times_settle(&c->times);
}

/* The supervisor's host has acknowledged something lately. Otherwise the other ranks report themselves. */
static bool is_in_contact(struct control *c, double now)
{
	pthread_mutex_lock(&c->lock);
	double contact = c->contact;
	pthread_mutex_unlock(&c->lock);
	return now - contact <= CONTACT_BEATS * c->heartbeat_s;
}

/* Reports for the node. False: the other ranks have no news, or it cannot be handed on. */
static bool report_for_node(struct control *c, struct due *d, double now)
{
	struct node_own own = { .times = d->times ? &d->sums : NULL };
	int64_t numbers[REPORTS_COUNT];
	if (!agent_node_relay_take(c->relay) || !is_in_contact(c, now) ||
	    agent_control_backlog(c) >= BACKLOG_MAX)
		return false;
	fill_progress(c, &own.progress);
	for (int i = 0; i < REPORTS_COUNT; i++)
		own.reports[i] = agent_reports_waiting(&c->reports, i, &numbers[i]);
	json_t *body = agent_node_relay_body(c->relay, &own);
	for (int i = 0; i < REPORTS_COUNT; i++)
		json_decref(own.reports[i]);
	if (!body)
		return false;
	agent_control_send(c, MSG_NODE_PROGRESS, body);
	agent_node_relay_acknowledge(c->relay);
	agent_times_settle(&c->times);
	for (int i = 0; i < REPORTS_COUNT; i++)
		agent_reports_settle(&c->reports, i, numbers[i]);
	d->progress = true;
	return true;
}

/* Gives the relay the reports that wait. This rank sends those that the relay cannot hand on. */
static void hand_reports(struct control *c, double now)
{
	for (int i = 0; i < REPORTS_COUNT; i++) {
		int64_t number;
		json_t *body = agent_reports_waiting(&c->reports, i, &number);
		if (agent_node_member_has_handed(c->member, i, number))
			agent_reports_settle(&c->reports, i, number);
		else if (body && !agent_node_member_hand(c->member, i, number, body, now))
			send_report(c, i, number, body);
		json_decref(body);
	}
}

static bool send_to_relay(struct control *c, const struct train_times *times, double now)
{
	struct msg_progress m;
	fill_progress(c, &m);
	return agent_node_member_report(c->member, &m, times, now);
}

/* Reports to the relay. False: that hands nothing on, and *d is what the supervisor must be told. */
static bool report_to_relay(struct control *c, struct due *d, double now)
{
	bool served = agent_node_member_look(c->member, now), lost = c->served && !served;
	c->served = served;
	if (d->times)
		agent_node_member_owe(c->member);
	else if (agent_node_member_settles(c->member))
		agent_times_settle(&c->times);
	d->times = agent_times_owed(&c->times, &d->sums);
	d->progress |= d->times || lost;
	if (served)
		hand_reports(c, now);
	bool sent = d->progress && send_to_relay(c, d->times ? &d->sums : NULL, now);
	if (served)
		d->progress = sent; /* otherwise the next look tries it again */
	return served;
}

void agent_control_report(struct control *c)
{
	struct due d;
	double now = clock_s();
	uint64_t count = atomic_load(&c->count);
	if (now < c->next_look)
		return;
	c->next_look = now + c->progress_s;
	d.progress = now >= c->next_beat || count != c->sent_count;
	d.times = agent_times_due(&c->times, now, &d.sums);
	agent_pace_look(&c->pace, now, c->heartbeat_s);
	bool relayed = c->relay ? report_for_node(c, &d, now)
				: c->member && report_to_relay(c, &d, now);
	if (!relayed)
		report_directly(c, &d);
	if (d.progress) {
		c->sent_count = count;
		c->next_beat = now + c->heartbeat_s;
	}
}
