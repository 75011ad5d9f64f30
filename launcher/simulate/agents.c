/* agents: the processes of the agents, and what they do with each message of the supervisor. */
#include "launcher/simulate/world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The longest time that an agent takes to leave once it must, in seconds. */
static const double leave_s = 0.3;

static double draw(struct process *p, double a, double b)
{
	return simulate_random_between(&p->sim->delays, a, b);
}

bool simulate_process_lives(const struct process *p)
{
	return p->state != PROCESS_DEAD;
}

bool simulate_process_works(const struct process *p)
{
	return p->state == PROCESS_TRAINING && !p->hung && !p->frozen &&
	       simulate_node_reached(p->sim, p->node);
}

/* --- What a process does later ------------------------------------------------------------ */

static void run_errand(void *arg)
{
	struct errand *e = arg;
	struct process *p = e->process;
	bool is_void = !simulate_process_lives(p) || (!e->always && e->epoch != p->epoch);
	if (!is_void && p->frozen) { /* it waits */
		struct errand **at = &p->held;
		while (*at)
			at = &(*at)->next;
		*at = e;
		return;
	}
	void (*what)(struct process *) = is_void ? NULL : e->what;
	e->next = p->sim->spare;
	p->sim->spare = e;
	if (what)
		what(p);
}

/* From memory that lives as long as the simulation. NULL: there is none. */
static struct errand *new_errand(struct simulation *sim)
{
	if (!sim->spare) {
		struct errands *more = calloc(1, sizeof *more);
		if (!more)
			return NULL;
		more->next = sim->errands;
		sim->errands = more;
		for (int i = 0; i < SIMULATE_ERRANDS; i++) {
			more->of[i].next = sim->spare;
			sim->spare = &more->of[i];
		}
	}
	struct errand *e = sim->spare;
	sim->spare = e->next;
	return e;
}

static void run_later(struct process *p, double delay, void (*what)(struct process *), bool always)
{
	struct errand *e = new_errand(p->sim);
	if (!e) {
		p->sim->queue.failed = true;
		return;
	}
	*e = (struct errand){ .process = p, .what = what, .epoch = p->epoch, .always = always };
	simulate_later(p->sim, delay, run_errand, e);
}

void simulate_process_later(struct process *p, double delay, void (*what)(struct process *))
{
	run_later(p, delay, what, false);
}

static void wake_errands(struct process *p)
{
	for (struct errand *e = p->held, *next; e; e = next) {
		next = e->next;
		e->next = NULL;
		simulate_later(p->sim, 0, run_errand, e);
	}
	p->held = NULL;
}

void simulate_process_thaw(struct process *p)
{
	if (!simulate_process_lives(p) || p->stuck)
		return;
	p->frozen = p->hung = false;
	wake_errands(p);
	simulate_link_pump(p);
	simulate_crews_go_on(p->sim);
}

/* --- Ends --------------------------------------------------------------------------------- */

static void end_process(struct process *p, int status, bool silently)
{
	simulate_crew_leave(p, silently);
	p->state = PROCESS_DEAD;
	p->status = status;
	p->silent = silently;
	wake_errands(p); /* they are void */
	simulate_note(p->sim, "process %d (rank %d of generation %u) ended: %#x%s", p->pid, p->rank,
		      p->generation, (unsigned)status, silently ? ", with its node" : "");
	simulate_launch_ended(p);
}

void simulate_process_end(struct process *p, int status)
{
	if (!simulate_process_lives(p))
		return;
	simulate_link_close(p);
	end_process(p, status, false);
}

void simulate_process_vanish(struct process *p)
{
	if (!simulate_process_lives(p))
		return;
	simulate_link_vanish(p);
	end_process(p, SIGKILL, true);
}

static void die_condemned(void *arg)
{
	struct process *p = arg;
	if (p->condemned && !p->stuck && simulate_node_reached(p->sim, p->node))
		simulate_process_end(p, SIGKILL);
}

void simulate_process_kill(struct process *p)
{
	p->condemned = true;
	simulate_later(p->sim, draw(p, 0.005, 0.2), die_condemned, p);
}

static void exit_badly(struct process *p)
{
	simulate_process_end(p, 1 << 8);
}

static void exit_well(struct process *p)
{
	simulate_process_end(p, 0);
}

/* The agent leaves because its connection is lost, or because it was told to. */
static void leave(struct process *p)
{
	if (p->state == PROCESS_FINISHED)
		return; /* it exits by itself */
	p->epoch++;
	simulate_crew_leave(p, false);
	p->state = PROCESS_LEAVING;
	simulate_process_later(p, draw(p, 0, leave_s), exit_badly);
}

static void send_failed(struct process *p, enum err_code code, const char *text)
{
	simulate_process_send_times(p);
	simulate_link_send(
		p, MSG_FAILED,
		msg_failed_json(&(struct msg_failed){ .code = err_word(code), .text = text }));
}

void simulate_process_fail(struct process *p, enum err_code code, const char *text)
{
	bool theirs = code == ERR_PEER || code == ERR_ABORTED;
	bool wired = p->state == PROCESS_LOADING || p->state == PROCESS_TRAINING || !p->by_pmix;
	simulate_note(p->sim, "rank %d of generation %u fails: %s", p->rank, p->generation,
		      err_word(code));
	p->epoch++;
	send_failed(p, code, text);
	simulate_crew_leave(p, false);
	p->state = PROCESS_FAILED;
	if (!theirs || !wired || !p->warm)
		simulate_process_later(p, draw(p, 0.05, 0.5), exit_badly);
}

/* --- The start ---------------------------------------------------------------------------- */

static void beat(struct process *p)
{
	static const char *const phases[] = { [PROCESS_PREPARING] = "preflight",
					      [PROCESS_WIRING] = "wire up",
					      [PROCESS_LOADING] = "load",
					      [PROCESS_TRAINING] = "forward" };
	bool busy = p->state >= PROCESS_PREPARING && p->state <= PROCESS_TRAINING;
	if (p->state > PROCESS_GREETING)
		simulate_link_send(p, MSG_PROGRESS,
				   msg_progress_json(&(struct msg_progress){
					   .step = p->step,
					   .phase = busy ? phases[p->state] : "start",
					   .count = p->count,
					   .done = p->step - p->resumed,
					   .own_s = p->computed }));
	run_later(p, p->sim->setup->heartbeat_s, beat, true);
}

/* The supervisor's host has not answered for too long. */
static void notice_cut(struct process *p)
{
	const struct machine *m = &p->sim->machines[p->node];
	if (!m->cut || p->sim->queue.now - m->cut_at < SIMULATE_KEEPALIVE - 1e-6)
		return;
	simulate_link_close(p);
	leave(p);
}

void simulate_process_cut(struct process *p)
{
	run_later(p, SIMULATE_KEEPALIVE, notice_cut, true);
}

static void boot(struct process *p)
{
	struct simulation *sim = p->sim;
	char boot_id[64];
	snprintf(boot_id, sizeof boot_id, "simulated-%d-%d", p->node, p->boot);
	p->state = PROCESS_GREETING;
	p->link.open = true;
	simulate_link_send(p, MSG_HELLO,
			   msg_hello_json(&(struct msg_hello){ .rank = p->started_as,
							       .world = p->world,
							       .node = sim->machines[p->node].name,
							       .pid = p->pid,
							       .start = p->start,
							       .pid_space = p->node + 1,
							       .boot = boot_id,
							       .cpus = "",
							       .version = MSG_VERSION }));
	run_later(p, draw(p, 0, sim->setup->heartbeat_s), beat, true);
}

/* A trap of faults.c decides whether it gets so far. */
static double draw_start(struct process *p)
{
	struct traps *t = &p->sim->traps;
	if (p->launch->refused) {
		run_later(p, draw(p, 0.1, 0.3), exit_badly, true);
		return 1;
	}
	if (t->late_starting) {
		t->late_starting = false;
		return draw(p, 60, 400);
	}
	if (t->dies_starting) {
		t->dies_starting = false;
		run_later(p, draw(p, 0, 3), exit_badly, true);
	}
	return draw(p, 0.2, 1.5);
}

struct process *simulate_process_start(struct launch *l, int rank, int node, int slot,
				       const unsigned char *secret)
{
	struct simulation *sim = l->sim;
	struct process *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	*p = (struct process){ .sim = sim,
			       .launch = l,
			       .started_as = rank,
			       .node = node,
			       .slot = slot,
			       .launched_for = l->generation,
			       .pid = ++sim->pids,
			       .boot = sim->machines[node].boots,
			       .generation = l->generation,
			       .rank = rank,
			       .slow = 1,
			       .own = { .step = -1 },
			       .other = { .step = -1 } };
	p->start = (int64_t)(sim->queue.now * 100) + 1;
	p->link.up.last = &p->link.up.first;
	p->link.down.last = &p->link.down.first;
	memcpy(p->secret, secret, AUTH_SECRET_BYTES);
	*sim->last_process = p;
	sim->last_process = &p->next;
	simulate_process_later(p, draw_start(p), boot);
	return p;
}

void simulate_processes_sweep(struct simulation *sim)
{
	struct process **at = &sim->processes;
	while (*at) {
		struct process *p = *at;
		if (simulate_process_lives(p)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		p->next = sim->dead;
		sim->dead = p;
	}
	sim->last_process = at;
}

static void free_list(struct process *list)
{
	for (struct process *p = list, *next; p; p = next) {
		next = p->next;
		simulate_link_free(p);
		free(p);
	}
}

void simulate_processes_free(struct simulation *sim)
{
	free_list(sim->processes);
	free_list(sim->dead);
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
	simulate_link_send(p, MSG_ENDPOINTS,
			   msg_endpoints_json(&(struct msg_endpoints){ .values = values }));
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
	p->warm = w.warm;
	p->by_pmix = w.pmix;
	p->copies = w.copies;
	p->resumes = strcmp(w.resume, "none");
	p->endpoints = 0;
	p->step = p->resumed = 0;
	p->stop = p->hung = false;
	simulate_note(p->sim, "process %d is welcome as rank %d of generation %u", p->pid, p->rank,
		      p->generation);
	end_predecessors(p, w.predecessors);
}

static void on_endpoints(struct process *p, json_t *body)
{
	struct msg_world_endpoints m;
	if (msg_world_endpoints_read(body, &m, NULL) || m.first != p->endpoints) {
		simulate_process_fail(p, ERR_PROTO, "the list of endpoints has a gap");
		return;
	}
	p->endpoints += (int)json_array_size(m.values);
	if (p->endpoints == p->world && p->state == PROCESS_WIRING)
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
		simulate_process_later(p, draw(p, 0, 0.6), exit_badly);
	}
	if (in_pmix) {
		leave(p);
	} else if (t->stubborn) {
		t->stubborn = false;
	} else if (!p->hung) {
		simulate_process_later(p, draw(p, 0.01, 0.4), become_idle);
	}
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

static void on_recorded(struct process *p, json_t *body)
{
	struct msg_recorded m;
	if (!msg_recorded_read(body, &m, NULL))
		simulate_crew_recorded(p, m.step);
}

void simulate_process_receive(struct process *p, const struct parcel *m)
{
	bool expected = p->state == PROCESS_GREETING || p->state == PROCESS_IDLE;
	if (m->type == MSG_NONE) {
		simulate_link_close(p);
		leave(p);
		return;
	}
	if (m->generation != p->generation) /* the agent's channel drops it */
		return;
	switch (m->type) {
	case MSG_WELCOME:
		if (expected)
			on_welcome(p, m->body);
		else if (p->lied) /* what it sent at the wrong time has looked like idle */
			leave(p);
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
		leave(p);
		break;
	case MSG_STOP:
		p->stop = true;
		break;
	case MSG_DUMP:
		run_later(p, draw(p, 0.005, 0.1), answer_dump, true);
		break;
	case MSG_EXAMINE:
		on_examine(p, m->body);
		break;
	case MSG_RECORDED:
		on_recorded(p, m->body);
		break;
	default: /* what the simulation does not use */
		break;
	}
}
