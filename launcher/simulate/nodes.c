/* nodes: the nodes and their ends, and what Slurm answers about them and about the job. */
#include "launcher/simulate/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct surveying {
	struct simulation *sim;
	void (*done)(void *arg, const struct survey *s);
	void *arg;
	bool *suspects;
	bool stopped;
};

struct stop_query {
	struct simulation *sim;
	void (*done)(void *arg, const struct stop_answer *a);
	void *arg;
	bool stopped;
};

static double draw(struct simulation *sim, double a, double b)
{
	return random_between(&sim->delays, a, b);
}

bool simulate_node_reached(const struct simulation *sim, int node)
{
	return !sim->machines[node].lost && !sim->machines[node].cut;
}

/* --- Surveys ------------------------------------------------------------------------------ */

/* A dead node that Slurm still counts as up cannot be reached. */
static enum node_state state_of(const struct simulation *sim, const struct surveying *s, int node,
				bool silent)
{
	const struct machine *m = &sim->machines[node];
	if (!simulate_node_reached(sim, node) && s->suspects && s->suspects[node] && !m->down)
		return NODE_UNREACHABLE;
	if (silent)
		return NODE_UNKNOWN;
	if (m->left)
		return NODE_LEFT;
	if (m->drained && !m->down)
		return NODE_DRAIN;
	return m->down ? NODE_DOWN : NODE_UP;
}

static void free_survey(struct surveying *s)
{
	free(s->suspects);
	free(s);
}

static void answer_survey(void *arg)
{
	struct surveying *y = arg;
	struct simulation *sim = y->sim;
	int n = sim->setup->machines.n_nodes;
	if (!y->stopped && sim->queue.now < sim->asleep) {
		simulate_later(sim, sim->asleep - sim->queue.now, answer_survey, y);
		return;
	}
	bool silent = sim->queue.now < sim->silent_until;
	struct survey s = { .answered = !silent,
			    .partly = true,
			    .n_nodes = n,
			    .job_known = !silent,
			    .can_requeue = !silent,
			    .free = silent ? 0 : sim->free,
			    .why = "simulated: the controller does not answer" };
	s.nodes = calloc((size_t)n, sizeof *s.nodes);
	sim->queue.failed |= !s.nodes;
	for (int i = 0; s.nodes && i < n; i++)
		s.nodes[i] = state_of(sim, y, i, silent);
	if (s.nodes && !y->stopped)
		y->done(y->arg, &s);
	free(s.nodes);
	free_survey(y);
}

int simulate_survey(uv_loop_t *loop, const struct survey_request *r,
		    void (*done)(void *arg, const struct survey *s), void *arg,
		    struct surveying **out, struct err *e)
{
	struct simulation *sim = loop->data;
	size_t n = (size_t)r->cluster->n_nodes;
	struct surveying *s = calloc(1, sizeof *s);
	if (!s || (r->suspects && !(s->suspects = malloc(n * sizeof *s->suspects)))) {
		free(s);
		return err_set(e, ERR_NOMEM, "no memory for a survey");
	}
	s->sim = sim;
	s->done = done;
	s->arg = arg;
	if (r->suspects)
		memcpy(s->suspects, r->suspects, n * sizeof *s->suspects);
	bool silent = sim->queue.now < sim->silent_until;
	simulate_later(sim, silent ? draw(sim, 2, 12) : draw(sim, 0.05, 1.5), answer_survey, s);
	*out = s;
	return 0;
}

void simulate_survey_stop(struct surveying *s)
{
	s->stopped = true;
}

/* --- The cause of a stop ------------------------------------------------------------------- */

static void answer_query(void *arg)
{
	struct stop_query *q = arg;
	struct simulation *sim = q->sim;
	if (!q->stopped && sim->queue.now < sim->asleep) {
		simulate_later(sim, sim->asleep - sim->queue.now, answer_query, q);
		return;
	}
	struct stop_answer a = sim->stop_cause;
	a.answered = sim->queue.now >= sim->silent_until;
	a.left = sim->job_ends > 0 ? sim->job_ends - sim->queue.now : -1;
	a.can_requeue = true;
	a.restarts = sim->result->requeues;
	if (!a.answered)
		snprintf(a.why, sizeof a.why, "simulated: the controller does not answer");
	if (!q->stopped)
		q->done(q->arg, &a);
	free(q);
}

int simulate_stop_query(uv_loop_t *loop, const struct job *job,
			void (*done)(void *arg, const struct stop_answer *a), void *arg,
			struct stop_query **out, struct err *e)
{
	struct simulation *sim = loop->data;
	struct stop_query *q = calloc(1, sizeof *q);
	(void)job;
	if (!q)
		return err_set(e, ERR_NOMEM, "no memory for a query");
	*q = (struct stop_query){ .sim = sim, .done = done, .arg = arg };
	bool silent = sim->queue.now < sim->silent_until;
	simulate_later(sim, silent ? draw(sim, 2, 12) : draw(sim, 0.02, 0.5), answer_query, q);
	*out = q;
	return 0;
}

void simulate_stop_query_end(struct stop_query *q)
{
	q->stopped = true;
}

/* --- The ends of nodes ----------------------------------------------------------------------- */

static void count_as_down(void *arg)
{
	struct machine *m = arg;
	m->down = m->lost;
	simulate_launches_look(simulate_current());
}

/* It boots, without any process. */
static void come_back(struct machine *m)
{
	if (!m->lost || m->left)
		return;
	m->lost = m->down = false;
	m->boots++;
	simulate_note(simulate_current(), "node %s is back", m->name);
	simulate_launches_look(simulate_current());
}

static void on_return(void *arg)
{
	come_back(arg);
}

void simulate_node_lose(struct simulation *sim, int node, double seconds)
{
	struct machine *m = &sim->machines[node];
	m->lost = true;
	m->cut = false;
	for (struct process *p = sim->processes; p; p = p->next)
		if (p->node == node)
			simulate_process_vanish(p);
	simulate_later(sim, draw(sim, 5, 300), count_as_down, m);
	simulate_later(sim, seconds, on_return, m);
}

/* A signal that could not reach a process does so now. */
static void heal(void *arg)
{
	struct machine *m = arg;
	struct simulation *sim = simulate_current();
	if (!m->cut)
		return;
	m->cut = false;
	simulate_note(sim, "node %s is reached again", m->name);
	for (struct process *p = sim->processes; p; p = p->next)
		if (&sim->machines[p->node] == m && simulate_process_lives(p)) {
			simulate_link_pump(p);
			if (p->condemned)
				simulate_process_kill(p);
		}
	simulate_crews_go_on(sim);
	simulate_launches_look(sim);
}

void simulate_node_cut(struct simulation *sim, int node, double seconds)
{
	sim->machines[node].cut = true;
	sim->machines[node].cut_at = sim->queue.now;
	for (struct process *p = sim->processes; p; p = p->next)
		if (p->node == node && simulate_process_lives(p)) {
			simulate_link_watch(p);
			simulate_process_cut(p);
		}
	simulate_later(sim, seconds, heal, &sim->machines[node]);
}

static void find_another(void *arg)
{
	struct simulation *sim = arg;
	sim->free++;
}

void simulate_node_leave(struct simulation *sim, int node)
{
	sim->machines[node].left = true;
	simulate_node_lose(sim, node, 0);
	simulate_later(sim, draw(sim, 30, 300), find_another, sim);
}

static void end_drain(void *arg)
{
	struct machine *m = arg;
	m->drained = false;
}

void simulate_node_drain(struct simulation *sim, int node, double seconds)
{
	sim->machines[node].drained = true;
	simulate_later(sim, seconds, end_drain, &sim->machines[node]);
}

void simulate_nodes_return(struct simulation *sim)
{
	sim->free = 0;
	for (int i = 0; i < sim->setup->machines.n_nodes; i++) {
		sim->machines[i].left = sim->machines[i].drained = false;
		come_back(&sim->machines[i]);
		heal(&sim->machines[i]);
	}
}

void simulate_nodes_drop(const struct simulate_event *e)
{
	if (e->fire == answer_survey)
		free_survey(e->arg);
	else if (e->fire == answer_query)
		free(e->arg);
}
