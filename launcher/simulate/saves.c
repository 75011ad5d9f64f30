/* saves: the checkpoints of the crews, in files and in memory. All ranks write, and world rank 0 says when they
 * count: not before the run folder has the metrics up to their step. */
#include "launcher/simulate/world.h"

#include <signal.h>
#include <stdio.h>

static double draw(struct crew *c, double a, double b)
{
	return random_between(&c->sim->delays, a, b);
}

int64_t simulate_last_committed(const struct simulation *sim)
{
	return sim->n_committed ? sim->committed[sim->n_committed - 1] : 0;
}

static void report_commit(struct process *p, int64_t step, double seconds)
{
	char path[64];
	snprintf(path, sizeof path, "ckpt/step-%lld", (long long)step);
	simulate_link_send(p, MSG_CKPT,
			   msg_ckpt_json(&(struct msg_ckpt){ .step = step,
							     .path = path,
							     .bytes = 1 << 20,
							     .seconds = seconds,
							     .stall_s = 0.01 }));
}

static void add_committed(struct simulation *sim, int64_t step)
{
	int n = sim->n_committed;
	while (n > 0 && sim->committed[n - 1] >= step)
		n--;
	if (n < SIMULATE_COMMITTED)
		sim->committed[n++] = step;
	sim->n_committed = n;
}

/* The metrics up to this step are in the run folder. */
static bool are_recorded(const struct crew *c, int64_t step)
{
	return c->recorded >= step || c->sim->setup->bug == BUG_COMMITS_UNRECORDED;
}

/* As agent_control_await_contact(). */
static bool is_in_contact(const struct process *p)
{
	return p->sim->queue.now - p->heard <= p->silent_s / 3 ||
	       p->sim->setup->bug == BUG_COMMITS_UNHEARD;
}

static void commit(struct process *p);

/* Once at a time. */
static void commit_later(struct crew *c, double seconds)
{
	c->save.committing = true;
	simulate_process_later(c->members[0], seconds, commit);
}

static void commit(struct process *p)
{
	struct crew *c = p->crew;
	struct simulation *sim = p->sim;
	int64_t step = c->save.step;
	c->save.committing = false;
	if (step < 0 || !c->save.written || !are_recorded(c, step))
		return;
	if (!is_in_contact(p)) {
		commit_later(c, 0.2);
		return;
	}
	simulate_check_commit(sim, c);
	simulate_note(sim, "generation %u commits step %lld", c->generation, (long long)step);
	add_committed(sim, step);
	c->save.step = -1;
	if (sim->traps.ckpt_unseen) {
		sim->traps.ckpt_unseen = false;
		simulate_process_end(p, SIGKILL);
		return;
	}
	report_commit(p, step, sim->queue.now - c->save.since);
	if (c->ending && c->step > step)
		simulate_save_begin(c);
	else if (c->ending && !c->broken)
		simulate_crew_finish(c);
}

/* World rank 0 commits once all have written, and the run folder has the series. */
static void try_commit(struct crew *c)
{
	if (c->save.step >= 0 && c->save.written && are_recorded(c, c->save.step) &&
	    c->members[0] && !c->save.committing)
		commit_later(c, draw(c, 0.002, 0.05));
}

static void end_write(void *arg)
{
	struct crew *c = arg;
	struct simulation *sim = c->sim;
	if (c->broken || c->save.step < 0)
		return;
	if (sim->traps.ckpt_fails && c->members[0]) {
		sim->traps.ckpt_fails = false;
		c->save.step = -1;
		simulate_process_fail(c->members[0], ERR_FULL, "the disk is full");
		return;
	}
	c->save.written = true;
	try_commit(c);
}

static void ask_for_records(struct crew *c)
{
	struct process *p = simulate_crew_speaker(c);
	if (p)
		simulate_link_send(p, MSG_SERIES,
				   msg_series_json(&(struct msg_series){ .step = c->step }));
}

void simulate_save_begin(struct crew *c)
{
	struct simulation *sim = c->sim;
	double seconds = sim->traps.ckpt_slow ? draw(c, 15, 40) : draw(c, 0.1, 2);
	sim->traps.ckpt_slow = false;
	c->save.step = c->step;
	c->save.written = false;
	c->save.since = sim->queue.now;
	for (int r = 0; r < c->world; r++)
		if (c->members[r])
			simulate_process_send_times(c->members[r]);
	ask_for_records(c);
	simulate_later(sim, seconds, end_write, c);
}

/* Each rank's state, in its own memory and in that of the next one. */
static void seal_copies(struct crew *c)
{
	for (int r = 0; r < c->world; r++) {
		struct process *own = c->members[r], *other = c->members[(r + 1) % c->world];
		if (!own || !other)
			return;
	}
	for (int r = 0; r < c->world; r++) {
		c->members[r]->own = (struct copy){ c->copying, r, c->world };
		c->members[(r + 1) % c->world]->other = (struct copy){ c->copying, r, c->world };
	}
	c->copying = -1;
}

void simulate_copy_begin(struct crew *c)
{
	if (c->copying >= 0 || c->broken)
		return;
	c->copying = c->step;
	if (are_recorded(c, c->step))
		seal_copies(c);
	else
		ask_for_records(c);
}

void simulate_save_recorded(struct process *p, int64_t step)
{
	struct crew *c = p->crew;
	if (!c || p->rank)
		return;
	c->recorded = step > c->recorded ? step : c->recorded;
	try_commit(c);
	if (c->copying >= 0 && are_recorded(c, c->copying))
		seal_copies(c);
}
