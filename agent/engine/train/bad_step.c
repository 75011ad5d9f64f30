/* What follows a step whose numbers are bad, on every rank: where they began is found, and the
 * supervisor is told. */
#include "agent/engine/train/diagnose.h"
#include "agent/engine/train/plant.h"
#include "agent/engine/train/trainer.h"
#include "base/log.h"

/* The run goes back to where it was before the step. */
static void go_back(struct trainer *t)
{
	if (!t->stepper.late)
		return;
	t->at.step = t->late.step;
	t->at.samples = t->late.samples;
	t->plant = t->late.plant;
}

/* false: the step cannot be computed again, and there is nothing to diagnose. */
static bool compute_again(struct trainer *t)
{
	struct err failed = ERR_INIT;
	train_plant_again(t);
	if (!train_stepper_again(&t->stepper, &failed))
		return true;
	log_warn("step %lld: it cannot be computed again: %s", (long long)t->at.step + 1,
		 failed.text);
	return false;
}

/* A step that hardware spoiled is not reported, because its samples are good. */
void trainer_bad_step(void *arg, const struct step_result *r, const struct bad_number *bad,
		      struct err *e)
{
	struct trainer *t = arg;
	const struct train_blame *blame = t->env->blame;
	go_back(t);
	struct range span = train_samples_span(t->samples, t->at.step + 1,
					       t->job->health.skip_before);
	if (compute_again(t))
		train_diagnose(t, r->loss, r->norm, e);
	if (blame && blame->suspect)
		return;
	t->hooks->bad_step(t->hooks->arg, &(struct bad_step){ .step = t->at.step + 1,
							      .what = bad->what,
							      .value = bad->value,
							      .usual = bad->usual,
							      .first = span.first,
							      .count = span.end - span.first });
}
