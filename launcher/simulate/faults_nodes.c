/* faults of nodes, links, Slurm and the supervisor. */
#include "launcher/simulate/world.h"

#include <signal.h>

/* Before the time limit, Slurm sends its signal. */
static const double term_s = 120;

static double draw(struct simulation *sim, double a, double b)
{
	return random_between(&sim->dice, a, b);
}

static bool chance(struct simulation *sim, double p)
{
	return random_chance(&sim->dice, p);
}

/* A node that can be reached, other than `other`; -1: there is none. */
static int pick_node(struct simulation *sim, int other)
{
	int chosen = -1, n = 0;
	for (int i = 0; i < sim->setup->machines.n_nodes; i++)
		if (i != other && simulate_node_reached(sim, i) && !random_below(&sim->dice, ++n))
			chosen = i;
	return chosen;
}

/* --- Nodes and links ------------------------------------------------------------------------- */

bool simulate_inject_lose_node(struct simulation *sim)
{
	int node = pick_node(sim, -1);
	if (node >= 0)
		simulate_node_lose(sim, node, draw(sim, 20, 600));
	return node >= 0;
}

bool simulate_inject_lose_two_nodes(struct simulation *sim)
{
	int a = pick_node(sim, -1), b = pick_node(sim, a);
	if (a < 0 || b < 0)
		return false;
	simulate_node_lose(sim, a, draw(sim, 20, 600));
	simulate_node_lose(sim, b, draw(sim, 20, 600));
	return true;
}

bool simulate_inject_cut_node(struct simulation *sim)
{
	int node = pick_node(sim, -1);
	if (node >= 0)
		simulate_node_cut(sim, node, draw(sim, 1, 60));
	return node >= 0;
}

bool simulate_inject_leave_job(struct simulation *sim)
{
	int node = pick_node(sim, -1);
	if (node >= 0)
		simulate_node_leave(sim, node);
	return node >= 0;
}

bool simulate_inject_drain_node(struct simulation *sim)
{
	int node = pick_node(sim, -1);
	if (node >= 0)
		simulate_node_drain(sim, node, draw(sim, 30, 600));
	return node >= 0;
}

bool simulate_inject_reset_link(struct simulation *sim)
{
	struct process *p = simulate_pick(sim, simulate_is_alive);
	if (p)
		simulate_link_reset(p);
	return p;
}

bool simulate_inject_reset_links(struct simulation *sim)
{
	int node = pick_node(sim, -1);
	for (struct process *p = sim->processes; p && node >= 0; p = p->next)
		if (p->node == node && simulate_process_lives(p))
			simulate_link_reset(p);
	return node >= 0;
}

bool simulate_inject_slow_link(struct simulation *sim)
{
	struct process *p = simulate_pick(sim, simulate_is_alive);
	if (!p)
		return false;
	p->link.slow = draw(sim, 0.05, 20);
	p->link.slow_until = sim->queue.now + draw(sim, 1, 60);
	return true;
}

/* --- Slurm and the supervisor ------------------------------------------------------------------- */

bool simulate_inject_silence_slurm(struct simulation *sim)
{
	sim->silent_until = sim->queue.now + draw(sim, 5, 200);
	return true;
}

static bool runs(const struct simulation *sim)
{
	return sim->supervisor && sim->queue.now >= sim->asleep;
}

bool simulate_inject_ask_to_stop(struct simulation *sim)
{
	if (!runs(sim) || sim->stopping)
		return false;
	sim->stopping = true;
	supervise_stop(sim->supervisor, "simulated: somebody stops the run", false);
	return true;
}

bool simulate_inject_end_helper(struct simulation *sim)
{
	int node = runs(sim) ? pick_node(sim, -1) : -1;
	return node >= 0 && simulate_helper_end(sim, node);
}

bool simulate_inject_signal_agent(struct simulation *sim)
{
	struct process *p = runs(sim) && !sim->stopping ? simulate_pick(sim, simulate_is_joined)
							: NULL;
	if (!p)
		return false;
	sim->stopping = true;
	simulate_link_send(p, MSG_SIGNAL,
			   msg_signal_json(&(struct msg_signal){ .number = SIGTERM }));
	return true;
}

bool simulate_inject_stop_now(struct simulation *sim)
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

bool simulate_inject_reach_time_limit(struct simulation *sim)
{
	return end_job_soon(sim, STOP_TIME_LIMIT, term_s + draw(sim, -5, 60));
}

bool simulate_inject_preempt(struct simulation *sim)
{
	return end_job_soon(sim, STOP_PREEMPTED, draw(sim, 2, 90));
}

bool simulate_inject_suspend(struct simulation *sim)
{
	if (!runs(sim))
		return false;
	sim->asleep = sim->queue.now + draw(sim, 0.5, chance(sim, 0.5) ? 5 : 120);
	return true;
}

bool simulate_inject_kill_supervisor(struct simulation *sim)
{
	if (!sim->supervisor)
		return false;
	simulate_kill_supervisor(sim, draw(sim, 0.2, chance(sim, 0.5) ? 3 : 60));
	return true;
}
