#include "agent/engine/train/plant.h"
#include "agent/engine/train/trainer.h"
#include "base/clock.h"
#include "base/log.h"
#include "plan/spec/optimizers.h"

#include <stdlib.h>
#include <string.h>

/* Whether the next step changes what this step's passes have read, even if the update is skipped.
 * Then a diagnosis cannot compute the step again. */
static bool changes_inputs(const struct job *job)
{
	bool rounds = job->precision.stochastic_rounding && job->parallel.tp > 1,
	     rescales = job->precision.fp8 != FP8_OFF &&
			job->precision.fp8_scaling == FP8_SCALING_DELAYED;
	return rounds || rescales;
}

static bool possible(const struct trainer *t)
{
	return t->optim && !backend_on_host(pipeline_backend(t->engine)) &&
	       optimizer_of(t->job->optimizer.kind)->elementwise &&
	       (comm_size(t->env->world) == 1 || pipeline_device_world(t->engine)) &&
	       t->job->health.bad_numbers == BAD_NUMBERS_RETRY && !changes_inputs(t->job);
}

/* Tokens of this rank's batch. */
static size_t batch_tokens(const struct trainer *t)
{
	return (size_t)(t->env->view->sequences * t->env->view->shape.seq);
}

int trainer_late_open(struct trainer *t, struct err *e)
{
	if (!possible(t))
		return 0;
	t->late.tokens = calloc(3 * batch_tokens(t), sizeof *t->late.tokens);
	if (!t->late.tokens)
		return err_set(e, ERR_NOMEM,
			       "no memory for the tokens of a step; lower "
			       "batch.global");
	optim_queue_open(t->optim, &t->scaler, t->env->view->global_tokens,
			 pipeline_losses_count(t->engine), pipeline_numbers_read(t->engine));
	t->late.on = true;
	return 0;
}

void trainer_late_close(struct trainer *t)
{
	free(t->late.tokens);
}

static const int32_t *keep(struct trainer *t, const int32_t *tokens, int i)
{
	size_t n = batch_tokens(t);
	return tokens ? memcpy(t->late.tokens + (size_t)i * n, tokens, n * sizeof *tokens) : NULL;
}

int trainer_late_update(struct trainer *t, struct err *e)
{
	struct late *l = &t->late;
	int64_t step = t->at.step;
	trainer_phase(t, "optimizer");
	if (optim_queue_step(t->optim, pipeline_losses_there(t->engine), step, e))
		return err_prefix(e, "step %lld: update", (long long)step + 1);
	if (param_store_sync_params(pipeline_store(t->engine), step + 1, e))
		return err_prefix(e, "step %lld: parameters", (long long)step + 1);
	l->pending = true;
	l->step = step;
	l->samples = t->at.samples;
	l->plant = t->plant;
	l->batch = t->batch;
	l->batch.inputs = keep(t, t->batch.inputs, 0);
	l->batch.targets = keep(t, t->batch.targets, 1);
	l->batch.starts = keep(t, t->batch.starts, 2);
	return 0;
}

/* What changes from one step to the next. */
struct place {
	int64_t step, samples;
	struct engine_batch batch;
	enum train_plant plant;
};

static struct place place_of(const struct trainer *t)
{
	return (struct place){ t->at.step, t->at.samples, t->batch, t->plant };
}

static void set_place(struct trainer *t, const struct place *p)
{
	t->at.step = p->step;
	t->at.samples = p->samples;
	t->batch = p->batch;
	t->plant = p->plant;
}

/* The pending step, with the scale that its gradients had. */
static struct place place_of_pending(const struct trainer *t)
{
	struct place p = { t->late.step, t->late.samples, t->late.batch, t->late.plant };
	p.batch.loss_scale = t->scaler.scale;
	p.batch.scaled = false;
	return p;
}

/* Waits for the numbers and enters them into the report. The wait belongs to the pending step. */
static int read_numbers(struct trainer *t, struct step_report *r, bool inside, struct err *e)
{
	double since = clock_s();
	trainer_phase(t, "gradient norm");
	if (optim_queue_read(t->optim, &t->late.numbers, e))
		return err_prefix(e, "step %lld", (long long)t->late.step + 1);
	double waited = clock_s() - since;
	pipeline_loss_added(t->engine, &t->late.numbers, &r->loss);
	r->grad_norm = t->late.numbers.norm;
	r->loss_scale = t->scaler.scales ? t->scaler.scale : 0;
	r->compute_s += waited;
	r->step_s += waited;
	t->late.waited = inside ? waited : 0;
	if (!inside) {
		const struct step_report wait = { .step = r->step, .compute_s = waited };
		train_times_step(&t->times, &wait, clock_ns() / 1000);
	}
	return 0;
}

int trainer_late_settle(struct trainer *t, bool inside, struct err *e)
{
	struct late *l = &t->late;
	struct step_report r = l->report;
	l->waited = 0;
	if (!l->pending)
		return 0;
	l->pending = false;
	l->passed = inside;
	if (read_numbers(t, &r, inside, e))
		return -1;
	const struct place now = place_of(t), then = place_of_pending(t);
	set_place(t, &then);
	int good = trainer_judge(t, &r, e);
	if (good < 0)
		return -1;
	set_place(t, &now);
	if (l->numbers.skip != (good == 0))
		return err_set(
			e, ERR_INTERNAL,
			"step %lld: the device %s the update, and the host did not expect it",
			(long long)l->step + 1, l->numbers.skip ? "skipped" : "applied");
	r.skipped = good == 0;
	trainer_finish_step(t, &r);
	return 0;
}

bool trainer_late_compute_again(struct trainer *t)
{
	struct err failed = ERR_INIT;
	double loss;
	if (!t->late.on || !t->late.passed)
		return true;
	train_plant_again(t);
	if (pipeline_step(t->engine, &t->batch, &loss, &failed)) {
		log_warn("step %lld: it cannot be computed again: %s", (long long)t->at.step + 1,
			 failed.text);
		return false;
	}
	pipeline_loss_added(t->engine, &t->late.numbers, &loss);
	return true;
}
