/*
 * The engine against a textbook: its loss is the float64 reference's, and each
 * parameter's gradient is the central finite difference of that reference.
 */
#include "agent/pipeline/engine.h"
#include "tests/golden/ref64.h"
#include "tests/unit/agent/tiny.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct tiny models[] = {
	{ "gpt2, tied", FAMILY_GPT2, 2, 16, 4, 4, 4, 37, 29, 9, TIE_YES, 1, 2, 0.25 },
	{ "gpt2, own head", FAMILY_GPT2, 1, 12, 2, 2, 6, 20, 23, 7, TIE_NO, 2, 4, 0.25 },
	{ "llama, grouped queries", FAMILY_LLAMA, 2, 16, 4, 2, 4, 22, 29, 9, TIE_NO, 1, 2, 0.25 },
	{ "llama, tied, wide heads", FAMILY_LLAMA, 1, 10, 3, 1, 6, 13, 31, 8, TIE_YES, 3, 3, 0.25 },
};
static const char *const backends[] = { "plain", "cpu" };

/* The float64 copy of the engine's parameters. */
struct copy {
	struct ref64 ref;
	struct ref64_tensor *tensors;
};

static void copy_open(const struct tiny *t, const struct catalogue *c, const float *params, struct copy *out)
{
	out->tensors = calloc((size_t)c->n, sizeof *out->tensors);
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		double *data = calloc((size_t)p->count, sizeof *data);
		for (int64_t j = 0; j < p->count; j++)
			data[j] = params[p->offset + j];
		out->tensors[i] = (struct ref64_tensor){ p->name, data };
	}
	out->ref = (struct ref64){
		.layers = t->layers, .hidden = t->hidden, .heads = t->heads, .kv_heads = t->kv_heads, .head_dim = t->head_dim,
		.ffn = t->ffn, .vocab = t->vocab, .seq = t->seq, .llama = t->family == FAMILY_LLAMA, .tied = t->tie == TIE_YES,
		.eps = 1e-5, .theta = 10000, .tensors = out->tensors, .n_tensors = c->n,
	};
}

static void copy_close(struct copy *c)
{
	for (int i = 0; i < c->ref.n_tensors; i++)
		free(c->tensors[i].data);
	free(c->tensors);
}

struct batch {
	int32_t inputs[256], targets[256];
};

/* d loss / d tensor by central differences, into the flat layout of the engine. */
static void differences(struct copy *copy, const struct catalogue *c, const struct batch *b, int global, float *out)
{
	const double h = 1e-4;
	for (int i = 0; i < c->n; i++)
		for (int64_t j = 0; j < c->params[i].count; j++) {
			double *x = &copy->tensors[i].data[j], at = *x;
			*x = at + h;
			double up = ref64_loss(&copy->ref, b->inputs, b->targets, global, NULL);
			*x = at - h;
			double down = ref64_loss(&copy->ref, b->inputs, b->targets, global, NULL);
			*x = at;
			out[c->params[i].offset + j] = (float)((up - down) / (2 * h));
		}
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

/* The largest relative error over tensors. A tensor whose gradient vanishes (the key bias: a softmax does not see
 * a shift) is held against the whole gradient's size. */
static double worst(const struct catalogue *c, const float *grads, const float *want, const char **name)
{
	double all = length(want, NULL, c->elements), most = 0;
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		double scale = fmax(length(want + p->offset, NULL, p->count), 1e-3 * all);
		double error = length(grads + p->offset, want + p->offset, p->count) / scale;
		if (error >= most) {
			most = error;
			*name = p->name;
		}
	}
	return most;
}

static struct engine *engine_of(const struct job *job, const char *backend, struct comm *world)
{
	struct engine_options opt = { .job = job, .layout = { 1, 1, 1 }, .world = world, .backend = backend, .threads = 2 };
	struct err e = ERR_INIT;
	struct engine *g = NULL;
	if (engine_open(&opt, &g, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return NULL;
	}
	engine_init(g);
	tiny_shake(engine_catalogue(g), engine_params(g));
	return g;
}

/* One model under every backend; the differences are computed once. */
static int check_model(struct comm *world, void *arg, struct err *e)
{
	const struct tiny *t = arg;
	struct job job;
	struct batch b;
	struct copy copy = { 0 };
	float *want = NULL;
	double expected = 0;
	int rc = 0;

	tiny_job(t, &job);
	tiny_batch(t, 0, t->global, b.inputs, b.targets);
	for (size_t i = 0; i < sizeof backends / sizeof *backends && !rc; i++) {
		struct engine *g = engine_of(&job, backends[i], world);
		if (!g)
			return -1;
		const struct catalogue *c = engine_catalogue(g);
		double loss, eval;
		const char *name = "";
		if (!want) {
			copy_open(t, c, engine_params(g), &copy);
			want = calloc((size_t)c->elements, sizeof *want);
			expected = ref64_loss(&copy.ref, b.inputs, b.targets, t->global, NULL);
			differences(&copy, c, &b, t->global, want);
		}
		/* Twice: nothing may be left over from the step before. */
		rc = engine_step(g, b.inputs, b.targets, &loss, e) || engine_step(g, b.inputs, b.targets, &loss, e);
		float *grads = engine_grads(g);
		double error = rc ? 1 : worst(c, grads, want, &name);
		double before = length(grads, NULL, c->elements), norm = 0;
		if (!rc && (engine_eval(g, b.inputs, b.targets, &eval, e) || engine_grad_norm(g, &norm, e)))
			rc = -1;
		printf("  %s, %s: loss off by %.1e, gradients by %.1e (%s)\n", t->name, backends[i],
		       fabs(loss - expected) / expected, error, name);
		if (!rc && (fabs(loss - expected) > 1e-6 * expected || error > 1e-5 || eval != loss))
			rc = err_set(e, ERR_NUMERIC, "%s, %s: loss %.9g, evaluated %.9g, expected %.9g; gradient of %s is off by %.2e",
				     t->name, backends[i], loss, eval, expected, name, error);
		if (!rc && fabs(norm - before) > 1e-6 * before)
			rc = err_set(e, ERR_NUMERIC, "%s, %s: gradient norm %.9g, or evaluation changed it: %.9g",
				     t->name, backends[i], norm, before);
		engine_close(g);
	}
	copy_close(&copy);
	free(want);
	return rc;
}

static void gradients_are_the_differences(void **state)
{
	assert_int_equal(world_run(1, check_model, *state), 0);
}

int main(void)
{
	struct CMUnitTest tests[sizeof models / sizeof *models];
	for (size_t i = 0; i < sizeof models / sizeof *models; i++)
		tests[i] = (struct CMUnitTest){ models[i].name, gradients_are_the_differences, NULL, NULL, (void *)&models[i] };
	return cmocka_run_group_tests_name("loss and gradients against float64", tests, NULL, NULL);
}
