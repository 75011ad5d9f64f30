#include "agent/engine/train/trainer.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <unistd.h>

/* Seconds for which the last checkpoint is retried on a full disk, and the longest pause between
 * two attempts. */
enum { ROOM_S = 60, PAUSE_MOST_S = 5 };

int trainer_set_numbers(struct trainer *t, struct err *e)
{
	int64_t skipped = train_samples_skipped(t->samples, t->at.step);
	if (skipped && ckpt_number_set(&t->at, "skipped", (double)skipped, e))
		return -1;
	if (isfinite(t->loss) && ckpt_number_set(&t->at, "loss", t->loss, e))
		return -1;
	const struct scaler *scaler = &t->stepper.scaler;
	if (scaler->dynamic &&
	    (ckpt_number_set(&t->at, "loss_scale", scaler->scale, e) ||
	     ckpt_number_set(&t->at, "loss_scale_good", (double)scaler->good, e)))
		return -1;
	return t->env->view->shape.experts
		       ? ckpt_number_set(&t->at, "aux_loss", t->job->model.aux_loss, e)
		       : 0;
}

static int start_save(struct trainer *t, unsigned where, struct err *e)
{
	if (trainer_set_numbers(t, e))
		return -1;
	return train_state_save(t->writer, where, &t->at, &t->state, e);
}

/* No further collective can succeed. */
static bool world_is_lost(enum err_code code)
{
	return code == ERR_ABORTED || code == ERR_PEER || code == ERR_NET || code == ERR_TIMEOUT;
}

unsigned trainer_save_due(const struct trainer *t)
{
	const struct job *job = t->job;
	int64_t every = job->checkpoint.every;
	unsigned due = every > 0 && t->at.step % every == 0 ? CKPT_TO_DIR : 0;
	if (t->local.dir[0] && t->at.step % job->checkpoint.local_every == 0)
		due |= CKPT_TO_LOCAL;
	return due;
}

/* Whether a rank is still writing to the folder that all share. The ranks agree on it. */
static int agree_on_saving(struct trainer *t, bool *saving, struct err *e)
{
	int32_t busy = ckpt_saving(t->writer);
	if (comm_all_reduce(t->env->world, &busy, &busy, 1, COMM_I32, COMM_MAX, e))
		return err_prefix(e, "before a checkpoint on the nodes");
	*saving = busy;
	if (busy && !t->local_skipped && comm_rank(t->env->world) == 0)
		log_info("the checkpoint of step %lld on the nodes is left out, as others will be: "
			 "one is still being written to %s",
			 (long long)t->at.step, t->ckpt_dir);
	t->local_skipped |= busy;
	return 0;
}

/* A disk that was full during the previous checkpoint does not end the run. */
int trainer_save(struct trainer *t, unsigned where, struct err *e)
{
	double since = clock_s();
	bool saving = false;
	bool last = t->at.step >= t->job->job.steps; /* it may wait: no step follows */
	if (where == CKPT_TO_LOCAL && !last && agree_on_saving(t, &saving, e))
		return -1;
	if (saving)
		return 0;
	trainer_phase(t, "checkpoint");
	if (train_samples_durable(t->samples, e))
		return -1;
	if (t->reports)
		t->hooks->series(t->hooks->arg, t->at.step);
	int rc = start_save(t, where, e);
	if (rc && !world_is_lost(e->code)) {
		log_line(comm_rank(t->env->world) ? LOG_INFO : LOG_WARN, "%s; training continues",
			 e->text);
		rc = start_save(t, where, e);
	}
	if (rc) {
		ckpt_blame(t->writer, e);
		return -1;
	}
	if (where & CKPT_TO_DIR)
		t->saved = t->at.step;
	train_phases_lap(&t->spent, "checkpoint", &since);
	return 0;
}

int trainer_save_asked(struct trainer *t, int number, struct err *e)
{
	t->saved_for = number;
	if (comm_rank(t->env->world) == 0)
		t->asked = t->at.step;
	return t->saved == t->at.step ? 0 : trainer_save(t, CKPT_TO_DIR, e);
}

void trainer_report_commits(struct trainer *t)
{
	struct ckpt_report c;
	const char *failure = ckpt_failure(t->writer); /* before the commits are looked at */
	while (ckpt_committed(t->writer, &c)) {
		t->hooks->committed(t->hooks->arg, &c);
		if (c.note[0])
			log_warn("%s", c.note);
		if (!c.local && c.step >= t->asked)
			t->asked = -1;
	}
	if (failure && t->asked >= 0) {
		t->hooks->save_failed(t->hooks->arg, t->asked, failure);
		t->asked = -1;
	}
}

static int await_commit(struct trainer *t, struct err *e)
{
	trainer_phase(t, "commit");
	return ckpt_wait(t->writer, e);
}

/* Waits between two attempts at the last checkpoint; *more: whether another one follows. The ranks
 * agree on it, because their clocks differ. */
static int await_room(struct trainer *t, double pause, double left, bool *more, struct err *e)
{
	bool checkpoint = true;
	for (double until = clock_s() + pause; clock_s() < until;) {
		usleep(100000);
		t->hooks->moved(t->hooks->arg);
	}
	int32_t tired = left < pause ||
			(t->hooks->stopping(t->hooks->arg, &checkpoint) && !checkpoint);
	if (comm_all_reduce(t->env->world, &tired, &tired, 1, COMM_I32, COMM_MAX, e))
		return err_prefix(e, "waiting for room for a checkpoint");
	*more = !tired;
	return 0;
}

/* Without anybody at the folder's permissions or path. */
static bool may_pass(enum err_code code)
{
	return code == ERR_FULL || code == ERR_IO;
}

/* No step follows the last checkpoint, so if the disk is full, there is time to free space (or to
 * continue a stopped process) before all its steps are lost. Each rank sees the same failure
 * (ckpt.h), unless it has lost the world. */
static int commit_last(struct trainer *t, struct err *e)
{
	double begun = clock_s(), pause = 1;
	int rc = await_commit(t, e);
	if (rc && may_pass(e->code))
		log_line(comm_rank(t->env->world) ? LOG_INFO : LOG_WARN,
			 "%s; the last checkpoint is tried again for %d s", e->text, ROOM_S);
	for (bool more = true; rc && may_pass(e->code); pause = fmin(2 * pause, PAUSE_MOST_S)) {
		struct err why = ERR_INIT;
		if (await_room(t, pause, begun + ROOM_S - clock_s(), &more, &why)) {
			*e = why;
			return -1;
		}
		if (!more)
			return -1;
		rc = start_save(t, CKPT_TO_DIR, e) || await_commit(t, e) ? -1 : 0;
	}
	return rc;
}

int trainer_commit(struct trainer *t, bool last, struct err *e)
{
	int rc = last ? commit_last(t, e) : await_commit(t, e);
	if (rc)
		ckpt_blame(t->writer, e);
	return rc;
}
