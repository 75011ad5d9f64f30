/*
 * The engine and the optimizer against PyTorch: logits, loss, every gradient, and ten
 * AdamW steps with decay groups, clipping, warm-up and cosine.
 */
#include "agent/model/stage.h"
#include "agent/optim/optim.h"
#include "agent/pipeline/rank.h"
#include "tests/unit/agent/golden.h"
#include "tests/unit/agent/tiny.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 10, BATCH = 4, SEQ = 12 };
static const double tolerance = 1e-5;

static const struct golden_case {
	const char *file, *backend;
	struct tiny model;
} cases[] = {
	{ "gpt2", "plain", { "gpt2, plain", FAMILY_GPT2, 2, 16, 4, 4, 4, 37, 29, SEQ, TIE_YES, 2, BATCH, 0 } },
	{ "gpt2", "cpu", { "gpt2, cpu", FAMILY_GPT2, 2, 16, 4, 4, 4, 37, 29, SEQ, TIE_YES, 2, BATCH, 0 } },
	{ "llama", "plain", { "llama, plain", FAMILY_LLAMA, 2, 16, 4, 2, 4, 22, 31, SEQ, TIE_NO, 2, BATCH, 0 } },
	{ "llama", "cpu", { "llama, cpu", FAMILY_LLAMA, 2, 16, 4, 2, 4, 22, 31, SEQ, TIE_NO, 2, BATCH, 0 } },
};

struct run {
	const struct golden_case *c;
	struct golden g;
	const int32_t *inputs, *targets; /* [STEPS, BATCH, SEQ] */
	const double *losses, *norms, *rates;
	struct job job;
	struct engine *engine;
	struct optim *optim;
};

static size_t bytes_of(const struct param *p)
{
	return (size_t)p->count * sizeof(float);
}

static int run_open(const struct golden_case *c, struct comm *world, int micro, struct run *r, struct err *e)
{
	char path[128];
	size_t tokens = STEPS * BATCH * SEQ * sizeof(int32_t), steps = STEPS * sizeof(double);
	struct engine_options opt = { .job = &r->job, .layout = { 1, 1, 1 }, .world = world, .backend = c->backend, .threads = 2 };

	*r = (struct run){ .c = c };
	snprintf(path, sizeof path, "tests/golden/%s.safetensors", c->file);
	golden_open(path, &r->g);
	r->inputs = golden_tensor(&r->g, "", "inputs", tokens);
	r->targets = golden_tensor(&r->g, "", "targets", tokens);
	r->losses = golden_tensor(&r->g, "", "losses", steps);
	r->norms = golden_tensor(&r->g, "", "norms", steps);
	r->rates = golden_tensor(&r->g, "", "rates", steps);
	tiny_job(&c->model, &r->job);
	r->job.batch.micro = micro;
	r->job.optimizer.decay_steps = 8; /* so that the last steps have the least rate */
	if (engine_open(&opt, &r->engine, e))
		return -1;
	const struct catalogue *k = engine_catalogue(r->engine);
	for (int i = 0; i < k->n; i++)
		memcpy(engine_params(r->engine) + k->params[i].offset,
		       golden_tensor(&r->g, "init.", k->params[i].name, bytes_of(&k->params[i])), bytes_of(&k->params[i]));
	return optim_open(engine_kern(r->engine), k, &r->job, &r->optim, e);
}

static void run_close(struct run *r)
{
	optim_close(r->optim);
	engine_close(r->engine);
	golden_close(&r->g);
}

static double length(const float *x, const float *minus, int64_t n)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++) {
		double d = (double)x[i] - (minus ? (double)minus[i] : 0.0);
		sum += d * d;
	}
	return sqrt(sum);
}

/* A key bias has no gradient but rounding (a softmax does not see a shift), which AdamW blows up to steps; nothing
 * else sees it. */
static bool undetermined(const struct param *p)
{
	return p->role == PARAM_K_B;
}

/* Tensors `flat` of the catalogue against those named prefix + name. */
static int compare(struct run *r, const char *prefix, const float *flat, struct err *e)
{
	const struct catalogue *k = engine_catalogue(r->engine);
	const struct param *at = &k->params[0];
	double most = 0;
	for (int i = 0; i < k->n; i++) {
		const struct param *p = &k->params[i];
		const float *want = golden_tensor(&r->g, prefix, p->name, bytes_of(p));
		if (undetermined(p))
			continue;
		double off = length(flat + p->offset, want, p->count) / length(want, NULL, p->count);
		if (!(off < most))
			most = off, at = p;
	}
	printf("  %s: %s off by %.1e (%s)\n", r->c->model.name, prefix, most, at->name);
	return most <= tolerance ? 0 : err_set(e, ERR_NUMERIC, "%s: %s%s is off by %.2e", r->c->model.name, prefix, at->name, most);
}

static int near(const char *what, int step, double got, double want, struct err *e)
{
	if (fabs(got - want) <= tolerance * fabs(want))
		return 0;
	return err_set(e, ERR_NUMERIC, "%s of step %d is %.9g, PyTorch's %.9g", what, step, got, want);
}

/* Evaluation leaves exp(logit - max) and max in the head's scratch. */
static int logits_of(struct comm *world, void *arg, struct err *e)
{
	struct run r;
	double loss;
	int rc = run_open(arg, world, BATCH, &r, e);
	if (!rc)
		rc = engine_eval(r.engine, r.inputs, r.targets, &loss, e);
	if (!rc) {
		const struct model *m = r.engine->model;
		int64_t vocab = r.c->model.vocab, n = BATCH * SEQ * vocab;
		const float *want = golden_tensor(&r.g, "", "logits", (size_t)n * sizeof(float));
		float got[n];
		for (int64_t i = 0; i < n; i++)
			got[i] = logf(m->scratch.logits[i]) + m->scratch.max[i / vocab];
		double off = length(got, want, n) / length(want, NULL, n);
		printf("  %s: logits off by %.1e\n", r.c->model.name, off);
		if (!(off <= tolerance))
			rc = err_set(e, ERR_NUMERIC, "%s: logits are off by %.2e", r.c->model.name, off);
	}
	run_close(&r);
	return rc;
}

static int gradients_of(struct comm *world, void *arg, struct err *e)
{
	struct run r;
	double loss;
	int rc = run_open(arg, world, 2, &r, e);
	if (!rc)
		rc = engine_step(r.engine, r.inputs, r.targets, &loss, e);
	if (!rc)
		rc = near("loss", 0, loss, r.losses[0], e) || compare(&r, "grad.", engine_grads(r.engine), e) ? -1 : 0;
	run_close(&r);
	return rc;
}

static int train(struct run *r, int step, struct err *e)
{
	int64_t at = (int64_t)step * BATCH * SEQ;
	double loss, norm;
	if (engine_step(r->engine, r->inputs + at, r->targets + at, &loss, e) || engine_grad_norm(r->engine, &norm, e))
		return -1;
	optim_step(r->optim, engine_params(r->engine), engine_grads(r->engine), norm, step);
	return near("loss", step, loss, r->losses[step], e) || near("norm", step, norm, r->norms[step], e) ||
	       near("rate", step, optim_lr(&r->job, step), r->rates[step], e) ? -1 : 0;
}

static int steps_of(struct comm *world, void *arg, struct err *e)
{
	struct run r;
	int rc = run_open(arg, world, 2, &r, e);
	for (int step = 0; step < STEPS && !rc; step++)
		rc = train(&r, step, e);
	if (!rc)
		rc = compare(&r, "final.", engine_params(r.engine), e);
	run_close(&r);
	return rc;
}

static void each(int (*fn)(struct comm *, void *, struct err *))
{
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(world_run(1, fn, (void *)&cases[i]), 0);
}

static void logits_are_pytorch_s(void **state)
{
	(void)state;
	each(logits_of);
}

static void loss_and_gradients_are_pytorch_s(void **state)
{
	(void)state;
	each(gradients_of);
}

static void ten_adamw_steps_are_pytorch_s(void **state)
{
	(void)state;
	each(steps_of);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logits_are_pytorch_s),
		cmocka_unit_test(loss_and_gradients_are_pytorch_s),
		cmocka_unit_test(ten_adamw_steps_are_pytorch_s),
	};
	return cmocka_run_group_tests_name("model and optimizer against PyTorch", tests, NULL, NULL);
}
