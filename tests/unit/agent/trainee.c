#include "tests/unit/agent/trainee.h"

#include "agent/engine/parallel/device.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int trainee_device;
enum train_reading trainee_reading = TRAIN_READS_AT_ONCE;

enum { WORDS_MAX = 64, WORD = 64 };

struct words {
	char text[WORDS_MAX][WORD];
	const char *list[WORDS_MAX];
	int n;
};

__attribute__((format(printf, 2, 3))) static void word(struct words *w, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(w->text[w->n], WORD, fmt, ap);
	va_end(ap);
	w->list[w->n] = w->text[w->n];
	w->n++;
}

static void words_of(const struct tiny *t, struct words *w)
{
	word(w, "model.family=%s",
	     job_enum_word(offsetof(struct job, model.family), (int)t->family));
	word(w, "model.layers=%d", t->layers);
	word(w, "model.hidden=%d", t->hidden);
	word(w, "model.heads=%d", t->heads);
	word(w, "model.kv_heads=%d", t->kv_heads);
	word(w, "model.head_dim=%d", t->head_dim);
	word(w, "model.ffn=%d", t->ffn);
	word(w, "model.vocab=%d", t->vocab);
	word(w, "model.seq=%d", t->seq);
	word(w, "model.tie_head=%s",
	     job_enum_word(offsetof(struct job, model.tie_head), (int)t->tie));
	word(w, "model.init_std=%g", t->init_std);
	word(w, "batch.micro=%d", t->micro);
	word(w, "batch.global=%d", t->global);
	word(w, "job.steps=20");
	word(w, "job.seed=7");
	word(w, "parallel.dp=1");
	/* With a larger rate, training itself amplifies rounding errors within 20 steps. */
	word(w, "optimizer.lr=3e-3");
	word(w, "optimizer.min_lr=1e-3");
	word(w, "optimizer.warmup=3");
	if (t->family == FAMILY_MIXTRAL)
		word(w, "model.experts=5"); /* the ranks' shares are uneven */
}

int trainee_job(const struct tiny *t, const char *const *more, struct job *out, struct err *e)
{
	struct words w = { .n = 0 };
	words_of(t, &w);
	for (; more && *more; more++)
		word(&w, "%s", *more);
	return job_words(w.list, w.n, out, e);
}

/* Adds the same noise as tiny_shake, but only to the pieces that this rank owns. */
static int add_noise(const struct train_state *state, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(state->store, &n);
	int rc = 0;
	for (int i = 0; i < n && !rc; i++) {
		const struct param_piece *p = &pieces[i];
		float *values = calloc((size_t)p->count, sizeof *values);
		if (!values)
			return err_set(e, ERR_NOMEM, "no memory for %s", p->param->name);
		rc = train_state_read(state, p, 0, 0, p->count, values, e);
		if (!rc) {
			tiny_shake(p->param, p->first, p->count, values);
			rc = train_state_write(state, p, 0, 0, p->count, values, e);
		}
		free(values);
	}
	return rc;
}

static int open_server(struct trainee *t, const char *backend_name, struct err *e)
{
	const struct server_options o = {
		.view = &t->view,
		.catalogue = pipeline_catalogue(t->engine),
		.world = t->world,
		.backend_name = backend_name,
		.worker = pipeline_store(t->engine),
		.backend = pipeline_backend(t->engine),
	};
	if (param_server_open(&o, &t->server, e))
		return -1;
	t->state = (struct train_state){ .store = param_server_store(t->server),
					 .optim = param_server_optim(t->server) };
	return 0;
}

/* Late, the sums of the ranks are added in the backend's memory. NCCL's group does it; without NCCL
 * one that goes through the host. */
static int open_sums(struct trainee *t, struct comm **out, struct err *e)
{
	struct comm_device_options device = { .backend = "staged" };
	*out = pipeline_device_world(t->engine);
	if (*out || trainee_reading != TRAIN_READS_LATE || comm_size(t->world) == 1)
		return 0;
	*out = t->world;
	if (backend_on_host(pipeline_backend(t->engine)))
		return 0;
	if (parallel_device_table(&device.device, e) ||
	    comm_on_device(t->world, &device, "sums", &t->sums, e))
		return -1;
	comm_stream(t->sums, backend_stream(pipeline_backend(t->engine)));
	*out = t->sums;
	return 0;
}

static int open_optim(struct trainee *t, struct err *e)
{
	struct comm *sums;
	if (open_sums(t, &sums, e))
		return -1;
	const struct optim_options o = {
		.backend = pipeline_backend(t->engine),
		.store = pipeline_store(t->engine),
		.job = &t->job,
		.spill_dir = ".",
		.device_world = sums,
		.numbers = pipeline_numbers(t->engine),
	};
	if (optim_open(&o, &t->optim, e))
		return -1;
	t->state = (struct train_state){ .store = pipeline_store(t->engine),
					 .optim = t->optim,
					 .scales = model_scales_of(pipeline_model(t->engine)) };
	return 0;
}

static int init_state(struct trainee *t, const char *dir, struct ckpt_state *at, struct err *e)
{
	(void)dir;
	(void)at;
	if (train_state_init(&t->state, pipeline_shape(t->engine), t->job.job.seed, e) ||
	    add_noise(&t->state, e))
		return -1;
	return param_store_sync_params(t->state.store, 0, e);
}

static int exchange(void *arg, struct step_result *r, struct err *e)
{
	struct trainee *t = arg;
	struct server_step io = { .step = r->step, .loss = r->loss };
	if (param_server_step(t->server, &io, e))
		return -1;
	r->loss = io.loss;
	r->norm = io.norm;
	return 0;
}

static int begin_steps(struct trainee *t, struct err *e)
{
	t->hooks.arg = t;
	t->hooks.exchange = t->server ? exchange : NULL;
	const struct stepper_parts parts = { .view = &t->view,
					     .world = t->world,
					     .engine = t->engine,
					     .optim = t->optim,
					     .hooks = &t->hooks,
					     .reading = trainee_reading };
	return train_stepper_begin(&t->stepper, &parts, e);
}

static int open_state(struct trainee *t, const char *backend_name, trainee_start *start,
		      const char *dir, struct err *e)
{
	bool server = t->job.parallel.sync == SYNC_SERVER;
	struct ckpt_state at = { .step = 0 };
	if (server ? open_server(t, backend_name, e) : open_optim(t, e))
		return -1;
	if (start(t, dir, &at, e))
		return -1;
	t->from = (int)at.step;
	if (server && param_server_start(t->server, at.step, e))
		return -1;
	return begin_steps(t, e);
}

int trainee_open_as(const struct tiny *model, const struct job *job, struct comm *world,
		    const char *backend_name, int threads, trainee_start *start, const char *dir,
		    struct trainee *t, struct err *e)
{
	*t = (struct trainee){ .model = model, .job = *job, .world = world };
	train_stepper_init(&t->stepper, &t->job);
	const struct layout l = layout_of(job, (int)job->parallel.dp);
	if (rank_view_init(&t->job, &l, comm_rank(world), &t->view, e))
		return -1;
	t->each = t->view.sequences;
	t->first = t->view.batch.first;
	size_t n = (size_t)(t->each * model->seq);
	t->inputs = calloc(n, sizeof *t->inputs);
	t->targets = calloc(n, sizeof *t->targets);
	t->starts = job->data.documents == DOCUMENTS_MASK ? calloc(n, sizeof *t->starts) : NULL;
	if (!t->inputs || !t->targets || (job->data.documents == DOCUMENTS_MASK && !t->starts))
		return err_set(e, ERR_NOMEM, "no memory for %zu tokens", n);
	const struct engine_options opt = {
		.view = &t->view,
		.world = world,
		.backend_name = backend_name,
		.threads = threads,
		/* as on 2 nodes */
		.device = trainee_device,
		.spill_dir = ".",
		.node = 2 * comm_rank(world) / comm_size(world),
	};
	t->failed = pipeline_open(&opt, &t->engine, e) ||
		    open_state(t, backend_name, start, dir, e);
	return t->failed ? -1 : 0;
}

int trainee_open(const struct tiny *model, const struct job *job, struct comm *world,
		 const char *backend_name, int threads, struct trainee *t, struct err *e)
{
	return trainee_open_as(model, job, world, backend_name, threads, init_state, NULL, t, e);
}

void trainee_close(struct trainee *t)
{
	if (t->server && !t->failed)
		param_server_leave(t->server, NULL);
	param_server_close(t->server);
	train_stepper_fini(&t->stepper);
	optim_close(t->optim);
	pipeline_close(t->engine);
	comm_close(t->sums);
	rank_view_fini(&t->view);
	free(t->inputs);
	free(t->targets);
	free(t->starts);
}

/* Splits the tokens into documents of uneven lengths. A document begins where the token's number
 * is below 1/8 of the vocabulary. */
static void find_starts(struct trainee *t)
{
	int seq = t->model->seq;
	for (int64_t s = 0; t->starts && s < t->each; s++)
		for (int i = 0, start = 0; i < seq; i++) {
			if (t->inputs[s * seq + i] < t->model->vocab / 8)
				start = i;
			t->starts[s * seq + i] = start;
		}
}

void trainee_read(struct trainee *t, int step)
{
	tiny_batch(t->model, step % 4 * t->job.batch.global + t->first, t->each, t->inputs,
		   t->targets);
	find_starts(t);
}

static struct engine_batch batch_of(const struct trainee *t, int step)
{
	return (struct engine_batch){
		.inputs = t->inputs,
		.targets = t->targets,
		.starts = t->starts,
		.sample = step * t->job.batch.global + t->first,
	};
}

int trainee_step(struct trainee *t, int step, double *loss, double *norm, struct err *e)
{
	struct engine_batch b = batch_of(t, step);
	trainee_read(t, step);
	t->failed = train_stepper_run(&t->stepper, &b, step, e);
	*loss = t->stepper.last.loss;
	*norm = t->stepper.last.norm;
	return t->failed ? -1 : 0;
}

int trainee_settle(struct trainee *t, double *loss, double *norm, struct err *e)
{
	t->failed = train_stepper_settle(&t->stepper, e);
	*loss = t->stepper.last.loss;
	*norm = t->stepper.last.norm;
	return t->failed ? -1 : 0;
}

int trainee_eval(struct trainee *t, int step, double *loss, struct err *e)
{
	struct engine_batch b = batch_of(t, step);
	trainee_read(t, step);
	return pipeline_eval(t->engine, &b, loss, e);
}

int trainee_whole(const struct model_shape *s, struct catalogue *out, struct err *e)
{
	const struct stage all = { 0, (int)s->layers, true, true };
	const struct share share = { .tp = 1, .ep = 1, .chunks = &all, .n_chunks = 1 };
	return catalogue_build(s, &share, out, e);
}

static const struct param *find_param(const struct catalogue *whole, const struct param *p)
{
	for (int i = 0; i < whole->n; i++)
		if (!strcmp(whole->params[i].name, p->name))
			return &whole->params[i];
	return NULL;
}

/* Returns the index in the whole tensor of element `i` of p's box. */
static int64_t global_of(const struct param *p, int64_t i)
{
	int64_t width = p->hi[1] - p->lo[1];
	return (p->lo[0] + i / width) * p->shape[1] + p->lo[1] + i % width;
}

int trainee_gather(const struct trainee *t, const struct catalogue *whole, bool grads, float *flat,
		   struct err *e)
{
	int n, rc = 0;
	const struct param_piece *pieces = param_store_pieces(t->state.store, &n);
	for (int i = 0; i < n && !rc; i++) {
		const struct param_piece *p = &pieces[i];
		const struct param *w = find_param(whole, p->param);
		float *values = calloc((size_t)p->count, sizeof *values);
		if (!values)
			return err_set(e, ERR_NOMEM, "no memory for %s", p->param->name);
		rc = grads ? backend_get(param_store_backend(t->state.store), values, p->grad,
					 (size_t)p->count * sizeof *values, e)
			   : train_state_read(&t->state, p, 0, 0, p->count, values, e);
		for (int64_t j = p->count_lo; !rc && w && j < p->count_hi; j++)
			flat[w->offset + global_of(p->param, p->first + j)] = values[j];
		free(values);
	}
	return rc;
}
