/* faults of agents, and traps for those that come along next. */
#include "launcher/simulate/world.h"

#include <signal.h>

static double draw(struct simulation *sim, double a, double b)
{
	return random_between(&sim->dice, a, b);
}

static bool chance(struct simulation *sim, double p)
{
	return random_chance(&sim->dice, p);
}

/* --- Whom it meets ------------------------------------------------------------------------ */

bool simulate_is_alive(const struct process *p)
{
	return simulate_process_lives(p) && !p->frozen;
}

bool simulate_is_joined(const struct process *p)
{
	return simulate_is_alive(p) && p->state >= PROCESS_PREPARING &&
	       p->state <= PROCESS_TRAINING;
}

bool simulate_trains(const struct process *p)
{
	return simulate_is_alive(p) && p->state == PROCESS_TRAINING && !p->hung;
}

struct process *simulate_pick(struct simulation *sim, bool (*fits)(const struct process *p))
{
	struct process *chosen = NULL;
	int n = 0;
	for (struct process *p = sim->processes; p; p = p->next)
		if (fits(p) && simulate_node_reached(sim, p->node) &&
		    !random_below(&sim->dice, ++n))
			chosen = p;
	return chosen;
}

/* --- Agents --------------------------------------------------------------------------------- */

bool simulate_inject_kill_agent(struct simulation *sim)
{
	static const int signals[] = { SIGKILL, SIGKILL, SIGSEGV, SIGBUS, SIGABRT };
	struct process *p = simulate_pick(sim, simulate_is_alive);
	if (!p)
		return false;
	simulate_process_end(p, signals[random_below(&sim->dice, 5)]);
	return true;
}

bool simulate_inject_exit_agent(struct simulation *sim)
{
	struct process *p = simulate_pick(sim, simulate_is_alive);
	if (!p)
		return false;
	simulate_process_end(p, random_below(&sim->dice, 3) << 8);
	return true;
}

bool simulate_inject_fail_agent(struct simulation *sim)
{
	static const enum err_code codes[] = { ERR_IO,       ERR_FULL,     ERR_NOMEM, ERR_DEVICE,
					       ERR_INTERNAL, ERR_REPLICAS, ERR_STUCK, ERR_PROTO,
					       ERR_CORRUPT,  ERR_NOTFOUND };
	static const enum err_code last[] = { ERR_DENIED, ERR_USAGE, ERR_UNSUPPORTED };
	struct process *p = simulate_pick(sim, simulate_is_joined);
	if (!p)
		return false;
	enum err_code code = chance(sim, 0.02) ? last[random_below(&sim->dice, 3)]
					       : codes[random_below(&sim->dice, 10)];
	simulate_process_fail(p, code, "simulated: an error of its own");
	return true;
}

bool simulate_inject_blame_peer(struct simulation *sim)
{
	static const enum err_code codes[] = { ERR_PEER, ERR_NET, ERR_TIMEOUT, ERR_ABORTED };
	struct process *p = simulate_pick(sim, simulate_trains);
	if (!p)
		return false;
	simulate_process_fail(p, codes[random_below(&sim->dice, 4)],
			      "simulated: another rank does not answer");
	return true;
}

bool simulate_inject_blame_late(struct simulation *sim)
{
	struct process *p = simulate_pick(sim, simulate_trains);
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

bool simulate_inject_hang_agent(struct simulation *sim)
{
	struct process *p = simulate_pick(sim, simulate_trains);
	if (!p)
		return false;
	p->hung = true;
	if (chance(sim, 0.5))
		simulate_later(sim, draw(sim, 5, 120), thaw, p);
	return true;
}

bool simulate_inject_freeze_agent(struct simulation *sim)
{
	struct process *p = simulate_pick(sim, simulate_is_alive);
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

bool simulate_inject_stick_agent(struct simulation *sim)
{
	struct process *p = simulate_pick(sim, simulate_is_alive);
	if (!p)
		return false;
	p->frozen = p->stuck = true;
	simulate_later(sim, draw(sim, 5, 150), unstick, p);
	return true;
}

bool simulate_inject_slow_agent(struct simulation *sim)
{
	struct process *p = simulate_pick(sim, simulate_trains);
	if (p)
		p->slow = draw(sim, 1.2, 5);
	return p;
}

bool simulate_inject_send_wrongly(struct simulation *sim)
{
	struct process *p = simulate_pick(sim, simulate_is_joined);
	if (!p)
		return false;
	p->lied = true;
	simulate_link_send(p, chance(sim, 0.5) ? MSG_IDLE : MSG_WELCOME, json_object());
	return true;
}

bool simulate_inject_trace_numbers(struct simulation *sim)
{
	struct process *p = simulate_pick(sim, simulate_trains);
	if (!p)
		return false;
	json_t *ranks = json_pack("[i]", random_below(&sim->dice, p->world));
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

/* --- Traps: they catch the next one that comes along -------------------------------------------- */

bool simulate_inject_fail_starts(struct simulation *sim)
{
	sim->traps.start_fails = 1 + random_below(&sim->dice, 4);
	return true;
}

static bool set_trap(bool *trap)
{
	bool was = *trap;
	*trap = true;
	return !was;
}

bool simulate_inject_refuse_pmix(struct simulation *sim)
{
	return set_trap(&sim->traps.pmix_refused);
}

bool simulate_inject_die_starting(struct simulation *sim)
{
	return set_trap(&sim->traps.dies_starting);
}

bool simulate_inject_start_late(struct simulation *sim)
{
	return set_trap(&sim->traps.late_starting);
}

bool simulate_inject_die_leaving(struct simulation *sim)
{
	return set_trap(&sim->traps.dies_leaving);
}

bool simulate_inject_be_stubborn(struct simulation *sim)
{
	return set_trap(&sim->traps.stubborn);
}

bool simulate_inject_meet_bad_step(struct simulation *sim)
{
	return set_trap(&sim->traps.bad_step);
}

bool simulate_inject_fail_ckpt(struct simulation *sim)
{
	return set_trap(&sim->traps.ckpt_fails);
}

bool simulate_inject_slow_ckpt(struct simulation *sim)
{
	return set_trap(&sim->traps.ckpt_slow);
}

bool simulate_inject_hide_ckpt(struct simulation *sim)
{
	return set_trap(&sim->traps.ckpt_unseen);
}

bool simulate_inject_refuse_requeue(struct simulation *sim)
{
	sim->traps.requeue_fails += 1 + random_below(&sim->dice, 3);
	return true;
}
