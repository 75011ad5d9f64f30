/*
 * backend: starts and ends the processes of a launch. There are two, as there are of the real ones: the local
 * one sees the end of each agent and can end a single one; the one that is like Slurm's sees only when a
 * whole launch is over, and what its log says.
 */
#include "base/auth.h"
#include "base/run_paths.h"
#include "launcher/simulate/world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static double draw(struct simulation *sim, double a, double b)
{
	return random_between(&sim->delays, a, b);
}

/* Whether the supervisor runs now; if not, `fire` is called once it does. */
static bool is_awake(struct simulation *sim, void (*fire)(void *), void *arg)
{
	if (sim->queue.now >= sim->asleep)
		return true;
	simulate_later(sim, sim->asleep - sim->queue.now, fire, arg);
	return false;
}

/* --- Ends --------------------------------------------------------------------------------- */

static void report_exit(void *arg)
{
	struct process *p = arg;
	struct launch *l = p->launch;
	if (l->watched && is_awake(l->sim, report_exit, p))
		l->events.exited(l->events.arg, p->started_as, p->status);
}

static void report_gone(void *arg)
{
	struct launch *l = arg;
	if (!l->watched || !is_awake(l->sim, report_gone, l))
		return;
	if (l->refused)
		l->events.noted(l->events.arg, LAUNCH_NOTE_PMIX_REFUSED, NULL,
				"simulated: agents cannot use the PMIx server");
	if (l->sim->setup->slurm)
		l->events.exited(l->events.arg, -1, l->killed ? SIGKILL : 0);
	if (l->watched)
		l->events.all_gone(l->events.arg);
}

static int task_of(const struct launch *l, const struct process *p)
{
	int task = 0;
	while (task < l->n && l->processes[task] != p)
		task++;
	return task;
}

/* What srun prints of a task that ended badly. */
static void log_end(const struct launch *l, const struct process *p)
{
	char path[RUN_PATH];
	run_path_launch_log(path, rundir_path(l->sim->run), l->generation);
	FILE *log = p->status && l->sim->setup->sees_exits ? fopen(path, "ae") : NULL;
	if (!log)
		return;
	if (WIFSIGNALED(p->status))
		fprintf(log, "srun: error: %s: task %d: %s\n", l->sim->machines[p->node].name,
			task_of(l, p), strsignal(WTERMSIG(p->status)));
	else
		fprintf(log, "srun: error: %s: task %d: Exited with exit code %d\n",
			l->sim->machines[p->node].name, task_of(l, p), WEXITSTATUS(p->status));
	fclose(log);
}

/* Whether nobody waits for the process any more. */
static bool is_over(const struct launch *l, const struct process *p)
{
	const struct machine *m = &l->sim->machines[p->node];
	bool away = m->lost || m->cut;
	if (away && l->killed && l->node_lost)
		return true;
	return !simulate_process_lives(p) && (!p->silent || m->down || !away);
}

static void look(struct launch *l)
{
	bool over = !l->gone;
	for (int i = 0; over && i < l->n; i++)
		over = is_over(l, l->processes[i]);
	if (!over)
		return;
	l->gone = true;
	simulate_later(l->sim, draw(l->sim, 0.12, 0.4), report_gone, l);
}

static void look_later(void *launch)
{
	look(launch);
}

void simulate_launch_ended(struct process *p)
{
	struct launch *l = p->launch;
	struct simulation *sim = p->sim;
	if (!sim->setup->slurm)
		simulate_later(sim, draw(sim, 0.001, 0.1), report_exit, p);
	else if (l->watched && !p->silent)
		log_end(l, p);
	simulate_later(sim, 0, look_later, l);
}

void simulate_launches_look(struct simulation *sim)
{
	for (struct launch *l = sim->launches; l; l = l->next)
		look(l);
}

static void kill_launch(struct launch *l, bool node_lost)
{
	simulate_note(l->sim, "the launch of generation %u is killed%s", l->generation,
		      node_lost ? ", without its lost nodes" : "");
	l->killed = true;
	l->node_lost |= node_lost;
	for (int i = 0; i < l->n; i++)
		if (simulate_process_lives(l->processes[i]))
			simulate_process_kill(l->processes[i]);
	simulate_later(l->sim, 0.3, look_later, l);
}

static void kill_agent(struct launch *l, int rank)
{
	for (int i = 0; i < l->n; i++)
		if (l->processes[i]->started_as == rank && simulate_process_lives(l->processes[i]))
			simulate_process_kill(l->processes[i]);
}

static void close_launch(struct launch *l)
{
	if (!l->gone)
		simulate_break(l->sim, "the launch of generation %u is closed before its end",
			       l->generation);
	l->watched = false;
}

void simulate_launches_forget(struct simulation *sim)
{
	for (struct launch *l = sim->launches; l; l = l->next) {
		l->orphaned |= l->watched;
		l->watched = false;
	}
}

void simulate_launches_free(struct simulation *sim)
{
	for (struct launch *l = sim->launches, *next; l; l = next) {
		next = l->next;
		free(l->processes);
		free(l);
	}
	sim->launches = NULL;
}

bool simulate_helper_end(struct simulation *sim, int node)
{
	bool any = false;
	for (struct launch *l = sim->launches; l; l = l->next) {
		bool here = false;
		for (int i = 0; l->watched && i < l->n; i++)
			here |= l->processes[i]->node == node &&
				simulate_process_lives(l->processes[i]);
		if (!here)
			continue;
		any = true;
		l->events.noted(l->events.arg, LAUNCH_NOTE_HELPER_LOST, sim->machines[node].name,
				"simulated: the helper was killed");
		for (int i = 0; i < l->n; i++)
			if (l->processes[i]->node == node)
				simulate_process_kill(l->processes[i]);
	}
	return any;
}

/* --- Starts ------------------------------------------------------------------------------- */

static int find_machine(const struct simulation *sim, const char *name)
{
	int n = 0;
	while (n < sim->setup->machines.n_nodes && strcmp(sim->machines[n].name, name))
		n++;
	return n;
}

/* Fails at once: the trap of faults.c. */
static int meet_trap(struct simulation *sim, struct err *e)
{
	static const enum err_code codes[] = { ERR_PEER, ERR_NOMEM, ERR_IO };
	if (!sim->traps.start_fails)
		return 0;
	sim->traps.start_fails--;
	simulate_note(sim, "a start fails");
	return err_set(e, codes[random_below(&sim->delays, 3)],
		       "simulated: the agents cannot be started");
}

/* srun finds no controller, and ends. */
static void log_silence(const struct launch *l)
{
	char path[RUN_PATH];
	run_path_launch_log(path, rundir_path(l->sim->run), l->generation);
	FILE *log = fopen(path, "ae");
	if (!log)
		return;
	fprintf(log, "srun: error: Unable to contact slurm controller (connect failure)\n");
	fclose(log);
}

static int start_processes(struct launch *l, const struct launch_request *r, struct err *e)
{
	struct simulation *sim = l->sim;
	unsigned char secret[AUTH_SECRET_BYTES];
	if (auth_secret_parse(r->secret, secret, e))
		return -1;
	for (int i = 0; i < r->n_ranks; i++) {
		int rank = r->ranks ? r->ranks[i] : i;
		const struct plan_rank *at = &r->plan->ranks[rank];
		int node = find_machine(sim, r->cluster->nodes[at->node].name);
		struct process *p = simulate_process_start(l, rank, node, at->slot, secret);
		if (!p)
			return err_set(e, ERR_NOMEM, "no memory for a process");
		p->world = r->plan->world;
		l->processes[l->n++] = p;
		if (!simulate_node_reached(sim, node))
			simulate_process_vanish(p);
	}
	return 0;
}

static int start(uv_loop_t *loop, const struct launch_request *r, const struct launch_events *ev,
		 struct launch **out, struct err *e)
{
	struct simulation *sim = loop->data;
	if (meet_trap(sim, e))
		return -1;
	struct launch *l = calloc(1, sizeof *l);
	if (!l || !(l->processes = calloc((size_t)r->n_ranks, sizeof(struct process *)))) {
		free(l);
		return err_set(e, ERR_NOMEM, "no memory for a launch");
	}
	l->sim = sim;
	l->events = *ev;
	l->generation = r->generation;
	l->watched = true;
	l->refused = sim->traps.pmix_refused && !r->ranks;
	sim->traps.pmix_refused &= !l->refused;
	l->next = sim->launches;
	sim->launches = l;
	*out = l;
	simulate_note(sim, "generation %u starts %d agents of %d", r->generation, r->n_ranks,
		      r->plan->world);
	bool silent = sim->setup->slurm && sim->queue.now < sim->silent_until;
	if (silent && random_chance(&sim->delays, 0.5)) {
		log_silence(l);
		simulate_later(sim, draw(sim, 0.5, 3), look_later, l);
		return 0;
	}
	return start_processes(l, r, e);
}

static int requeue(const char *exclude, int min_nodes, int max_nodes, struct err *e)
{
	struct simulation *sim = simulate_current();
	(void)min_nodes;
	(void)max_nodes;
	if (sim->traps.requeue_fails > 0 || sim->result->requeues >= 5) {
		sim->traps.requeue_fails -= sim->traps.requeue_fails > 0;
		return err_set(e, ERR_UNSUPPORTED, "simulated: access denied");
	}
	simulate_note(sim, "the job is requeued without the nodes '%s'", exclude);
	sim->result->requeues++;
	sim->requeued = true;
	return 0;
}

const struct launch_ops simulate_local_ops = { .name = "local",
					       .word = LAUNCHER_LOCAL,
					       .start = start,
					       .kill = kill_launch,
					       .kill_agent = kill_agent,
					       .close = close_launch };

const struct launch_ops simulate_slurm_ops = { .name = "srun",
					       .word = LAUNCHER_SLURM,
					       .start = start,
					       .kill = kill_launch,
					       .close = close_launch,
					       .survey = simulate_survey,
					       .survey_stop = simulate_survey_stop,
					       .stop_query = simulate_stop_query,
					       .stop_query_end = simulate_stop_query_end,
					       .requeue = requeue };
