/* Decides whether the numbers of a step are good, and fails a step whose numbers are not. */
#include "agent/engine/train/diagnose.h"
#include "agent/engine/train/trainer.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>

/* The step is bad on every rank: reports it and fails. why: what is wrong. A step that hardware
 * spoiled is not reported, because its samples are good. */
static int fail_bad_step(struct trainer *t, const struct step_report *r,
			 const struct bad_number *bad, const char *why, struct err *e)
{
	const struct train_blame *blame = t->env->blame;
	struct range span = train_samples_span(t->samples, t->at.step + 1,
					       t->job->health.skip_before);
	err_set(e, ERR_NUMERIC, "step %lld: %s", (long long)t->at.step + 1, why);
	if (trainer_late_compute_again(t))
		train_diagnose(t, r->loss, r->grad_norm, e);
	if (blame && blame->suspect)
		return -1;
	t->hooks->bad_step(t->hooks->arg, &(struct bad_step){ .step = t->at.step + 1,
							      .what = bad->what,
							      .value = bad->value,
							      .usual = bad->usual,
							      .first = span.first,
							      .count = span.end - span.first });
	return -1;
}

static int judge_spike(struct trainer *t, const struct step_report *r, struct err *e)
{
	struct bad_number bad;
	char why[200];
	if (!train_bad_judge(&t->numbers, r->loss, r->grad_norm, &bad)) {
		train_bad_note(&t->numbers, r->loss, r->grad_norm);
		return 1;
	}
	snprintf(why, sizeof why,
		 "a spike: the %s is %.6g, and %.6g is usual (z = %.3g, above health.spike_z = "
		 "%g); nothing was updated",
		 bad.what, bad.value, bad.usual, bad.z, t->job->health.spike_z);
	return fail_bad_step(t, r, &bad, why, e);
}

int trainer_judge(struct trainer *t, const struct step_report *r, struct err *e)
{
	struct err overflow = ERR_INIT;
	struct bad_number bad;
	char why[sizeof overflow.text];
	double scale = t->scaler.scale;
	bool finite = isfinite(r->loss) && isfinite(r->grad_norm);
	int rc = optim_scaler_update(&t->scaler, finite, &overflow);
	if (rc > 0)
		return judge_spike(t, r, e);
	if (rc < 0) {
		snprintf(why, sizeof why, "loss %g, gradient norm %g: %.900s", r->loss,
			 r->grad_norm, overflow.text);
		train_bad_judge(&t->numbers, r->loss, r->grad_norm, &bad);
		return fail_bad_step(t, r, &bad, why, e);
	}
	log_line(
		comm_rank(t->env->world) ? LOG_DEBUG : LOG_INFO,
		"step %lld: gradients overflow at a loss scale of %g; nothing is updated, the next "
		"is %g",
		(long long)t->at.step + 1, scale, t->scaler.scale);
	return 0;
}
