#include "agent/engine/train/stepper.h"

#include "agent/engine/model/scales_fp8.h"
#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct stepper_hooks no_hooks;

void train_stepper_init(struct stepper *s, const struct job *job)
{
	bool spikes = job->health.bad_numbers != BAD_NUMBERS_RETRY;
	*s = (struct stepper){ .last = { .loss = NAN, .norm = NAN } };
	optim_scaler_init(&s->scaler, job);
	train_bad_init(&s->spikes, spikes ? job->health.spike_z : 0, job->health.spike_window);
}

static bool reads_late(const struct stepper_parts *p)
{
	if (p->reading != TRAIN_READS_AS_FITS)
		return p->reading == TRAIN_READS_LATE;
	return p->optim && !backend_on_host(pipeline_backend(p->engine)) &&
	       (comm_size(p->world) == 1 || pipeline_device_world(p->engine));
}

/* Tokens of this rank's batch. */
static size_t batch_tokens(const struct stepper *s)
{
	return (size_t)(s->of.view->sequences * s->of.view->shape.seq);
}

int train_stepper_begin(struct stepper *s, const struct stepper_parts *of, struct err *e)
{
	s->of = *of;
	if (!s->of.hooks)
		s->of.hooks = &no_hooks;
	s->late = reads_late(of);
	if (!s->late)
		return 0;
	s->tokens = calloc(3 * batch_tokens(s), sizeof *s->tokens);
	if (!s->tokens)
		return err_set(e, ERR_NOMEM,
			       "no memory for the tokens of a step; lower batch.global");
	s->read = pipeline_numbers_read(of->engine);
	if (!s->read)
		s->read = &s->read_here;
	optim_queue_open(of->optim, &s->scaler, of->view->global_tokens,
			 pipeline_losses_count(of->engine), s->read);
	return 0;
}

void train_stepper_fini(struct stepper *s)
{
	free(s->tokens);
}

static void phase(const struct stepper *s, const char *name)
{
	if (s->of.hooks->phase)
		s->of.hooks->phase(s->of.hooks->arg, name);
}

static int fail_in(int64_t step, const char *what, struct err *e)
{
	return err_prefix(e, "step %lld%s", (long long)step + 1, what);
}

/* --- Judging ------------------------------------------------------------------------------ */

/* What follows a step, and if its numbers are bad, why. */
struct verdict {
	enum { STEP_IS_GOOD, STEP_OVERFLOWS, STEP_IS_BAD } is;
	struct bad_number bad;
	char why[sizeof((struct err *)0)->text];
};

static void describe_spike(const struct stepper *s, struct verdict *v)
{
	snprintf(v->why, sizeof v->why,
		 "a spike: the %s is %.6g, and %.6g is usual (z = %.3g, above health.spike_z = "
		 "%g); nothing was updated",
		 v->bad.what, v->bad.value, v->bad.usual, v->bad.z, s->spikes.z);
}

/* A NaN has a sign, which would be printed. */
static double plain(double x)
{
	return isnan(x) ? (double)NAN : x;
}

/* The numbers are the same on every rank, so all ranks decide the same. */
static void judge(struct stepper *s, struct step_result *r, struct verdict *v)
{
	struct err overflow = ERR_INIT;
	r->loss = plain(r->loss);
	r->norm = plain(r->norm);
	bool finite = isfinite(r->loss) && isfinite(r->norm);
	int rc = optim_scaler_update(&s->scaler, finite, &overflow);
	v->is = STEP_OVERFLOWS;
	if (rc == 0)
		return;
	v->is = STEP_IS_BAD;
	if (!train_bad_judge(&s->spikes, r->loss, r->norm, &v->bad))
		v->is = STEP_IS_GOOD;
	else if (rc > 0)
		describe_spike(s, v);
	else
		snprintf(v->why, sizeof v->why, "loss %g, gradient norm %g: %.900s", r->loss,
			 r->norm, overflow.text);
}

static void log_overflow(const struct stepper *s, const struct step_result *r)
{
	log_line(
		comm_rank(s->of.world) ? LOG_DEBUG : LOG_INFO,
		"step %lld: gradients overflow at a loss scale of %g; nothing is updated, the next "
		"is %g",
		(long long)r->step + 1, r->loss_scale, s->scaler.scale);
}

/* Makes the step the last one whose numbers are known. */
static int conclude(struct stepper *s, const struct step_result *r, const struct verdict *v,
		    struct err *e)
{
	const struct stepper_hooks *h = s->of.hooks;
	s->last = *r;
	s->last.skipped = v->is == STEP_OVERFLOWS;
	if (v->is == STEP_IS_BAD) {
		err_set(e, ERR_NUMERIC, "step %lld: %s", (long long)r->step + 1, v->why);
		if (h->bad)
			h->bad(h->arg, r, &v->bad, e);
		return -1;
	}
	if (v->is == STEP_OVERFLOWS)
		log_overflow(s, r);
	else
		train_bad_note(&s->spikes, r->loss, r->norm);
	return 0;
}

/* --- At once ------------------------------------------------------------------------------ */

/* On a device the sum of the gradients' squares is queued before the wait for the loss; on the host
 * the optimizer computes it. */
static int read_loss(struct stepper *s, struct err *e)
{
	s->last = (struct step_result){ .step = s->now.step,
					.loss_scale = s->now.batch.loss_scale };
	if (s->of.optim && !backend_on_host(pipeline_backend(s->of.engine)))
		optim_grad_norm_start(s->of.optim);
	return pipeline_loss(s->of.engine, &s->last.loss, e);
}

static int apply(struct stepper *s, const struct step_result *r, struct err *e)
{
	phase(s, "optimizer");
	if (optim_step(s->of.optim, r->norm, r->loss_scale, r->step, e))
		return fail_in(r->step, ": update", e);
	if (param_store_sync_params(pipeline_store(s->of.engine), r->step + 1, e))
		return fail_in(r->step, ": parameters", e);
	return 0;
}

static int update_at_once(struct stepper *s, struct err *e)
{
	const struct stepper_hooks *h = s->of.hooks;
	struct step_result r = s->last;
	struct verdict v;
	if (h->exchange) {
		if (h->exchange(h->arg, &r, e))
			return fail_in(r.step, "", e);
	} else {
		phase(s, "gradient norm");
		if (optim_grad_norm(s->of.optim, s->of.world, r.loss_scale, &r.norm, e))
			return fail_in(r.step, ": gradient norm", e);
	}
	judge(s, &r, &v);
	s->batch = s->now.batch;
	if (conclude(s, &r, &v, e))
		return -1;
	return v.is == STEP_IS_GOOD && !h->exchange ? apply(s, &r, e) : 0;
}

/* --- Late --------------------------------------------------------------------------------- */

static const int32_t *keep(struct stepper *s, const int32_t *tokens, int i)
{
	size_t n = batch_tokens(s);
	return tokens ? memcpy(s->tokens + (size_t)i * n, tokens, n * sizeof *tokens) : NULL;
}

/* Waits for the numbers of the pending step. */
static int read_numbers(struct stepper *s, bool passed, struct step_result *r, struct err *e)
{
	double since = clock_s();
	phase(s, "gradient norm");
	if (optim_queue_read(s->of.optim, &s->numbers, e))
		return fail_in(s->before.step, "", e);
	*r = (struct step_result){ .step = s->before.step,
				   .norm = s->numbers.norm,
				   .loss_scale = s->scaler.scale,
				   .waited = clock_s() - since,
				   .passed = passed };
	pipeline_loss_added(s->of.engine, &s->numbers, &r->loss);
	return 0;
}

static int settle(struct stepper *s, bool passed, struct err *e)
{
	const struct stepper_hooks *h = s->of.hooks;
	struct step_result r;
	struct verdict v;
	if (!s->pending)
		return 0;
	s->pending = false;
	if (read_numbers(s, passed, &r, e))
		return -1;
	s->batch = s->before.batch;
	s->batch.loss_scale = r.loss_scale;
	judge(s, &r, &v);
	if ((s->numbers.skip != 0) != (v.is != STEP_IS_GOOD))
		return err_set(
			e, ERR_INTERNAL,
			"step %lld: the device %s the update, and the host did not expect it",
			(long long)r.step + 1, s->numbers.skip ? "skipped" : "applied");
	if (conclude(s, &r, &v, e))
		return -1;
	if (h->known)
		h->known(h->arg, &s->last);
	return 0;
}

static int queue_update(struct stepper *s, struct err *e)
{
	const struct optim_limits limits = { s->spikes.loss_limit, s->spikes.norm_limit };
	int64_t step = s->now.step;
	phase(s, "optimizer");
	if (optim_queue_step(s->of.optim, pipeline_losses_there(s->of.engine), &limits, step, e))
		return fail_in(step, ": update", e);
	if (param_store_sync_params(pipeline_store(s->of.engine), step + 1, e))
		return fail_in(step, ": parameters", e);
	s->before = s->now;
	s->before.batch.scaled = false;
	s->before.batch.inputs = keep(s, s->now.batch.inputs, 0);
	s->before.batch.targets = keep(s, s->now.batch.targets, 1);
	s->before.batch.starts = keep(s, s->now.batch.starts, 2);
	s->pending = true;
	return 0;
}

int train_stepper_settle(struct stepper *s, struct err *e)
{
	return settle(s, false, e);
}

int train_stepper_again(struct stepper *s, struct err *e)
{
	struct model_scales *scales = model_scales_of(pipeline_model(s->of.engine));
	double loss;
	if (!s->late || !s->last.passed)
		return 0;
	if (scales)
		model_scales_back(scales);
	if (pipeline_step(s->of.engine, &s->batch, &loss, e))
		return -1;
	pipeline_loss_added(s->of.engine, &s->numbers, &loss);
	return 0;
}

/* --- A step ------------------------------------------------------------------------------- */

int train_stepper_passes(struct stepper *s, const struct engine_batch *b, int64_t step,
			 struct err *e)
{
	const struct stepper_hooks *h = s->of.hooks;
	s->now = (struct stepper_batch){ step, *b };
	s->now.batch.loss_scale = s->scaler.scale;
	s->now.batch.scaled = s->late;
	if (pipeline_passes(s->of.engine, &s->now.batch, e) ||
	    (h->queued && h->queued(h->arg, e)) || (!s->late && read_loss(s, e)))
		return fail_in(step, "", e);
	return settle(s, true, e);
}

int train_stepper_update(struct stepper *s, struct err *e)
{
	return s->late ? queue_update(s, e) : update_at_once(s, e);
}

int train_stepper_run(struct stepper *s, const struct engine_batch *b, int64_t step, struct err *e)
{
	return train_stepper_passes(s, b, step, e) || train_stepper_update(s, e) ? -1 : 0;
}
