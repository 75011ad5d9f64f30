#include "tests/bench/agents/stand_in.h"

#include "base/clock.h"
#include "base/rank_rows.h"
#include "base/time_parts.h"
#include "tests/bench/agents/agents.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SAVE_STEPS = 10, FIRST_PID = 1000 };

static const double window_s = 10; /* health.slow_window */

static void send_message(struct agent *a, enum msg_type type, json_t *body)
{
	a->sent++;
	channel_send(a->channel, type, body, NULL); /* a failure closes the connection */
	json_decref(body);
}

void agent_hello(const struct stand_in *s, struct agent *a)
{
	char node[32];
	snprintf(node, sizeof node, "node%d", a->started_as / AGENTS_NODE);
	send_message(a, MSG_HELLO,
		     msg_hello_json(&(struct msg_hello){
			     .rank = a->started_as,
			     .world = s->world,
			     .node = node,
			     .pid = FIRST_PID + a->started_as,
			     .start = FIRST_PID * (int64_t)s->generation + a->started_as + 1,
			     .boot = "",
			     .cpus = "0-13",
			     .version = MSG_VERSION }));
}

/* The next one is due as in agent/times.c, in a world that is this large. us: a new reference. */
static struct msg_times next_times(const struct stand_in *s, struct agent *a, double now)
{
	int64_t us[TIME_REPORTED] = { 0 };
	int64_t all = (int64_t)(1e6 * (now - a->ready_at));
	us[STEP_PART_COMPUTE] = all / 2;
	us[STEP_PART_DATA] = all / 4;
	a->next_times = now + fmax(5, 0.01 * s->world);
	return (struct msg_times){ .step = s->step,
				   .peak_bytes = 60LL << 30,
				   .us = time_reported_json(us) };
}

static void send_times(const struct stand_in *s, struct agent *a, double now)
{
	struct msg_times m = next_times(s, a, now);
	send_message(a, MSG_TIMES, msg_times_json(&m));
	json_decref(m.us);
}

static json_t *link_json(const struct stand_in *s, const struct agent *a, const char *group, int to)
{
	return msg_link_json(&(struct msg_link){ .group = group,
						 .peer = (a->rank + to) % s->world,
						 .share = 0.2,
						 .rate = 1e10 + 1e6 * (a->rank % 97),
						 .resent = 1e-6 });
}

/* What its node and its links showed in a window: new references. */
static void end_window(const struct stand_in *s, struct agent *a, double now, json_t **health,
		       json_t **of_links)
{
	json_t *findings = json_array(), *links = json_array();
	a->windows++;
	json_array_append_new(links, link_json(s, a, "dp", AGENTS_TP));
	json_array_append_new(links, link_json(s, a, "pp", s->world / AGENTS_PP));
	*health = msg_health_json(&(struct msg_health){ .number = a->windows,
							.step = s->step,
							.clock = 3000,
							.gpu_clock = 1900,
							.findings = findings });
	*of_links = msg_links_json(&(struct msg_links){ .number = a->windows, .links = links });
	json_decref(findings);
	json_decref(links);
	a->next_window = now + window_s;
}

/* rows: where the relay lists it; NULL: the agent sends it. */
static void report_window(const struct stand_in *s, struct agent *a, double now, json_t *rows)
{
	json_t *health, *links;
	if (now < a->next_window)
		return;
	end_window(s, a, now, &health, &links);
	if (!rows) {
		send_message(a, MSG_HEALTH, health);
		send_message(a, MSG_LINKS, links);
		return;
	}
	json_array_append_new(rows, msg_report_row(a->rank, MSG_HEALTH, health));
	json_array_append_new(rows, msg_report_row(a->rank, MSG_LINKS, links));
	json_decref(health);
	json_decref(links);
}

static void send_ready(const struct stand_in *s, struct agent *a, double now)
{
	json_t *phases = json_pack("{s:f, s:f}", "connect", 0.1, "load", 0.2);
	send_message(a, MSG_READY,
		     msg_ready_json(&(struct msg_ready){ .step = s->step, .phases = phases }));
	json_decref(phases);
	a->ready_at = now;
	a->next_times = now + 0.5;
	a->next_window = now + window_s;
}

static bool take_welcome(struct stand_in *s, struct agent *a, const json_t *body, double now)
{
	struct msg_welcome w;
	struct msg_coords at;
	struct err e = ERR_INIT;
	if (msg_welcome_read(body, &w, &e) || msg_coords_read(w.coords, &at, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return false;
	}
	a->rank = w.rank;
	a->node = w.node_index;
	a->leader = w.leader;
	a->generation = w.generation;
	s->world = w.world;
	memcpy(a->at, ((int[]){ at.dp, at.tp, at.pp }), sizeof a->at);
	if (a->welcome)
		channel_renew(a->channel, (uint32_t)w.generation);
	else
		stand_in_beat(s, a, now);
	a->welcome = true;
	s->heartbeat_s = w.heartbeat_s;
	s->next_step = now + AGENTS_STEP_S; /* of the last one that is welcomed */
	send_ready(s, a, now);
	return true;
}

static void finish(const struct stand_in *s, struct agent *a, double now)
{
	json_t *phases = json_object();
	send_times(s, a, now);
	if (a->rank == 0)
		send_message(a, MSG_CKPT,
			     msg_ckpt_json(&(struct msg_ckpt){
				     .step = s->step, .path = "ckpt/last", .bytes = 1 << 30 }));
	send_message(a, MSG_FINISHED,
		     msg_finished_json(&(struct msg_finished){
			     .step = s->step, .peak_bytes = 60LL << 30, .phases = phases }));
	json_decref(phases);
	a->ends = true;
}

bool agent_take(struct stand_in *s, struct agent *a, const struct msg *m, double now)
{
	if (a->mute)
		return true;
	switch (m->type) {
	case MSG_WELCOME:
		return take_welcome(s, a, m->body, now);
	case MSG_REGROUP:
		send_times(s, a, now);
		send_message(a, MSG_IDLE, json_object());
		return true;
	case MSG_DUMP:
		send_message(a, MSG_DUMPED, json_object());
		return true;
	case MSG_STOP:
		finish(s, a, now);
		return true;
	case MSG_ABORT:
		return false;
	default:
		return true;
	}
}

static struct msg_progress progress_of(const struct stand_in *s, double now)
{
	double step = (double)s->step;
	return (struct msg_progress){ .step = s->step,
				      .phase = fmod(now, AGENTS_STEP_S) < 0.3 ? "forward"
									      : "backward",
				      .count = (int64_t)(now * 1000),
				      .done = s->step,
				      .own_s = 0.75 * AGENTS_STEP_S * step,
				      .delay_s = 1e-3 * step,
				      .stalled_s = 0 };
}

void agent_progress(const struct stand_in *s, struct agent *a, double now)
{
	struct msg_progress m = progress_of(s, now);
	if (now >= a->next_times)
		send_times(s, a, now);
	send_message(a, MSG_PROGRESS, msg_progress_json(&m));
	report_window(s, a, now, NULL);
}

void agent_node_progress(const struct stand_in *s, struct agent *relay, struct agent *const *node,
			 int n, double now)
{
	struct msg_node_progress m = { .progress = json_array(),
				       .times = json_array(),
				       .reports = json_array() };
	struct msg_progress p = progress_of(s, now);
	for (int i = 0; i < n; i++) {
		json_array_append_new(m.progress, msg_progress_row(node[i]->rank, &p));
		report_window(s, node[i], now, m.reports);
		if (now < node[i]->next_times)
			continue;
		struct msg_times times = next_times(s, node[i], now);
		json_array_append_new(m.times, msg_times_row(node[i]->rank, &times));
		json_decref(times.us);
	}
	send_message(relay, MSG_NODE_PROGRESS, msg_node_progress_json(&m));
	json_decref(m.progress);
	json_decref(m.times);
	json_decref(m.reports);
}

void agent_step(const struct stand_in *s, struct agent *a)
{
	if (a->at[1] == 0 && a->at[0] == 0 && a->at[2] == AGENTS_PP - 1)
		send_message(a, MSG_METRICS,
			     msg_metrics_json(
				     &(struct msg_metrics){ .step = s->step,
							    .samples = s->step * 8,
							    .tokens = 1 << 20,
							    .peak_bytes = 60LL << 30,
							    .loss = 2 + 8 / (1 + (double)s->step),
							    .grad_norm = 1,
							    .lr = 1e-4,
							    .step_s = AGENTS_STEP_S }));
	if (a->rank == 0 && s->step % SAVE_STEPS == 0)
		send_message(a, MSG_CKPT,
			     msg_ckpt_json(&(struct msg_ckpt){
				     .step = s->step, .path = "ckpt/step", .bytes = 1 << 30 }));
}

void agent_blame(struct agent *a, int rank)
{
	char text[80];
	snprintf(text, sizeof text, "rank %d closed its connection during all_reduce", rank);
	send_message(a, MSG_FAILED,
		     msg_failed_json(&(struct msg_failed){ .code = "peer", .text = text }));
}

/* Their coordinates differ in one at most. */
bool agent_shares_group(const struct agent *a, const struct agent *b)
{
	int differ = 0;
	for (int i = 0; i < 3; i++)
		differ += a->at[i] != b->at[i];
	return differ <= 1;
}
