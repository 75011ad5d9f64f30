/*
 * Compares the engine with a textbook implementation. The engine's loss is the loss of the float64
 * reference. Each parameter's gradient is the central finite difference of that reference. The loss
 * of an evaluation includes the tokens' loss only.
 */
#include "tests/golden/ref64.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 8 };

/* clang-format off */
static struct model_case {
	struct tiny model;
	const char *words[WORDS];
} cases[] = {
	{ { "gpt2, tied", FAMILY_GPT2, 2, 16, 4, 4, 4, 37, 29, 9, TIE_YES, 1, 2, 0.25 }, { 0 } },
	{ { "gpt2, own head, documents apart", FAMILY_GPT2, 1, 12, 2, 2, 6, 20, 23, 7, TIE_NO, 2, 4, 0.25 }, { "data.documents=mask" } },
	{ { "llama, grouped queries", FAMILY_LLAMA, 2, 16, 4, 2, 4, 22, 29, 9, TIE_NO, 1, 2, 0.25 }, { 0 } },
	{ { "llama, tied, wide heads", FAMILY_LLAMA, 1, 10, 3, 1, 6, 13, 31, 8, TIE_YES, 3, 3, 0.25 }, { "model.norm_eps=1e-3" } },
	{ { "llama, rope stretched linearly", FAMILY_LLAMA, 1, 12, 2, 2, 6, 13, 31, 8, TIE_NO, 1, 2, 0.25 },
	  { "model.rope_scaling=linear", "model.rope_factor=3" } },
	{ { "llama, rope stretched as llama3's", FAMILY_LLAMA, 1, 16, 2, 2, 8, 13, 31, 8, TIE_NO, 1, 2, 0.25 },
	  { "model.rope_scaling=llama3", "model.rope_factor=4", "model.rope_original=48", "model.rope_low=1.5", "model.rope_theta=100" } },
	{ { "qwen2", FAMILY_QWEN2, 2, 16, 4, 2, 4, 22, 29, 9, TIE_NO, 1, 2, 0.25 }, { 0 } },
	{ { "qwen3, heads wider than the model", FAMILY_QWEN3, 2, 16, 4, 2, 6, 22, 29, 9, TIE_NO, 1, 2, 0.25 }, { 0 } },
	{ { "qwen3, tied, heads narrower than the model", FAMILY_QWEN3, 1, 30, 3, 3, 6, 13, 31, 8, TIE_YES, 3, 3, 0.25 }, { 0 } },
	{ { "mixtral", FAMILY_MIXTRAL, 1, 12, 2, 1, 6, 14, 23, 9, TIE_NO, 1, 2, 0.25 }, { "model.aux_loss=0" } },
	{ { "mixtral, all of the router's losses", FAMILY_MIXTRAL, 2, 12, 2, 1, 6, 14, 23, 9, TIE_NO, 2, 2, 0.25 },
	  { "model.aux_loss=0.3", "model.z_loss=0.1" } },
	{ { "mixtral, softmax before the choice", FAMILY_MIXTRAL, 1, 12, 2, 2, 6, 14, 23, 9, TIE_NO, 1, 2, 0.25 },
	  { "model.router=before", "model.experts_per_token=3" } },
	{ { "mixtral, tokens dropped", FAMILY_MIXTRAL, 1, 12, 2, 2, 6, 14, 23, 9, TIE_NO, 2, 4, 0.25 },
	  { "model.capacity=1", "model.aux_loss=0.05" } },
};
/* clang-format on */
static const char *const backends[] = { "reference", "cpu" };

/* A float64 copy of the parameters, in the catalogue's flat order. */
struct copy {
	struct ref64 ref;
	struct ref64_tensor *tensors;
};

static struct ref64 ref_of(const struct job *job, const struct model_shape *s)
{
	static const enum ref64_rope ropes[] = { [ROPE_PLAIN] = REF64_PLAIN,
						 [ROPE_LINEAR] = REF64_LINEAR,
						 [ROPE_LLAMA3] = REF64_LLAMA3 };
	return (struct ref64){
		.layers = (int)s->layers,
		.hidden = (int)s->hidden,
		.heads = (int)s->heads,
		.kv_heads = (int)s->kv_heads,
		.head_dim = (int)s->head_dim,
		.ffn = (int)s->ffn,
		.vocab = (int)s->vocab,
		.seq = (int)s->seq,
		.llama = shape_families[s->family].rms,
		.qkv_bias = shape_families[s->family].qkv_bias,
		.qk_norm = shape_families[s->family].qk_norm,
		.tied = s->tied,
		.eps = s->norm_eps,
		.theta = s->rope_theta,
		.rope = ropes[s->rope_scaling],
		.rope_factor = s->rope_factor,
		.rope_low = s->rope_low,
		.rope_high = s->rope_high,
		.rope_original = (double)s->rope_original,
		.experts = (int)s->experts,
		.top = (int)s->top,
		.before = s->router == ROUTER_SOFTMAX_BEFORE,
		.aux = job->model.aux_loss,
		.z = job->model.z_loss,
		.capacity = job->model.capacity,
	};
}

static void copy_open(const struct trainee *t, const struct catalogue *c, const float *params,
		      struct copy *out)
{
	out->tensors = calloc((size_t)c->n, sizeof *out->tensors);
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		double *data = calloc((size_t)p->count, sizeof *data);
		for (int64_t j = 0; j < p->count; j++)
			data[j] = params[p->offset + j];
		out->tensors[i] = (struct ref64_tensor){ p->name, data };
	}
	out->ref = ref_of(&t->job, pipeline_shape(t->engine));
	out->ref.tensors = out->tensors;
	out->ref.n_tensors = c->n;
}

static void copy_close(struct copy *c)
{
	for (int i = 0; i < c->ref.n_tensors; i++)
		free(c->tensors[i].data);
	free(c->tensors);
}

static double loss_of(const struct copy *c, const struct trainee *t)
{
	return ref64_loss(&c->ref, t->inputs, t->targets, t->starts, (int)t->job.batch.global);
}

/* Computes d loss / d tensor by central differences, in the flat order. */
static void differences(struct copy *copy, const struct trainee *t, const struct catalogue *c,
			float *out)
{
	const double h = 1e-4;
	for (int i = 0; i < c->n; i++)
		for (int64_t j = 0; j < c->params[i].count; j++) {
			double *x = &copy->tensors[i].data[j], at = *x;
			*x = at + h;
			double up = loss_of(copy, t);
			*x = at - h;
			double down = loss_of(copy, t);
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

/* Returns the largest relative error over all tensors. Some gradients vanish: the key bias (a
 * softmax ignores a shift), and an expert that no token chose. The error of such a tensor is
 * relative to the size of the whole gradient. */
static double worst(const struct catalogue *c, const float *grads, const float *want,
		    const char **name)
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

/* The reference's results for the case. They are the same for every backend. */
struct truth {
	struct catalogue whole;
	float *grads;             /* NULL: not computed yet */
	double loss, tokens_loss; /* with and without the router's losses */
};

static void find_truth(const struct trainee *t, struct truth *truth, float *room)
{
	struct copy copy = { 0 };
	truth->grads = calloc((size_t)truth->whole.elements, sizeof *truth->grads);
	trainee_gather(t, &truth->whole, false, room, NULL);
	copy_open(t, &truth->whole, room, &copy);
	truth->loss = loss_of(&copy, t);
	differences(&copy, t, &truth->whole, truth->grads);
	copy.ref.aux = copy.ref.z = 0;
	truth->tokens_loss = loss_of(&copy, t);
	copy_close(&copy);
}

static int check_backend(struct trainee *t, const char *backend_name, struct truth *truth,
			 struct err *e)
{
	float *grads = calloc((size_t)truth->whole.elements, sizeof *grads);
	const struct engine_batch b = {
		.inputs = t->inputs, .targets = t->targets, .starts = t->starts, .loss_scale = 1
	};
	const char *name = "";
	double loss, eval, norm, before;
	trainee_read(t, 0);
	if (!truth->grads)
		find_truth(t, truth, grads);
	/* Two steps: the first one must leave nothing behind that changes the second. */
	int rc = pipeline_step(t->engine, &b, &loss, e) || pipeline_step(t->engine, &b, &loss, e) ||
				 optim_grad_norm(t->optim, t->world, 1, &before, e) ||
				 pipeline_eval(t->engine, &b, &eval, e) ||
				 optim_grad_norm(t->optim, t->world, 1, &norm, e)
			 ? -1
			 : 0;
	if (!rc) {
		trainee_gather(t, &truth->whole, true, grads, NULL);
		double error = worst(&truth->whole, grads, truth->grads, &name),
		       length_of = length(grads, NULL, truth->whole.elements);
		printf("  %s, %s: loss off by %.1e, gradients by %.1e (%s)\n", t->model->name,
		       backend_name, fabs(loss - truth->loss) / truth->loss, error, name);
		bool same = truth->loss == truth->tokens_loss
				    ? eval == loss
				    : fabs(eval - truth->tokens_loss) <= 1e-6 * eval;
		if (!(fabs(loss - truth->loss) <= 1e-6 * truth->loss && error <= 1e-5 && same))
			rc = err_set(e, ERR_NUMERIC,
				     "%s, %s: loss %.9g, expected %.9g, evaluated %.9g, expected "
				     "%.9g; gradient of %s is off by %.2e",
				     t->model->name, backend_name, loss, truth->loss, eval,
				     truth->tokens_loss, name, error);
		else if (!(fabs(norm - length_of) <= 1e-6 * norm && norm == before))
			rc = err_set(e, ERR_NUMERIC,
				     "%s, %s: gradient norm %.9g, of %.9g, or evaluation changed "
				     "it: %.9g",
				     t->model->name, backend_name, before, length_of, norm);
	}
	free(grads);
	return rc;
}

/* Runs one model on every backend. The differences are computed once. */
static int check_model(struct comm *world, void *arg, struct err *e)
{
	const struct model_case *c = arg;
	struct truth truth = { 0 };
	struct job job;
	int rc = trainee_job(&c->model, c->words, &job, e);
	for (size_t i = 0; i < sizeof backends / sizeof *backends && !rc; i++) {
		struct trainee t;
		rc = trainee_open(&c->model, &job, world, backends[i], 2, &t, e);
		if (!rc && !truth.whole.params)
			rc = trainee_whole(pipeline_shape(t.engine), &truth.whole, e);
		if (!rc)
			rc = check_backend(&t, backends[i], &truth, e);
		trainee_close(&t);
	}
	catalogue_free(&truth.whole);
	free(truth.grads);
	return rc;
}

static void gradients_are_the_differences(void **state)
{
	assert_int_equal(world_run(1, check_model, *state), 0);
}

int main(void)
{
	struct CMUnitTest tests[sizeof cases / sizeof *cases];
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		tests[i] = (struct CMUnitTest){ cases[i].model.name, gradients_are_the_differences,
						NULL, NULL, &cases[i] };
	return cmocka_run_group_tests_name("loss and gradients against float64", tests, NULL, NULL);
}
