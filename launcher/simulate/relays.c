/* relays: what the agents say of their progress and their health: each by itself, or the first rank of a node for
 * its ranks. */
#include "base/rank_rows.h"
#include "launcher/simulate/world.h"

static const double window_s = 10; /* health.slow_window */

static struct msg_progress progress_of(const struct process *p)
{
	static const char *const phases[] = { [PROCESS_PREPARING] = "preflight",
					      [PROCESS_WIRING] = "wire up",
					      [PROCESS_LOADING] = "load",
					      [PROCESS_TRAINING] = "forward" };
	bool busy = p->state >= PROCESS_PREPARING && p->state <= PROCESS_TRAINING;
	return (struct msg_progress){ .step = p->step,
				      .phase = busy ? phases[p->state] : "start",
				      .count = p->count,
				      .done = p->step - p->resumed,
				      .own_s = p->computed };
}

/* The message health, if a window is over, a new reference; otherwise NULL. */
static json_t *health_of(struct process *p)
{
	if (p->sim->queue.now < p->next_window)
		return NULL;
	p->next_window = p->sim->queue.now + window_s;
	json_t *findings = json_array();
	json_t *body = msg_health_json(&(struct msg_health){
		.number = ++p->windows, .step = p->step, .clock = 3000, .findings = findings });
	json_decref(findings);
	return body;
}

/* Whether both can report together: they are on one node in one generation, and this one runs. */
static bool is_mate(const struct process *p, const struct process *of)
{
	return simulate_process_lives(p) && !p->frozen && p->welcomed && p->link.open &&
	       p->state > PROCESS_GREETING && p->generation == of->generation &&
	       p->node == of->node && p->leader == of->leader;
}

static struct process *find_relay(const struct process *p)
{
	struct process *q = p->welcomed && p->sim->setup->relays ? p->sim->processes : NULL;
	while (q && !(is_mate(q, p) && q->rank == p->leader))
		q = q->next;
	return q;
}

static void report_for_node(struct process *p)
{
	struct msg_node_progress m = { .progress = json_array(),
				       .times = json_array(),
				       .reports = json_array() };
	for (struct process *q = p->sim->processes; q; q = q->next) {
		struct msg_progress of = progress_of(q);
		json_t *health = is_mate(q, p) ? health_of(q) : NULL;
		if (is_mate(q, p))
			json_array_append_new(m.progress, msg_progress_row(q->rank, &of));
		if (health)
			json_array_append_new(m.reports,
					      msg_report_row(q->rank, MSG_HEALTH, health));
		json_decref(health);
	}
	simulate_link_send(p, MSG_NODE_PROGRESS, msg_node_progress_json(&m));
	json_decref(m.progress);
	json_decref(m.times);
	json_decref(m.reports);
}

/* A real agent notices only after two heartbeats that its relay is frozen. */
void simulate_report_progress(struct process *p)
{
	const struct process *relay = find_relay(p);
	struct msg_progress own = progress_of(p);
	json_t *health = relay ? NULL : health_of(p);
	if (health)
		simulate_link_send(p, MSG_HEALTH, health);
	if (!relay)
		simulate_link_send(p, MSG_PROGRESS, msg_progress_json(&own));
	else if (relay == p)
		report_for_node(p);
}
