/* faults: injects the faults of the table, at random times, into whatever the run does then. */
#include "launcher/simulate/faults.h"

#include "launcher/simulate/world.h"

#include <signal.h>
#include <stdio.h>

static const double burst_s = 3, term_s = 120; /* term_s: of Slurm's signal before a time limit */

enum { TRIES = 8 };

static double draw(struct simulation *sim, double a, double b)
{
	return simulate_random_between(&sim->dice, a, b);
}

static bool chance(struct simulation *sim, double p)
{
	return simulate_random_chance(&sim->dice, p);
}

/* --- Whom it meets ------------------------------------------------------------------------ */

static bool is_alive(const struct process *p)
{
	return simulate_process_lives(p) && !p->frozen;
}

static bool is_joined(const struct process *p)
{
	return is_alive(p) && p->state >= PROCESS_PREPARING && p->state <= PROCESS_TRAINING;
}

static bool trains(const struct process *p)
{
	return is_alive(p) && p->state == PROCESS_TRAINING && !p->hung;
}

static struct process *pick(struct simulation *sim, bool (*fits)(const struct process *p))
{
	struct process *chosen = NULL;
	int n = 0;
	for (struct process *p = sim->processes; p; p = p->next)
		if (fits(p) && simulate_node_reached(sim, p->node) &&
		    !simulate_random_below(&sim->dice, ++n))
			chosen = p;
	return chosen;
}

/* A node that can be reached, other than `other`; -1: there is none. */
static int pick_node(struct simulation *sim, int other)
{
	int chosen = -1, n = 0;
	for (int i = 0; i < sim->setup->machines.n_nodes; i++)
		if (i != other && simulate_node_reached(sim, i) &&
		    !simulate_random_below(&sim->dice, ++n))
			chosen = i;
	return chosen;
}

/* --- Agents --------------------------------------------------------------------------------- */

static bool kill_agent(struct simulation *sim)
{
	static const int signals[] = { SIGKILL, SIGKILL, SIGSEGV, SIGBUS, SIGABRT };
	struct process *p = pick(sim, is_alive);
	if (!p)
		return false;
	simulate_process_end(p, signals[simulate_random_below(&sim->dice, 5)]);
	return true;
}

static bool exit_agent(struct simulation *sim)
{
	struct process *p = pick(sim, is_alive);
	if (!p)
		return false;
	simulate_process_end(p, simulate_random_below(&sim->dice, 3) << 8);
	return true;
}

static bool fail_agent(struct simulation *sim)
{
	static const enum err_code codes[] = { ERR_IO,       ERR_FULL,     ERR_NOMEM, ERR_DEVICE,
					       ERR_INTERNAL, ERR_REPLICAS, ERR_STUCK, ERR_PROTO,
					       ERR_CORRUPT,  ERR_NOTFOUND };
	static const enum err_code last[] = { ERR_DENIED, ERR_USAGE, ERR_UNSUPPORTED };
	struct process *p = pick(sim, is_joined);
	if (!p)
		return false;
	enum err_code code = chance(sim, 0.02) ? last[simulate_random_below(&sim->dice, 3)]
					       : codes[simulate_random_below(&sim->dice, 10)];
	simulate_process_fail(p, code, "simulated: an error of its own");
	return true;
}

static bool blame_peer(struct simulation *sim)
{
	static const enum err_code codes[] = { ERR_PEER, ERR_NET, ERR_TIMEOUT, ERR_ABORTED };
	struct process *p = pick(sim, trains);
	if (!p)
		return false;
	simulate_process_fail(p, codes[simulate_random_below(&sim->dice, 4)],
			      "simulated: another rank does not answer");
	return true;
}

static bool blame_late(struct simulation *sim)
{
	struct process *p = pick(sim, trains);
	if (!p)
		return false;
	p->link.slow = draw(sim, 0.05, 3);
	p->link.slow_until = sim->queue.now + 1;
	simulate_process_end(p, SIGKILL);
	return true;
}

static void thaw(void *process)
{
	simulate_process_thaw(process);
}

static bool hang_agent(struct simulation *sim)
{
	struct process *p = pick(sim, trains);
	if (!p)
		return false;
	p->hung = true;
	if (chance(sim, 0.5))
		simulate_later(sim, draw(sim, 5, 120), thaw, p);
	return true;
}

static bool freeze_agent(struct simulation *sim)
{
	struct process *p = pick(sim, is_alive);
	if (!p)
		return false;
	p->frozen = true;
	if (chance(sim, 0.6))
		simulate_later(sim, draw(sim, 1, 60), thaw, p);
	return true;
}

static void unstick(void *process)
{
	struct process *p = process;
	p->stuck = false;
	if (p->condemned)
		simulate_process_kill(p);
	else
		simulate_process_thaw(p);
}

static bool stick_agent(struct simulation *sim)
{
	struct process *p = pick(sim, is_alive);
	if (!p)
		return false;
	p->frozen = p->stuck = true;
	simulate_later(sim, draw(sim, 5, 150), unstick, p);
	return true;
}

static bool slow_agent(struct simulation *sim)
{
	struct process *p = pick(sim, trains);
	if (p)
		p->slow = draw(sim, 1.2, 5);
	return p;
}

static bool send_wrongly(struct simulation *sim)
{
	struct process *p = pick(sim, is_joined);
	if (!p)
		return false;
	p->lied = true;
	simulate_link_send(p, chance(sim, 0.5) ? MSG_IDLE : MSG_WELCOME, json_object());
	return true;
}

static bool trace_numbers(struct simulation *sim)
{
	struct process *p = pick(sim, trains);
	if (!p)
		return false;
	json_t *ranks = json_pack("[i]", simulate_random_below(&sim->dice, p->world));
	json_t *blame = msg_blame_json(&(struct msg_blame){ .ranks = ranks,
							    .suspect = chance(sim, 0.5),
							    .step = p->step,
							    .kind = "weights",
							    .tensor = "" });
	simulate_link_send(p, MSG_FAILED,
			   msg_failed_json(&(struct msg_failed){ .code = err_word(ERR_REPLICAS),
								 .text = "simulated: ranks differ",
								 .has_blame = true,
								 .blame = blame }));
	json_decref(ranks);
	json_decref(blame);
	simulate_process_end(p, 1 << 8);
	return true;
}

/* --- Nodes and links ------------------------------------------------------------------------- */

static bool lose_node(struct simulation *sim)
{
	int node = pick_node(sim, -1);
	if (node >= 0)
		simulate_node_lose(sim, node, draw(sim, 20, 600));
	return node >= 0;
}

static bool lose_two_nodes(struct simulation *sim)
{
	int a = pick_node(sim, -1), b = pick_node(sim, a);
	if (a < 0 || b < 0)
		return false;
	simulate_node_lose(sim, a, draw(sim, 20, 600));
	simulate_node_lose(sim, b, draw(sim, 20, 600));
	return true;
}

static bool cut_node(struct simulation *sim)
{
	int node = pick_node(sim, -1);
	if (node >= 0)
		simulate_node_cut(sim, node, draw(sim, 1, 60));
	return node >= 0;
}

static bool leave_job(struct simulation *sim)
{
	int node = pick_node(sim, -1);
	if (node >= 0)
		simulate_node_leave(sim, node);
	return node >= 0;
}

static bool drain_node(struct simulation *sim)
{
	int node = pick_node(sim, -1);
	if (node >= 0)
		simulate_node_drain(sim, node, draw(sim, 30, 600));
	return node >= 0;
}

static bool reset_link(struct simulation *sim)
{
	struct process *p = pick(sim, is_alive);
	if (p)
		simulate_link_reset(p);
	return p;
}

static bool reset_links(struct simulation *sim)
{
	int node = pick_node(sim, -1);
	for (struct process *p = sim->processes; p && node >= 0; p = p->next)
		if (p->node == node && simulate_process_lives(p))
			simulate_link_reset(p);
	return node >= 0;
}

static bool slow_link(struct simulation *sim)
{
	struct process *p = pick(sim, is_alive);
	if (!p)
		return false;
	p->link.slow = draw(sim, 0.05, 20);
	p->link.slow_until = sim->queue.now + draw(sim, 1, 60);
	return true;
}

/* --- Traps: they catch the next one that comes along -------------------------------------------- */

static bool fail_starts(struct simulation *sim)
{
	sim->traps.start_fails = 1 + simulate_random_below(&sim->dice, 4);
	return true;
}

static bool set_trap(bool *trap)
{
	bool was = *trap;
	*trap = true;
	return !was;
}

static bool refuse_pmix(struct simulation *sim)
{
	return set_trap(&sim->traps.pmix_refused);
}

static bool die_starting(struct simulation *sim)
{
	return set_trap(&sim->traps.dies_starting);
}

static bool start_late(struct simulation *sim)
{
	return set_trap(&sim->traps.late_starting);
}

static bool die_leaving(struct simulation *sim)
{
	return set_trap(&sim->traps.dies_leaving);
}

static bool be_stubborn(struct simulation *sim)
{
	return set_trap(&sim->traps.stubborn);
}

static bool meet_bad_step(struct simulation *sim)
{
	return set_trap(&sim->traps.bad_step);
}

static bool fail_ckpt(struct simulation *sim)
{
	return set_trap(&sim->traps.ckpt_fails);
}

static bool slow_ckpt(struct simulation *sim)
{
	return set_trap(&sim->traps.ckpt_slow);
}

static bool hide_ckpt(struct simulation *sim)
{
	return set_trap(&sim->traps.ckpt_unseen);
}

static bool refuse_requeue(struct simulation *sim)
{
	sim->traps.requeue_fails += 1 + simulate_random_below(&sim->dice, 3);
	return true;
}

/* --- Slurm and the supervisor ------------------------------------------------------------------- */

static bool silence_slurm(struct simulation *sim)
{
	sim->silent_until = sim->queue.now + draw(sim, 5, 200);
	return true;
}

static bool runs(const struct simulation *sim)
{
	return sim->supervisor && sim->queue.now >= sim->asleep;
}

static bool ask_to_stop(struct simulation *sim)
{
	if (!runs(sim) || sim->stopping)
		return false;
	sim->stopping = true;
	supervise_stop(sim->supervisor, "simulated: somebody stops the run", false);
	return true;
}

static bool end_helper(struct simulation *sim)
{
	int node = runs(sim) ? pick_node(sim, -1) : -1;
	return node >= 0 && simulate_helper_end(sim, node);
}

static bool signal_agent(struct simulation *sim)
{
	struct process *p = runs(sim) && !sim->stopping ? pick(sim, is_joined) : NULL;
	if (!p)
		return false;
	sim->stopping = true;
	simulate_link_send(p, MSG_SIGNAL,
			   msg_signal_json(&(struct msg_signal){ .number = SIGTERM }));
	return true;
}

static bool stop_now(struct simulation *sim)
{
	if (!runs(sim))
		return false;
	sim->stopping = true;
	supervise_stop(sim->supervisor, "simulated: somebody stops the run at once", true);
	return true;
}

static void end_job(void *arg)
{
	struct simulation *sim = arg;
	if (sim->job_ends <= 0 || sim->queue.now < sim->job_ends)
		return;
	simulate_note(sim, "the job is over: Slurm ends all of its processes");
	for (struct process *p = sim->processes; p; p = p->next)
		if (simulate_process_lives(p))
			simulate_process_kill(p);
	if (sim->supervisor)
		simulate_kill_supervisor(sim, 20);
}

static bool end_job_soon(struct simulation *sim, enum stop_cause cause, double seconds)
{
	if (!runs(sim) || sim->job_ends > 0)
		return false;
	sim->job_ends = sim->queue.now + seconds;
	sim->stop_cause.cause = cause;
	simulate_later(sim, seconds, end_job, sim);
	supervise_stop(sim->supervisor, "simulated: Slurm's signal", false);
	return true;
}

static bool reach_time_limit(struct simulation *sim)
{
	return end_job_soon(sim, STOP_TIME_LIMIT, term_s + draw(sim, -5, 60));
}

static bool preempt(struct simulation *sim)
{
	return end_job_soon(sim, STOP_PREEMPTED, draw(sim, 2, 90));
}

static bool suspend(struct simulation *sim)
{
	if (!runs(sim))
		return false;
	sim->asleep = sim->queue.now + draw(sim, 0.5, chance(sim, 0.5) ? 5 : 120);
	return true;
}

static bool kill_supervisor(struct simulation *sim)
{
	if (!sim->supervisor)
		return false;
	simulate_kill_supervisor(sim, draw(sim, 0.2, chance(sim, 0.5) ? 3 : 60));
	return true;
}

/* --- The table ------------------------------------------------------------------------------- */

static const struct simulate_fault_row rows[] = {
#define FAULT_ROW(id, name, rate, slurm, doc) { name, rate, slurm, doc },
	SIMULATE_FAULTS(FAULT_ROW)
#undef FAULT_ROW
};

static bool (*const injections[SIMULATE_FAULT_COUNT])(struct simulation *sim) = {
	[SIMULATE_KILLED] = kill_agent,
	[SIMULATE_EXITS] = exit_agent,
	[SIMULATE_FAILS] = fail_agent,
	[SIMULATE_BLAMES] = blame_peer,
	[SIMULATE_LATE_BLAME] = blame_late,
	[SIMULATE_HANGS] = hang_agent,
	[SIMULATE_FREEZES] = freeze_agent,
	[SIMULATE_STUCK] = stick_agent,
	[SIMULATE_NODE_LOST] = lose_node,
	[SIMULATE_TWO_NODES] = lose_two_nodes,
	[SIMULATE_NODE_CUT] = cut_node,
	[SIMULATE_LINK_RESET] = reset_link,
	[SIMULATE_LINKS_RESET] = reset_links,
	[SIMULATE_LINK_SLOW] = slow_link,
	[SIMULATE_NODE_LEFT] = leave_job,
	[SIMULATE_NODE_DRAINED] = drain_node,
	[SIMULATE_HELPER_LOST] = end_helper,
	[SIMULATE_PMIX_REFUSED] = refuse_pmix,
	[SIMULATE_SLOW_RANK] = slow_agent,
	[SIMULATE_SIGNALLED] = signal_agent,
	[SIMULATE_START_FAILS] = fail_starts,
	[SIMULATE_DIES_STARTING] = die_starting,
	[SIMULATE_LATE_STARTING] = start_late,
	[SIMULATE_DIES_LEAVING] = die_leaving,
	[SIMULATE_STUBBORN] = be_stubborn,
	[SIMULATE_BAD_STEP] = meet_bad_step,
	[SIMULATE_WRONG_NUMBERS] = trace_numbers,
	[SIMULATE_CKPT_FAILS] = fail_ckpt,
	[SIMULATE_CKPT_SLOW] = slow_ckpt,
	[SIMULATE_CKPT_UNSEEN] = hide_ckpt,
	[SIMULATE_SLURM_SILENT] = silence_slurm,
	[SIMULATE_REQUEUE_FAILS] = refuse_requeue,
	[SIMULATE_PROTOCOL] = send_wrongly,
	[SIMULATE_SIGNAL] = ask_to_stop,
	[SIMULATE_STOP_NOW] = stop_now,
	[SIMULATE_TIME_LIMIT] = reach_time_limit,
	[SIMULATE_PREEMPTED] = preempt,
	[SIMULATE_SUSPENDED] = suspend,
	[SIMULATE_SUP_KILLED] = kill_supervisor,
};

const struct simulate_fault_row *simulate_fault_row(enum simulate_fault f)
{
	return &rows[f];
}

/* --- When and which ------------------------------------------------------------------------- */

static enum simulate_fault choose(struct simulation *sim)
{
	const struct simulate_setup *s = sim->setup;
	double sum = 0;
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++)
		sum += rows[f].slurm && !s->slurm ? 0 : s->rates[f];
	double at = draw(sim, 0, sum);
	for (int f = 0; f < SIMULATE_FAULT_COUNT; f++) {
		at -= rows[f].slurm && !s->slurm ? 0 : s->rates[f];
		if (at < 0)
			return (enum simulate_fault)f;
	}
	return SIMULATE_KILLED;
}

static void inject(struct simulation *sim)
{
	for (int i = 0; i < TRIES; i++) {
		enum simulate_fault f = choose(sim);
		int before = sim->result->all_faults + 1;
		/* before it happens, so that its consequences come after it */
		simulate_note(sim, "FAULT %d: %s", before, rows[f].name);
		if (!injections[f](sim))
			continue;
		buf_printf(&sim->faults, "%4d  %10.3f  %s\n", before, sim->queue.now, rows[f].name);
		sim->result->faults[f]++;
		sim->result->all_faults++;
		sim->fault_at = sim->queue.now;
		return;
	}
}

static void inject_next(void *arg)
{
	struct simulation *sim = arg;
	const struct simulate_setup *s = sim->setup;
	if (sim->over || sim->queue.now > SIMULATE_BEGIN + s->seconds ||
	    sim->result->all_faults >= s->most_faults)
		return;
	inject(sim);
	simulate_faults_begin(sim);
}

void simulate_faults_begin(struct simulation *sim)
{
	const struct simulate_setup *s = sim->setup;
	double wait = chance(sim, s->burst) ? draw(sim, 0, burst_s)
					    : simulate_random_wait(&sim->dice, s->fault_s);
	simulate_later(sim, wait, inject_next, sim);
}
