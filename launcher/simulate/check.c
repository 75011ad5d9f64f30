#include "launcher/simulate/check.h"

#include "launcher/simulate/world.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Seconds without a fault after which the run trains or has ended: the longest way is a hang that takes its
 * time, then the patience for nodes, then back-offs and starts that time out. After which a loss or a stop has
 * had its consequence: a back-off of a minute; a checkpoint that hangs, and a process that cannot be killed
 * for two minutes each. */
static const double still_s = 2000, lost_s = 250, stopped_s = 400;

static int64_t get(const json_t *line, const char *key)
{
	return json_integer_value(json_object_get(line, key));
}

static double get_number(const json_t *line, const char *key)
{
	return json_number_value(json_object_get(line, key));
}

void simulate_check_supervisor(struct simulation *sim)
{
	struct check *k = &sim->check;
	k->moved = sim->queue.now;
	k->generation = 0;
	k->lost_at = k->stopped_at = 0;
	k->losses = k->faults = 0;
	k->finished = k->changes = k->told = k->ended = k->stopped = false;
}

/* --- What agents do ------------------------------------------------------------------------- */

void simulate_check_welcome(struct simulation *sim, const struct process *p, uint32_t generation,
			    const char *resume)
{
	bool fresh = p->state == PROCESS_GREETING;
	if (fresh ? generation != p->launched_for : generation <= p->generation)
		simulate_break(sim, "an agent of generation %u is welcome in generation %u",
			       fresh ? p->launched_for : p->generation, generation);
	if (strcmp(resume, "auto") && strcmp(resume, "none"))
		simulate_break(sim, "generation %u is to resume from %s", generation, resume);
	if (!strcmp(resume, "none") &&
	    (strcmp(sim->setup->job.checkpoint.resume, "none") || sim->check.told))
		simulate_break(sim, "generation %u begins again, although there is a checkpoint",
			       generation);
}

bool simulate_check_is_own(const json_t *failed)
{
	static const enum err_code theirs[] = { ERR_PEER, ERR_ABORTED, ERR_NET, ERR_TIMEOUT };
	const char *code = json_string_value(json_object_get(failed, "code"));
	bool own = code != NULL;
	for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
		own = own && strcmp(code, err_word(theirs[i]));
	return own;
}

void simulate_check_sent(const struct process *p, enum msg_type type)
{
	if (p->failed && (type == MSG_REGROUP || type == MSG_WELCOME))
		simulate_break(p->sim, "rank %d of generation %u has failed, and is to live on",
			       p->rank, p->generation);
}

/* No agent of an earlier generation may hold a device or files on a node on which one of this runs. */
static void check_hosts(struct simulation *sim, const struct crew *c)
{
	for (const struct process *p = sim->processes; p; p = p->next)
		for (int r = 0; r < c->world && simulate_process_lives(p); r++)
			if (c->members[r] && c->members[r]->node == p->node && p->welcomed &&
			    p->generation < c->generation)
				simulate_break(
					sim,
					"process %d of generation %u lives on %s, where rank %d of "
					"generation %u trains",
					p->pid, p->generation, sim->machines[p->node].name, r,
					c->generation);
}

/* An agent that is cut off leaves after SIMULATE_KEEPALIVE seconds, and the supervisor counts it as dead a few
 * seconds earlier. The training that it begins meanwhile, and the steps that it finishes, or until the signal that
 * waits for it arrives, do no harm: nobody gets them. */
static bool is_cut_off(const struct simulation *sim, const struct crew *c)
{
	for (int r = 0; r < c->world; r++)
		if (c->members[r] &&
		    (c->members[r]->condemned || sim->machines[c->members[r]->node].cut))
			return true;
	return false;
}

void simulate_check_start(struct simulation *sim, const struct crew *c)
{
	struct check *k = &sim->check;
	if (c->generation < k->trained && is_cut_off(sim, c)) {
		sim->result->late++;
		return;
	}
	if (c->generation <= k->trained)
		simulate_break(sim, "generation %u trains after generation %u", c->generation,
			       k->trained);
	if (k->distrust && c->from_memory)
		simulate_break(sim, "generation %u continues from memory after wrong numbers",
			       c->generation);
	k->trained = c->generation;
	k->distrust = false;
	check_hosts(sim, c);
	for (int64_t i = 1; i <= c->resume && i < CHECK_STEPS; i++)
		if (!k->seen[i])
			simulate_break(sim,
				       "generation %u continues from step %" PRId64
				       ", and metrics.jsonl lacks step %" PRId64,
				       c->generation, c->resume, i);
}

void simulate_check_step(struct simulation *sim, const struct crew *c)
{
	bool late = c->generation < sim->check.trained;
	sim->result->late += late;
	if (late && !is_cut_off(sim, c))
		simulate_break(sim, "generation %u finishes a step while generation %u trains",
			       c->generation, sim->check.trained);
	sim->result->steps++;
	if (c->step < CHECK_STEPS && sim->check.seen[c->step])
		sim->result->repeated++;
}

void simulate_check_commit(struct simulation *sim, const struct crew *c)
{
	if (c->generation < sim->check.trained)
		simulate_break(sim, "generation %u commits a checkpoint while generation %u trains",
			       c->generation, sim->check.trained);
}

/* --- What the run folder gets --------------------------------------------------------------- */

static const struct crew *find_crew(const struct simulation *sim, uint32_t generation)
{
	for (const struct crew *c = sim->crews; c; c = c->next)
		if (c->generation == generation)
			return c;
	return NULL;
}

static void check_metrics(struct simulation *sim, uint32_t generation, int64_t step)
{
	struct check *k = &sim->check;
	const struct crew *c = find_crew(sim, generation);
	if (generation < k->series || !c)
		simulate_break(sim, "metrics of generation %u after those of generation %u",
			       generation, k->series);
	int64_t before = generation == k->series ? k->last : c ? c->resume : 0;
	if (step != before + 1)
		simulate_break(sim,
			       "generation %u: metrics of step %" PRId64
			       " follow those of step %" PRId64,
			       generation, step, before);
	k->series = generation;
	k->last = step;
	k->moved = sim->queue.now;
	if (step < CHECK_STEPS)
		k->seen[step] = true;
}

/* The generation that ran is over, and says why. */
static void check_last(struct simulation *sim, uint32_t generation)
{
	struct check *k = &sim->check;
	bool lost = k->losses == 1 && k->faults == 1, left = k->finished && k->changes;
	if (k->generation && k->generation != generation && !lost && !left)
		simulate_break(
			sim,
			"generation %u follows generation %u, which has %d events rank-lost and "
			"%d events fault",
			generation, k->generation, k->losses, k->faults);
	k->generation = generation;
	k->losses = k->faults = 0;
	k->finished = k->changes = false;
	k->lost_at = 0;
	sim->result->generations++;
}

static void note_decision(struct simulation *sim, const json_t *line)
{
	static const char *const words[] = { "same",    "spare", "dp",      "replan",
					     "requeue", "wait",  "give up", "grow" };
	const char *how = json_string_value(json_object_get(line, "how"));
	sim->check.changes = true;
	if (how && (!strcmp(how, "wait") || !strcmp(how, "requeue")))
		sim->check.lost_at = 0;
	for (size_t i = 0; how && i < sizeof words / sizeof *words; i++)
		sim->result->decisions[i] += !strcmp(how, words[i]);
}

static bool tells_of_numbers(const json_t *line)
{
	const char *code = json_string_value(json_object_get(line, "code"));
	return code &&
	       (!strcmp(code, err_word(ERR_NUMERIC)) || !strcmp(code, err_word(ERR_REPLICAS)));
}

static void check_event(struct simulation *sim, const char *event, const json_t *line)
{
	struct check *k = &sim->check;
	uint32_t generation = (uint32_t)get(line, "generation");
	if (k->ended)
		simulate_break(sim, "event %s follows the last event of the run", event);
	k->losses += !strcmp(event, "rank-lost");
	k->distrust |= !strcmp(event, "rank-lost") && tells_of_numbers(line);
	k->faults += !strcmp(event, "fault");
	k->finished |= !strcmp(event, "finished");
	k->told |= !strcmp(event, "ckpt");
	k->stopped |= !strcmp(event, "stop");
	k->ended = !strcmp(event, "done") || !strcmp(event, "stopped") ||
		   !strcmp(event, "failed") || !strcmp(event, "gave-up");
	snprintf(k->last_event, sizeof k->last_event, "%s", event);
	if (!strcmp(event, "rank-lost"))
		k->lost_at = sim->queue.now;
	if (!strcmp(event, "stop") && k->stopped_at <= 0)
		k->stopped_at = sim->queue.now;
	if (k->losses > 1 || k->faults > 1)
		simulate_break(sim, "generation %u: a second event %s", generation, event);
	if (!strcmp(event, "generation-start"))
		check_last(sim, generation);
	else if (!strcmp(event, "decision"))
		note_decision(sim, line);
	else if (!strcmp(event, "regrouped") && get(line, "kept") > 0)
		sim->result->regrouped++;
}

static void check_account(struct simulation *sim, const json_t *line)
{
	double total = get_number(line, "total_s"),
	       owed = get_number(line, "wall_s") * (double)get(line, "devices");
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)line, key,
			    value) if (json_is_real(value) && json_real_value(value) < 0)
		simulate_break(sim, "time.jsonl: %s is below 0", key);
	if (fabs(total - owed) > 1e-3 + 1e-9 * owed)
		simulate_break(sim, "time.jsonl: the parts are %.6f s, and %.6f s have passed",
			       total, owed);
}

void simulate_check_line(struct simulation *sim, enum rundir_file file, const char *event,
			 const json_t *line)
{
	if (file == RUNDIR_METRICS)
		check_metrics(sim, (uint32_t)get(line, "generation"), get(line, "step"));
	else if (file == RUNDIR_EVENTS)
		check_event(sim, event, line);
	else if (file == RUNDIR_TIME)
		check_account(sim, line);
}

/* --- Ends ------------------------------------------------------------------------------------ */

void simulate_check_time(struct simulation *sim)
{
	const struct check *k = &sim->check;
	double now = sim->queue.now,
	       calm = fmax(sim->fault_at, fmax(sim->silent_until, sim->asleep));
	if (!sim->supervisor)
		return;
	if (now - fmax(k->moved, calm) > still_s)
		simulate_break(sim, "the run neither trains nor ends for %.0f s", still_s);
	if (k->lost_at > 0 && now - fmax(k->lost_at, calm) > lost_s)
		simulate_break(sim, "nothing has followed a loss for %.0f s", lost_s);
	if (k->stopped_at > 0 && now - fmax(k->stopped_at, calm) > stopped_s)
		simulate_break(sim, "the run has not stopped for %.0f s", stopped_s);
}

static void check_status(struct simulation *sim, int status)
{
	static const struct {
		int status;
		const char *event;
	} ends[] = { { STATUS_DONE, "done" },
		     { STATUS_STOPPED, "stopped" },
		     { STATUS_GAVE_UP, "gave-up" },
		     { STATUS_FAILED, "failed" },
		     { STATUS_CANNOT_START, "failed" } };
	const struct check *k = &sim->check;
	bool fits = false;
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		fits |= ends[i].status == status && !strcmp(ends[i].event, k->last_event);
	if (!fits)
		simulate_break(sim, "exit status %d, and the last event is %s", status,
			       k->last_event);
	if (status == STATUS_STOPPED && !k->stopped && !sim->requeued && !sim->stopping &&
	    sim->job_ends <= 0)
		simulate_break(sim, "the run stopped, and nobody has asked for it");
	int64_t steps = sim->setup->job.job.steps;
	if (status == STATUS_DONE && simulate_last_committed(sim) != steps)
		simulate_break(sim, "the run is done, and the last checkpoint is of step %" PRId64,
			       simulate_last_committed(sim));
	for (int64_t i = 1; status == STATUS_DONE && i <= steps; i++)
		if (!k->seen[i])
			simulate_break(sim, "the run is done without step %" PRId64, i);
}

void simulate_check_end(struct simulation *sim, int status)
{
	check_status(sim, status);
	for (const struct process *p = sim->processes; p; p = p->next)
		if (simulate_process_lives(p) && p->launch->watched)
			simulate_break(sim, "the run has ended, and process %d is watched", p->pid);
	for (const struct process *p = sim->processes; p; p = p->next)
		if (simulate_process_lives(p) && simulate_node_reached(sim, p->node) &&
		    !p->condemned && !p->launch->orphaned)
			simulate_break(sim,
				       "the run has ended, and process %d of generation %u lives",
				       p->pid, p->generation);
}

void simulate_check_over(struct simulation *sim)
{
	for (const struct process *p = sim->processes; p; p = p->next)
		if (simulate_process_lives(p))
			simulate_break(sim, "process %d of generation %u outlives the run", p->pid,
				       p->generation);
}
