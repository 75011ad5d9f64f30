/*
 * Compares the engine and the optimizer with PyTorch and transformers: logits, loss, every
 * gradient, and 20 steps of AdamW with decay groups, clipping, warm-up and cosine. The
 * configuration, the weights, the gradients and the trained weights are read through agent/hf, as a
 * user's folder is.
 */
#include "agent/engine/hf/config.h"
#include "agent/engine/hf/weights.h"
#include "agent/engine/model/stage.h"
#include "agent/engine/optim/optim.h"
#include "agent/engine/pipeline/rank.h"
#include "base/file.h"
#include "tests/unit/agent/golden.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 20, BATCH = 4, SEQ = 12 };
static const double tolerance = 1e-5;

static const struct golden_case {
	const char *folder, *backend_name;
	int micro;
} cases[] = {
	{ "gpt2", "reference", 2 },         { "gpt2", "cpu", 2 },
	{ "llama", "reference", 2 },        { "llama", "cpu", 2 },
	{ "llama3", "reference", 2 },       { "llama3", "cpu", 2 },
	{ "linear", "reference", 2 },       { "linear", "cpu", 2 },
	{ "qwen2", "reference", 2 },        { "qwen2", "cpu", 2 },
	{ "qwen3", "reference", 2 },        { "qwen3", "cpu", 2 },
	{ "mixtral", "reference", 2 },      { "mixtral", "cpu", 2 },
	{ "mixtral-aux", "reference", 1 },  { "mixtral-aux", "cpu", BATCH },
	{ "mixtral-loss", "reference", 1 }, { "mixtral-loss", "cpu", BATCH },
};

struct run {
	const struct golden_case *c;
	struct golden g;
	struct comm *world;
	struct job job;
	struct rank_view view;
	struct engine *engine;
	struct optim *optim;
	float *values; /* [elements] of the catalogue: the folder that was read last */
};

static void path_of(const struct golden_case *c, const char *rest, char path[128])
{
	snprintf(path, 128, "tests/golden/%s%s", c->folder, rest);
}

static void read_config(struct run *r)
{
	char path[128];
	struct buf text = BUF_INIT;
	struct err e = ERR_INIT;
	path_of(r->c, "/config.json", path);
	if (file_slurp(path, HF_CONFIG_BYTES_MAX, &text, &e) ||
	    hf_config_read(buf_str(&text), text.len, path, 0, &r->job, &e)) {
		fprintf(stderr, "%s (tests run in the top folder of the sources)\n", e.text);
		abort();
	}
	buf_fini(&text);
}

static float *place_of(struct run *r, const char *name)
{
	const struct catalogue *k = pipeline_catalogue(r->engine);
	for (int i = 0; i < k->n; i++)
		if (!strcmp(k->params[i].name, name))
			return r->values + k->params[i].offset;
	fprintf(stderr, "no parameter %s\n", name);
	abort();
}

/* Sets r->values to the tensors of a folder. */
static int read_folder(struct run *r, const char *which, struct err *e)
{
	struct hf_names names;
	struct hf_weights *w = NULL;
	char path[128];
	int rc = hf_names_build(pipeline_shape(r->engine), &names, e);
	path_of(r->c, which, path);
	if (!rc)
		rc = hf_weights_open(path, &w, e) || hf_weights_fit(w, &names, e) ? -1 : 0;
	for (int64_t i = 0; i < names.n && !rc; i++) {
		const struct hf_tensor *t = &names.tensors[i];
		float numbers[hf_tensor_elements(t)], room[hf_tensor_elements(t)], *at = numbers;
		rc = hf_weights_read(w, &names, t, numbers, room, e);
		for (int j = 0; j < t->n && !rc; j++) {
			size_t n = (size_t)(t->parts[j].rows * t->shape[1]);
			memcpy(place_of(r, t->parts[j].name), at, n * sizeof *at);
			at += n;
		}
	}
	hf_weights_close(w);
	hf_names_free(&names);
	return rc;
}

/* Returns the address of element 0 of a piece in r->values. */
static const float *wanted(const struct run *r, const struct param_piece *p)
{
	return r->values + p->param->offset + p->first;
}

static int set_weights(struct run *r, struct err *e)
{
	int n;
	struct param_store *store = pipeline_store(r->engine);
	const struct param_piece *pieces = param_store_pieces(store, &n);
	if (read_folder(r, "", e))
		return -1;
	for (int i = 0; i < n; i++)
		memcpy(pieces[i].master, wanted(r, &pieces[i]),
		       (size_t)pieces[i].count * sizeof(float));
	return param_store_sync_params(store, 0, e);
}

static int run_open(const struct golden_case *c, struct comm *world, int micro, struct run *r,
		    struct err *e)
{
	char path[128];
	*r = (struct run){ .c = c, .world = world };
	path_of(c, "/values.safetensors", path);
	golden_open(path, &r->g);
	read_config(r);
	r->job.job.steps = STEPS;
	r->job.parallel.dp = 1;
	r->job.batch.micro = micro;
	r->job.batch.global = BATCH;
	r->job.optimizer.lr = 3e-3;
	r->job.optimizer.min_lr = 1e-3;
	r->job.optimizer.warmup = 3;
	r->job.optimizer.decay_steps = 16; /* the last steps have the minimum rate */
	const struct layout l = layout_of(&r->job, 1);
	const struct engine_options opt = {
		.view = &r->view, .world = world, .backend_name = c->backend_name, .threads = 2
	};
	if (rank_view_init(&r->job, &l, comm_rank(world), &r->view, e) ||
	    pipeline_open(&opt, &r->engine, e))
		return -1;
	const struct optim_options o = { .backend = pipeline_backend(r->engine),
					 .store = pipeline_store(r->engine),
					 .job = &r->job,
					 .spill_dir = "." };
	r->values = calloc((size_t)pipeline_catalogue(r->engine)->elements, sizeof *r->values);
	return optim_open(&o, &r->optim, e) || set_weights(r, e) ? -1 : 0;
}

static void run_close(struct run *r)
{
	free(r->values);
	optim_close(r->optim);
	pipeline_close(r->engine);
	rank_view_fini(&r->view);
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

/* Without rotary positions, a key bias shifts all scores of a query by the same number, and a
 * softmax ignores such a shift. The gradient of that bias is only rounding error, which AdamW
 * scales up to whole steps. */
static bool is_undetermined(const struct run *r, const struct param *p)
{
	return p->role == PARAM_K_B && !pipeline_shape(r->engine)->rope;
}

/* Compares the master weights, or the gradients, with a folder. */
static int compare(struct run *r, const char *folder, bool grads, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(pipeline_store(r->engine), &n);
	const char *at = "";
	double most = 0;
	if (read_folder(r, folder, e))
		return -1;
	for (int i = 0; i < n; i++) {
		const struct param_piece *p = &pieces[i];
		const float *want = wanted(r, p);
		if (is_undetermined(r, p->param))
			continue;
		double off = length(grads ? p->grad : p->master, want, p->count) /
			     length(want, NULL, p->count);
		if (!(off < most))
			most = off, at = p->param->name;
	}
	printf("  %s, %s: %s off by %.1e (%s)\n", r->c->folder, r->c->backend_name, folder + 1,
	       most, at);
	return most <= tolerance ? 0
				 : err_set(e, ERR_NUMERIC, "%s, %s: %s of %s are off by %.2e",
					   r->c->folder, r->c->backend_name, folder + 1, at, most);
}

static const int32_t *tokens_of(const struct run *r, const char *name, int step)
{
	const int32_t *all = golden_tensor(&r->g, "", name, STEPS * BATCH * SEQ * sizeof *all);
	return all + step * BATCH * SEQ;
}

static struct engine_batch batch_of(const struct run *r, int step)
{
	return (struct engine_batch){
		.inputs = tokens_of(r, "inputs", step),
		.targets = tokens_of(r, "targets", step),
		.sample = step * BATCH,
		.loss_scale = 1,
	};
}

static int near(const struct run *r, const char *what, int step, double got, struct err *e)
{
	const double *all = golden_tensor(&r->g, "", what, STEPS * sizeof *all);
	if (fabs(got - all[step]) <= tolerance * fabs(all[step]))
		return 0;
	return err_set(e, ERR_NUMERIC, "%s, %s: %s, step %d: %.9g, PyTorch's is %.9g", r->c->folder,
		       r->c->backend_name, what, step, got, all[step]);
}

/* An evaluation leaves exp(logit - max) and max in the head's scratch. */
static int compare_logits(struct run *r, struct err *e)
{
	const struct model *m = r->engine->model;
	const float *exps = m->scratch[SCRATCH_LOGITS], *max = m->scratch[SCRATCH_MAX];
	int64_t vocab = pipeline_shape(r->engine)->vocab, n = BATCH * SEQ * vocab;
	const float *want = golden_tensor(&r->g, "", "logits", (size_t)n * sizeof(float));
	float got[n];
	for (int64_t i = 0; i < n; i++)
		got[i] = logf(exps[i]) + max[i / vocab];
	double off = length(got, want, n) / length(want, NULL, n);
	printf("  %s, %s: logits off by %.1e\n", r->c->folder, r->c->backend_name, off);
	return off <= tolerance ? 0
				: err_set(e, ERR_NUMERIC, "%s, %s: logits are off by %.2e",
					  r->c->folder, r->c->backend_name, off);
}

static int logits_of(struct comm *world, void *arg, struct err *e)
{
	struct run r;
	double loss;
	int rc = run_open(arg, world, BATCH, &r, e);
	struct engine_batch b = batch_of(&r, 0);
	if (!rc)
		rc = pipeline_eval(r.engine, &b, &loss, e) || compare_logits(&r, e) ? -1 : 0;
	run_close(&r);
	return rc;
}

static int gradients_of(struct comm *world, void *arg, struct err *e)
{
	struct run r;
	const struct golden_case *c = arg;
	double loss;
	int rc = run_open(c, world, c->micro, &r, e);
	struct engine_batch b = batch_of(&r, 0);
	if (!rc)
		rc = pipeline_step(r.engine, &b, &loss, e) || near(&r, "losses", 0, loss, e) ||
				     compare(&r, "/gradients", true, e)
			     ? -1
			     : 0;
	run_close(&r);
	return rc;
}

static int train(struct run *r, int step, struct err *e)
{
	struct engine_batch b = batch_of(r, step);
	double loss, norm;
	if (pipeline_step(r->engine, &b, &loss, e) ||
	    optim_grad_norm(r->optim, r->world, 1, &norm, e))
		return -1;
	if (optim_step(r->optim, norm, 1, step, e))
		return -1;
	return near(r, "losses", step, loss, e) || near(r, "norms", step, norm, e) ||
			       near(r, "rates", step, optim_lr(&r->job, step), e) ||
			       param_store_sync_params(pipeline_store(r->engine), step, e)
		       ? -1
		       : 0;
}

static int steps_of(struct comm *world, void *arg, struct err *e)
{
	struct run r;
	const struct golden_case *c = arg;
	int rc = run_open(c, world, c->micro, &r, e);
	for (int step = 0; step < STEPS && !rc; step++)
		rc = train(&r, step, e);
	if (!rc)
		rc = compare(&r, "/trained", false, e);
	run_close(&r);
	return rc;
}

static void run_cases(int (*fn)(struct comm *, void *, struct err *))
{
	int failed = 0;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct golden_case c = cases[i];
		failed += world_run(1, fn, &c) != 0;
	}
	assert_int_equal(failed, 0);
}

static void logits_are_pytorch_s(void **state)
{
	(void)state;
	run_cases(logits_of);
}

static void loss_and_gradients_are_pytorch_s(void **state)
{
	(void)state;
	run_cases(gradients_of);
}

static void twenty_adamw_steps_are_pytorch_s(void **state)
{
	(void)state;
	run_cases(steps_of);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(logits_are_pytorch_s),
		cmocka_unit_test(loss_and_gradients_are_pytorch_s),
		cmocka_unit_test(twenty_adamw_steps_are_pytorch_s),
	};
	return cmocka_run_group_tests_name("model and optimizer against PyTorch", tests, NULL,
					   NULL);
}
