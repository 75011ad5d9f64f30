/* The copies in memory that a run takes while it trains (agent/engine/ckpt/memory/mirror.h). */
#include "agent/engine/train/trainer.h"

#include "agent/engine/ckpt/load/agree.h"
#include "base/clock.h"
#include "base/human.h"
#include "base/log.h"
#include "base/meminfo.h"

#include <math.h>

/* With memory_every = -1: the share of the time that copies may take, the first steps that are not
 * measured because they are slower than others, the steps that are measured before the first copy, and
 * the share of the free memory that copies may take. */
static const double time_share = 0.01, memory_share = 0.5;
enum { STEPS_SLOW = 1, STEPS_BEFORE = 4 };

static bool is_wanted(const struct trainer *t)
{
	return t->env->memory && t->job->checkpoint.memory_every && comm_size(t->env->world) > 1;
}

static bool by_itself(const struct trainer *t)
{
	return t->job->checkpoint.memory_every < 0;
}

/* Without a fixed interval copies are made only where they leave room: all ranks of a node must find
 * it. */
static int agree_on_room(struct trainer *t, bool *room, struct err *e)
{
	struct err mine = ERR_INIT;
	double bytes = 0, free = meminfo_read("MemAvailable");
	int64_t most;
	int culprit, rc = train_state_bytes(&t->state, &bytes, &mine);
	most = (int64_t)bytes;
	if (ckpt_agree_most(t->env->world, rc, &mine, &most, &culprit, e))
		return -1;
	double need = ckpt_mirror_memory((double)most, t->job->checkpoint.copies);
	int64_t lacks = by_itself(t) && need * t->env->node_ranks > memory_share * free;
	if (ckpt_agree_most(t->env->world, 0, &mine, &lacks, &culprit, e))
		return -1;
	*room = !lacks;
	if (lacks && comm_rank(t->env->world) == 0) {
		char size[HUMAN];
		log_info("no copies in memory: they need %s for each rank, and the nodes have "
			 "too little; checkpoint.memory_every = N forces them",
			 human_bytes(need, size));
	}
	return 0;
}

/* As for a checkpoint, a run must not continue from a step that its series or its ledger lacks. */
static int await_records(void *arg, int64_t step, struct err *e)
{
	const struct trainer *t = arg;
	return train_samples_sync(t->samples, e) || t->gate.pass(t->gate.arg, step, e) ? -1 : 0;
}

int trainer_memory_open(struct trainer *t, struct err *e)
{
	const struct train_env *env = t->env;
	bool room;
	if (!is_wanted(t))
		return 0;
	if (agree_on_room(t, &room, e))
		return -1;
	const struct ckpt_mirror_options opt = {
		.store = env->memory,
		.place = { .node = env->node, .leaf = env->leaf },
		.peers = t->job->checkpoint.copies > 0,
		.generation = env->generation,
		.model = t->model,
		.layout = t->layout,
		.watch = &t->watch,
		.gate = &t->copy_gate,
	};
	t->copy_gate = (struct ckpt_gate){ await_records, t };
	t->copied = t->continued = t->at.step;
	t->pace_skips = STEPS_SLOW;
	if (room && ckpt_mirror_open(env->world, &opt, &t->mirror, e))
		return -1;
	return 0;
}

int trainer_memory_renew(struct trainer *t, struct err *e)
{
	return t->mirror && t->from.tier == TRAIN_MEMORY && t->from.path[0]
		       ? trainer_memory_take(t, e)
		       : 0;
}

void trainer_memory_note(struct trainer *t, double seconds, bool copying)
{
	if (!t->mirror)
		return;
	copying |= ckpt_mirror_busy(t->mirror);
	if (t->pace_skips)
		t->pace_skips--;
	else
		train_copy_pace_step(&t->pace, seconds, copying);
}

bool trainer_memory_busy(const struct trainer *t)
{
	return t->mirror && ckpt_mirror_busy(t->mirror);
}

bool trainer_memory_due(const struct trainer *t)
{
	int64_t every = t->job->checkpoint.memory_every;
	return t->mirror && every > 0 && t->at.step % every == 0 && t->at.step > t->copied;
}

/* Steps from the last copy to the next one, equal on all ranks on which no copy is in progress. */
static int64_t interval(const struct trainer *t)
{
	const struct mirror_result *r = ckpt_mirror_result(t->mirror);
	return r->step < 0 || r->number < 1 ? STEPS_BEFORE : r->number;
}

bool trainer_memory_ready(const struct trainer *t)
{
	if (!t->mirror || !by_itself(t) || ckpt_mirror_busy(t->mirror))
		return false;
	return t->at.step >= t->copied + interval(t);
}

/* With memory_every = -1: logs how often copies are taken when that has changed. */
static void report_every(struct trainer *t)
{
	if (comm_rank(t->env->world) || ckpt_mirror_result(t->mirror)->step < 0)
		return;
	int64_t every = interval(t);
	bool changed = every > 2 * t->copy_every || 2 * every < t->copy_every;
	log_line(changed ? LOG_INFO : LOG_DEBUG, "copies in memory: one in %lld step%s",
		 (long long)every, human_s(every));
	if (changed)
		t->copy_every = every;
}

/* Seconds between two faults of the nodes that the run has. */
static double mtbf(const struct trainer *t)
{
	double nodes = ceil((double)comm_size(t->env->world) / fmax(t->env->node_ranks, 1)),
	       hours = t->job->restart.node_mtbf;
	return hours > 0 ? 3600 * hours / nodes : INFINITY;
}

/* Steps to the next copy, as this rank measures it. */
static int64_t choose_interval(const struct trainer *t)
{
	int64_t least = train_copy_pace_every(&t->pace, time_share),
		worth = train_copy_pace_worth(&t->pace, mtbf(t), t->at.step - t->continued);
	return least > worth ? least : worth;
}

int trainer_memory_take(struct trainer *t, struct err *e)
{
	double since = clock_s();
	trainer_phase(t, "copy in memory");
	if (train_samples_written(t->samples, e) || trainer_set_numbers(t, e))
		return -1;
	if (t->reports)
		t->hooks->series(t->hooks->arg, t->at.step);
	if (train_state_copy(t->mirror, &t->at, &t->state, e))
		return -1;
	if (by_itself(t)) /* no copy is in progress then */
		report_every(t);
	t->copied = t->at.step;
	train_copy_pace_take(&t->pace, clock_s() - since);
	ckpt_mirror_start(t->mirror, choose_interval(t));
	train_phases_lap(&t->spent, "memory copy", &since);
	return 0;
}
