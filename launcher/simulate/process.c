/* process: the processes of the agents: their starts and ends, and what they do later. */
#include "launcher/simulate/world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The longest time that an agent takes to leave once it must, in seconds. */
static const double leave_s = 0.3;

static double draw(struct process *p, double a, double b)
{
	return random_between(&p->sim->delays, a, b);
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

void simulate_process_always(struct process *p, double delay, void (*what)(struct process *))
{
	run_later(p, delay, what, true);
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

void simulate_process_exit(struct process *p)
{
	simulate_process_end(p, 1 << 8);
}

void simulate_process_leave(struct process *p)
{
	if (p->state == PROCESS_FINISHED)
		return; /* it exits by itself */
	p->epoch++;
	simulate_crew_leave(p, false);
	p->state = PROCESS_LEAVING;
	simulate_process_later(p, draw(p, 0, leave_s), simulate_process_exit);
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
		simulate_process_later(p, draw(p, 0.05, 0.5), simulate_process_exit);
}

/* --- The start ---------------------------------------------------------------------------- */

static void beat(struct process *p)
{
	if (p->state > PROCESS_GREETING)
		simulate_report_progress(p);
	run_later(p, p->sim->setup->heartbeat_s, beat, true);
}

/* The supervisor's host has not answered for too long. */
static void notice_cut(struct process *p)
{
	const struct machine *m = &p->sim->machines[p->node];
	if (!m->cut || p->sim->queue.now - m->cut_at < SIMULATE_KEEPALIVE - 1e-6)
		return;
	simulate_link_close(p);
	simulate_process_leave(p);
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
		run_later(p, draw(p, 0.1, 0.3), simulate_process_exit, true);
		return 1;
	}
	if (t->late_starting) {
		t->late_starting = false;
		return draw(p, 60, 400);
	}
	if (t->dies_starting) {
		t->dies_starting = false;
		run_later(p, draw(p, 0, 3), simulate_process_exit, true);
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
		json_decref(p->wants);
		free(p);
	}
}

void simulate_processes_free(struct simulation *sim)
{
	free_list(sim->processes);
	free_list(sim->dead);
}
