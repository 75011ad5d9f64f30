/* crew: the ranks of one generation. They finish each step together, or not at all. */
#include "launcher/simulate/world.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static void take_step(void *arg);

static double draw(struct crew *c, double a, double b)
{
	return random_between(&c->sim->delays, a, b);
}

struct process *simulate_crew_speaker(const struct crew *c)
{
	return c->members[c->world - 1];
}

/* --- The ranks meet ------------------------------------------------------------------------- */

static struct crew *find_crew(struct simulation *sim, const struct process *p)
{
	for (struct crew *c = sim->crews; c; c = c->next)
		if (c->generation == p->generation)
			return c;
	struct crew *c = calloc(1, sizeof *c);
	if (!c || !(c->members = calloc((size_t)p->world, sizeof(struct process *)))) {
		free(c);
		sim->queue.failed = true;
		return NULL;
	}
	c->sim = sim;
	c->generation = p->generation;
	c->world = p->world;
	c->save.step = c->recorded = c->copying = -1;
	c->next = sim->crews;
	sim->crews = c;
	return c;
}

static void lose_peer(struct process *p)
{
	if (p->hung) { /* it is not where it would notice */
		simulate_process_later(p, 1, lose_peer);
		return;
	}
	simulate_process_fail(p, ERR_PEER, "another rank has closed its connection");
}

void simulate_crew_join(struct process *p)
{
	struct crew *c = find_crew(p->sim, p);
	if (!c)
		return;
	if (c->world != p->world || c->members[p->rank]) {
		simulate_break(p->sim, "two agents are rank %d of generation %u", p->rank,
			       p->generation);
		return;
	}
	p->crew = c;
	c->members[p->rank] = p;
	c->joined++;
	if (c->broken)
		simulate_process_later(p, draw(c, 0.05, 1), lose_peer);
}

static void load(struct process *p)
{
	p->state = PROCESS_LOADING;
	if (!p->copies) /* they are not trusted any more: it forgets them */
		p->own.step = p->other.step = -1;
	simulate_process_later(p, draw(p->crew, 0.05, 1.5), simulate_crew_loaded);
}

/* Without PMIx each rank goes on for itself, once it has everything. */
void simulate_crew_wired(struct process *p)
{
	struct crew *c = p->crew;
	if (!c)
		return;
	if (!p->by_pmix) {
		load(p);
	} else if (++c->wired == c->world) {
		for (int r = 0; r < c->world; r++)
			if (c->members[r])
				load(c->members[r]);
	}
}

/* --- Where it continues --------------------------------------------------------------------- */

static bool has_copy(const struct crew *c, int rank, int64_t step)
{
	for (int r = 0; r < c->world; r++) {
		const struct process *p = c->members[r];
		if (!p || !p->copies)
			continue;
		if ((p->own.step == step && p->own.rank == rank && p->own.world == c->world) ||
		    (p->other.step == step && p->other.rank == rank && p->other.world == c->world))
			return true;
	}
	return false;
}

/* The last step that all ranks' states can be found for in memory; -1: none. */
static int64_t find_copies(const struct crew *c)
{
	int64_t best = -1;
	for (int r = 0; r < c->world; r++) {
		const struct process *p = c->members[r];
		bool all = p && p->own.step > best;
		for (int k = 0; all && k < c->world; k++)
			all = has_copy(c, k, p->own.step);
		best = all ? p->own.step : best;
	}
	return best;
}

static void choose_resume(struct crew *c)
{
	const struct process *first = c->members[0];
	int64_t saved = simulate_last_committed(c->sim), copied = find_copies(c);
	c->resumed = true;
	c->from_memory = copied > saved;
	c->resume = c->step = c->from_memory ? copied : first && first->resumes ? saved : 0;
	simulate_note(c->sim, "generation %u continues from step %lld%s", c->generation,
		      (long long)c->resume, c->from_memory ? " in memory" : "");
}

void simulate_crew_finish(struct crew *c)
{
	for (int r = 0; r < c->world; r++)
		if (c->members[r])
			simulate_process_finish(c->members[r]);
}

/* --- Steps ---------------------------------------------------------------------------------- */

static bool all_work(const struct crew *c)
{
	for (int r = 0; r < c->world; r++)
		if (!c->members[r] || !simulate_process_works(c->members[r]))
			return false;
	return true;
}

static bool is_asked_to_stop(const struct crew *c)
{
	for (int r = 0; r < c->world; r++)
		if (c->members[r] && c->members[r]->stop)
			return true;
	return false;
}

/* All wait for the slowest one. */
static double step_seconds(const struct crew *c)
{
	double slow = 1;
	for (int r = 0; r < c->world; r++)
		if (c->members[r] && c->members[r]->slow > slow)
			slow = c->members[r]->slow;
	return slow * c->sim->setup->step_s;
}

static void send_metrics(struct crew *c)
{
	double s = step_seconds(c);
	simulate_link_send(
		simulate_crew_speaker(c), MSG_METRICS,
		msg_metrics_json(&(struct msg_metrics){ .step = c->step,
							.samples = c->step * 32,
							.tokens = 1024,
							.peak_bytes = 1 << 20,
							.loss = 10.0 / (1 + sqrt((double)c->step)),
							.grad_norm = 1,
							.lr = 1e-3,
							.step_s = s,
							.compute_s = 0.9 * s,
							.dp_s = 0.1 * s }));
}

/* Every rank reports the bad numbers, and fails. */
static void meet_bad_step(struct crew *c)
{
	const struct msg_bad_step bad = { .step = c->step + 1,
					  .what = "loss",
					  .value = NAN,
					  .usual = 1,
					  .first = c->step * 32,
					  .count = 32 };
	c->sim->traps.bad_step = false;
	for (int r = 0; r < c->world; r++)
		if (c->members[r]) {
			struct process *p = c->members[r];
			simulate_link_send(p, MSG_BAD_STEP, msg_bad_step_json(&bad));
			simulate_process_fail(p, ERR_NUMERIC, "the loss is not a number");
		}
}

static void finish_step(struct crew *c)
{
	const struct simulation *sim = c->sim;
	double s = step_seconds(c);
	c->step++;
	for (int r = 0; r < c->world; r++) {
		struct process *p = c->members[r];
		p->step = c->step;
		p->count++;
		p->worked += s;
		p->computed += 0.9 * sim->setup->step_s * p->slow;
	}
	simulate_check_step(c->sim, c);
	send_metrics(c);
	if (sim->setup->job.restart.warm && sim->setup->job.checkpoint.memory_every > 0 &&
	    c->step % sim->setup->job.checkpoint.memory_every == 0)
		simulate_copy_begin(c);
}

/* After a step, and before the first one: a checkpoint, the end, or the next step. */
static void go_on(struct crew *c)
{
	const struct job *job = &c->sim->setup->job;
	bool last = c->step >= job->job.steps || is_asked_to_stop(c);
	bool due = c->step > c->resume && job->checkpoint.every > 0 &&
		   c->step % job->checkpoint.every == 0;
	bool saved = c->step == simulate_last_committed(c->sim);
	c->ending = last;
	if (last && saved && c->save.step < 0)
		simulate_crew_finish(c);
	else if ((last || due) && !saved && c->save.step < 0)
		simulate_save_begin(c);
	if (!last)
		simulate_later(c->sim, step_seconds(c) * draw(c, 0.95, 1.05), take_step, c);
}

static void take_step(void *arg)
{
	struct crew *c = arg;
	if (c->broken || c->ending)
		return;
	c->waiting = !all_work(c);
	if (c->waiting)
		return;
	if (c->sim->traps.bad_step) {
		meet_bad_step(c);
		return;
	}
	finish_step(c);
	go_on(c);
}

void simulate_crew_loaded(struct process *p)
{
	struct crew *c = p->crew;
	json_t *phases = json_object();
	if (!c->resumed)
		choose_resume(c);
	p->step = p->resumed = c->resume;
	p->state = PROCESS_TRAINING;
	p->ready_at = p->sim->queue.now;
	p->worked = 0;
	simulate_link_send(
		p, MSG_READY,
		msg_ready_json(&(struct msg_ready){ .step = c->resume,
						    .samples = c->resume * 32,
						    .has_from = c->resume > 0,
						    .from = c->from_memory ? "memory" : "ckpt",
						    .phases = phases }));
	json_decref(phases);
	if (++c->ready < c->world || c->broken)
		return;
	c->started = true;
	simulate_check_start(c->sim, c);
	go_on(c);
}

void simulate_crews_go_on(struct simulation *sim)
{
	for (struct crew *c = sim->crews; c; c = c->next)
		if (c->waiting && !c->broken) {
			c->waiting = false;
			simulate_later(sim, 0.01, take_step, c);
		}
}

/* --- A rank leaves -------------------------------------------------------------------------- */

/* The kernel of a rank that is gone closes its connections to the others; that of a node without power
 * does not. */
void simulate_crew_leave(struct process *p, bool silently)
{
	struct crew *c = p->crew;
	if (!c)
		return;
	p->crew = NULL;
	c->members[p->rank] = NULL;
	if (p->state == PROCESS_FINISHED)
		return;
	c->broken = true;
	for (int r = 0; r < c->world; r++)
		if (c->members[r] && c->members[r]->state != PROCESS_FINISHED)
			simulate_process_later(c->members[r],
					       silently ? draw(c, 15, 60) : draw(c, 0.005, 0.5),
					       lose_peer);
}

void simulate_crews_free(struct simulation *sim)
{
	for (struct crew *c = sim->crews, *next; c; c = next) {
		next = c->next;
		free(c->members);
		free(c);
	}
	sim->crews = NULL;
}
