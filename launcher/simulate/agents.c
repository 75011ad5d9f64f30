/* agents: what an agent does with each message of the supervisor. */
#include "launcher/simulate/world.h"

#include <string.h>

static double draw(struct process *p, double a, double b)
{
	return random_between(&p->sim->delays, a, b);
}

/* --- A generation begins -------------------------------------------------------------------- */

static bool is_process(const struct process *p, const struct process *by,
		       const struct msg_predecessor *m)
{
	return p->node == by->node && p->boot == by->boot && p->pid == m->pid &&
	       p->start == m->start;
}

static struct process *find_predecessor(struct process *by, const struct msg_predecessor *m)
{
	for (struct process *p = by->sim->processes; p; p = p->next)
		if (simulate_process_lives(p) && is_process(p, by, m))
			return p;
	return NULL;
}

static void join(struct process *p)
{
	p->state = PROCESS_WIRING;
	simulate_crew_join(p);
	if (p->by_pmix) {
		simulate_crew_wired(p);
		return;
	}
	json_t *values = json_object();
	json_object_set_new(values, "address", json_string("simulated"));
	simulate_link_send(
		p, MSG_ENDPOINTS,
		msg_endpoints_json(&(struct msg_endpoints){ .values = values, .wants = p->wants }));
	json_decref(values);
}

static void find_stuck(struct process *p)
{
	simulate_process_fail(p, ERR_STUCK, "a process of an earlier generation cannot be ended");
}

/* Ends the agents of earlier generations on this host. */
static void end_predecessors(struct process *p, json_t *list)
{
	size_t i;
	json_t *item;
	bool stuck = false;
	json_array_foreach(list, i, item)
	{
		struct msg_predecessor m;
		if (msg_predecessor_read(item, &m, NULL))
			continue;
		struct process *old = find_predecessor(p, &m);
		if (!old || old == p)
			continue;
		stuck |= old->stuck;
		simulate_note(p->sim, "rank %d ends its predecessor %d of generation %u", p->rank,
			      old->pid, old->generation);
		simulate_process_kill(old);
	}
	if (stuck)
		simulate_process_later(p, 10, find_stuck);
	else
		simulate_process_later(p, list ? 0.25 : draw(p, 0.005, 0.05), join);
}

/* The ranks of its host and those next to it in the tree of hosts, if it is the first one of its host. */
static void note_place(struct process *p, const struct msg_welcome *w)
{
	size_t i;
	json_t *rank;
	json_decref(p->wants);
	p->wants = json_array();
	p->endpoints = 0;
	if (w->leader != w->rank) {
		json_array_append_new(p->wants, json_integer(w->leader));
		return;
	}
	json_array_extend(p->wants, w->here);
	json_array_foreach(w->near, i, rank) if (json_integer_value(rank) >= 0)
		json_array_append(p->wants, rank);
}

static void on_welcome(struct process *p, json_t *body)
{
	struct msg_welcome w;
	struct err e = ERR_INIT;
	if (msg_welcome_read(body, &w, &e)) {
		simulate_break(p->sim, "a welcome cannot be read: %s", e.text);
		return;
	}
	simulate_check_welcome(p->sim, p, (uint32_t)w.generation, w.resume);
	p->epoch++;
	p->state = PROCESS_PREPARING;
	p->welcomed = true;
	p->generation = (uint32_t)w.generation;
	p->rank = w.rank;
	p->world = w.world;
	p->leader = w.leader;
	p->silent_s = w.silent_s;
	p->warm = w.warm;
	p->by_pmix = w.pmix;
	p->copies = w.copies;
	p->resumes = strcmp(w.resume, "none");
	note_place(p, &w);
	p->step = p->resumed = 0;
	p->stop = p->hung = false;
	simulate_note(p->sim, "process %d is welcome as rank %d of generation %u", p->pid, p->rank,
		      p->generation);
	end_predecessors(p, w.predecessors);
}

static void on_endpoints(struct process *p, json_t *body)
{
	struct msg_world_endpoints m;
	if (msg_world_endpoints_read(body, &m, NULL) || (size_t)m.first != p->endpoints) {
		simulate_process_fail(p, ERR_PROTO, "the list of endpoints has a gap");
		return;
	}
	p->endpoints += json_array_size(m.values);
	if (p->endpoints == json_array_size(p->wants) && p->state == PROCESS_WIRING)
		simulate_crew_wired(p);
}

/* --- A generation ends ---------------------------------------------------------------------- */

static void become_idle(struct process *p)
{
	p->state = PROCESS_IDLE;
	simulate_link_send(p, MSG_IDLE, json_object());
}

static void on_regroup(struct process *p)
{
	struct traps *t = &p->sim->traps;
	bool in_pmix = p->by_pmix && (p->state == PROCESS_PREPARING || p->state == PROCESS_WIRING);
	if (p->state == PROCESS_FINISHED || p->state == PROCESS_LEAVING || p->state == PROCESS_IDLE)
		return;
	if (p->state == PROCESS_TRAINING)
		simulate_process_send_times(p);
	p->epoch++;
	simulate_crew_leave(p, false);
	p->state = PROCESS_LEAVING;
	if (t->dies_leaving) {
		t->dies_leaving = false;
		simulate_process_later(p, draw(p, 0, 0.6), simulate_process_exit);
	}
	if (in_pmix) {
		simulate_process_leave(p);
	} else if (t->stubborn) {
		t->stubborn = false;
	} else if (!p->hung) {
		simulate_process_later(p, draw(p, 0.01, 0.4), become_idle);
	}
}

static void exit_well(struct process *p)
{
	simulate_process_end(p, 0);
}

void simulate_process_finish(struct process *p)
{
	json_t *phases = json_object();
	simulate_process_send_times(p);
	p->epoch++;
	simulate_link_send(p, MSG_FINISHED,
			   msg_finished_json(&(struct msg_finished){
				   .step = p->step, .peak_bytes = 1 << 20, .phases = phases }));
	json_decref(phases);
	p->state = PROCESS_FINISHED;
	simulate_process_later(p, draw(p, 0.02, 0.6), exit_well);
}

void simulate_process_send_times(struct process *p)
{
	int64_t us[TIME_REPORTED] = { 0 };
	if (p->state != PROCESS_TRAINING || p->ready_at <= 0)
		return;
	us[TIME_COMPUTE - TIME_STEP] = (int64_t)(p->worked * 0.9e6);
	us[TIME_DP - TIME_STEP] = (int64_t)(p->worked * 0.1e6);
	json_t *list = time_reported_json(us);
	simulate_link_send(p, MSG_TIMES,
			   msg_times_json(&(struct msg_times){
				   .step = p->step, .peak_bytes = 1 << 20, .us = list }));
	json_decref(list);
}

/* --- Messages ----------------------------------------------------------------------------- */

static void answer_dump(struct process *p)
{
	simulate_link_send(p, MSG_DUMPED, msg_dumped_json(&(struct msg_dumped){ 0 }));
}

static void on_examine(struct process *p, json_t *body)
{
	struct msg_examine m;
	bool stopped = false;
	if (msg_examine_read(body, &m, NULL))
		return;
	for (struct process *q = p->sim->processes; q; q = q->next)
		stopped |= q->pid == m.pid && q->frozen;
	simulate_link_send(
		p, MSG_EXAMINED,
		msg_examined_json(&(struct msg_examined){ .rank = m.rank,
							  .kind = stopped ? "stopped" : "computing",
							  .text = "its threads were examined",
							  .last = true }));
}

/* The folder of some nodes cannot be read. */
static void on_collect(struct process *p, json_t *body)
{
	struct msg_collect m;
	if (msg_collect_read(body, &m, NULL))
		return;
	simulate_link_send(p, MSG_COLLECTED,
			   msg_collected_json(&(struct msg_collected){
				   .rank = m.rank,
				   .node = m.node,
				   .has_error = m.rank % 8 == 5,
				   .error = "the folder cannot be read" }));
}

static void on_recorded(struct process *p, json_t *body)
{
	struct msg_recorded m;
	if (!msg_recorded_read(body, &m, NULL))
		simulate_save_recorded(p, m.step);
}

void simulate_process_receive(struct process *p, const struct parcel *m)
{
	bool expected = p->state == PROCESS_GREETING || p->state == PROCESS_IDLE;
	if (m->type == MSG_NONE) {
		simulate_link_close(p);
		simulate_process_leave(p);
		return;
	}
	if (m->generation != p->generation) /* the agent's channel drops it */
		return;
	switch (m->type) {
	case MSG_WELCOME:
		if (expected)
			on_welcome(p, m->body);
		else if (p->lied) /* what it sent at the wrong time has looked like idle */
			simulate_process_leave(p);
		else
			simulate_break(p->sim, "an agent that still trains got a welcome");
		break;
	case MSG_WORLD_ENDPOINTS:
		on_endpoints(p, m->body);
		break;
	case MSG_REGROUP:
		on_regroup(p);
		break;
	case MSG_ABORT:
		simulate_process_leave(p);
		break;
	case MSG_STOP:
		p->stop = true;
		break;
	case MSG_DUMP:
		simulate_process_always(p, draw(p, 0.005, 0.1), answer_dump);
		break;
	case MSG_EXAMINE:
		on_examine(p, m->body);
		break;
	case MSG_COLLECT:
		on_collect(p, m->body);
		break;
	case MSG_RECORDED:
		on_recorded(p, m->body);
		break;
	default: /* what the simulation does not use */
		break;
	}
}
