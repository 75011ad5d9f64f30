#include "agent/pipeline/rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes and this rank's place, before anything is allocated. */
static int describe(struct engine *g, const struct engine_options *opt, struct err *e)
{
	const struct job *job = opt->job;
	int64_t each = job->batch.micro * opt->layout.dp;

	model_shape(job, &g->shape);
	g->layout = opt->layout;
	g->at = opt->at;
	g->seed = job->job.seed;
	g->phase = opt->phase;
	g->phase_arg = opt->phase_arg;
	if (each < 1 || job->batch.global < each || job->batch.global % each)
		return err_set(e, ERR_USAGE, "batch.global = %lld is no multiple of batch.micro = %lld times dp = %d; change one of them",
			       (long long)job->batch.global, (long long)job->batch.micro, opt->layout.dp);
	g->micros = (int)(job->batch.global / each);
	g->micro_tokens = job->batch.micro * g->shape.seq;
	g->global_tokens = job->batch.global * g->shape.seq;

	struct stage *stages = calloc((size_t)opt->layout.pp, sizeof *stages);
	if (!stages)
		return err_set(e, ERR_NOMEM, "%d pipeline stages: out of memory", opt->layout.pp);
	int rc = layout_stages(&g->shape, opt->layout.pp, stages, e);
	if (!rc)
		g->stage = stages[opt->at.pp];
	free(stages);
	return rc;
}

/* A forward-only row for evaluation. */
static int build_eval_row(struct engine *g, struct err *e)
{
	struct sched_row *row = &g->eval_row;
	row->steps = calloc((size_t)g->micros * 3, sizeof *row->steps);
	if (!row->steps)
		return err_set(e, ERR_NOMEM, "schedule of %d micro-batches: out of memory", g->micros);
	for (int i = 0; i < g->micros; i++) {
		if (!g->stage.first)
			row->steps[row->n++] = (struct sched_step){ SCHED_RECV_ACT, i };
		row->steps[row->n++] = (struct sched_step){ SCHED_FORWARD, i };
		if (!g->stage.last)
			row->steps[row->n++] = (struct sched_step){ SCHED_SEND_ACT, i };
	}
	return 0;
}

static int open_schedule(struct engine *g, enum job_schedule kind, struct err *e)
{
	if (schedule_build(kind, g->layout.pp, g->micros, &g->schedule, e) || schedule_check(&g->schedule, e))
		return -1;
	g->slots = g->schedule.rows[g->at.pp].live;
	g->berths = calloc((size_t)g->slots, sizeof *g->berths);
	g->slot_of = calloc((size_t)g->micros, sizeof *g->slot_of);
	if (!g->berths || !g->slot_of)
		return err_set(e, ERR_NOMEM, "%d micro-batches: out of memory", g->micros);
	return build_eval_row(g, e);
}

static float *flat(struct engine *g, const char *what, struct err *e)
{
	size_t bytes = (size_t)g->catalogue.elements * sizeof(float);
	float *p = kern_alloc(g->kern, bytes);
	if (!p)
		err_set(e, ERR_NOMEM, "%s: no memory for %zu bytes; raise parallel.tp or parallel.pp", what, bytes);
	return p;
}

static int open_model(struct engine *g, const struct engine_options *opt, struct err *e)
{
	if (kern_open(opt->backend, opt->threads, &g->kern, e) ||
	    catalogue_build(&g->shape, g->layout.tp, g->at.tp, &g->stage, &g->catalogue, e))
		return -1;
	g->params = flat(g, "parameters", e);
	g->grads = g->params ? flat(g, "gradients", e) : NULL;
	if (!g->grads)
		return -1;
	if (g->shape.tied && g->layout.pp > 1)
		g->tied = catalogue_find(&g->catalogue, PARAM_EMBED, -1);
	struct model_options m = {
		.shape = &g->shape, .catalogue = &g->catalogue, .stage = g->stage, .tp = &g->tp, .kern = g->kern,
		.params = g->params, .grads = g->grads, .micro = opt->job->batch.micro, .slots = g->slots,
		.grad_scale = (float)(1.0 / (double)g->global_tokens),
	};
	return model_open(&m, &g->model, e);
}

int engine_open(const struct engine_options *opt, struct engine **out, struct err *e)
{
	struct engine *g = calloc(1, sizeof *g);
	if (!g)
		return err_set(e, ERR_NOMEM, "engine: out of memory");
	if (describe(g, opt, e) || open_schedule(g, opt->job->parallel.schedule, e) ||
	    groups_open(opt->world, &g->layout, g->at, g->shape.tied, &g->groups, e))
		goto fail;
	tp_init(&g->tp, g->groups.tp);
	g->pipe.groups = &g->groups;
	if (open_model(g, opt, e) ||
	    dp_open(g->groups.dp, g->grads, g->catalogue.elements, DP_BUCKET, &g->dp, e))
		goto fail;
	*out = g;
	return 0;
fail:
	engine_close(g);
	return -1;
}

void engine_close(struct engine *g)
{
	if (!g)
		return;
	walk_settle(g, NULL);
	dp_close(g->dp);
	model_close(g->model);
	catalogue_free(&g->catalogue);
	if (g->grads)
		kern_free(g->kern, g->grads);
	if (g->params)
		kern_free(g->kern, g->params);
	kern_close(g->kern);
	groups_close(&g->groups);
	schedule_free(&g->schedule);
	free(g->eval_row.steps);
	free(g->berths);
	free(g->slot_of);
	free(g);
}

void engine_init(struct engine *g)
{
	model_init(&g->catalogue, g->shape.init_std, g->shape.layers, g->seed, g->params);
}

const struct catalogue *engine_catalogue(const struct engine *g)
{
	return &g->catalogue;
}

float *engine_params(struct engine *g)
{
	return g->params;
}

float *engine_grads(struct engine *g)
{
	return g->grads;
}

struct kern *engine_kern(struct engine *g)
{
	return g->kern;
}

/* Each dp rank's part of the loss counts once: on the last stage all tp ranks have it. */
static int share_loss(struct engine *g, double local, double *loss, struct err *e)
{
	double sum = g->stage.last && g->at.tp == 0 ? local : 0.0;
	if (g->phase)
		g->phase("share-loss", g->phase_arg);
	if (layout_world(&g->layout) > 1 && comm_all_reduce(g->groups.world, &sum, &sum, 1, COMM_F64, COMM_SUM, e))
		return -1;
	*loss = sum / (double)g->global_tokens;
	return 0;
}

int engine_step(struct engine *g, const int32_t *inputs, const int32_t *targets, double *loss, struct err *e)
{
	double local;
	memset(g->grads, 0, (size_t)g->catalogue.elements * sizeof(float));
	if (walk_row(g, &g->schedule.rows[g->at.pp], inputs, targets, true, &local, e))
		return -1;
	return share_loss(g, local, loss, e);
}

int engine_eval(struct engine *g, const int32_t *inputs, const int32_t *targets, double *loss, struct err *e)
{
	double local;
	if (walk_row(g, &g->eval_row, inputs, targets, false, &local, e))
		return -1;
	return share_loss(g, local, loss, e);
}

/* Parameters that several ranks of the model hold whole count on one of them. */
static bool counts_here(const struct engine *g, const struct param *p)
{
	return !p->tied_copy && (p->sharded || g->at.tp == 0);
}

int engine_grad_norm(struct engine *g, double *norm, struct err *e)
{
	const struct ops *ops = kern_ops(g->kern);
	double sum = 0;
	for (int i = 0; i < g->catalogue.n; i++) {
		const struct param *p = &g->catalogue.params[i];
		if (counts_here(g, p))
			sum += ops->sqnorm(g->kern, g->grads + p->offset, p->count);
	}
	if (g->groups.model && comm_all_reduce(g->groups.model, &sum, &sum, 1, COMM_F64, COMM_SUM, e))
		return -1;
	*norm = sqrt(sum);
	return 0;
}

void engine_times(const struct engine *g, struct engine_times *out)
{
	*out = g->times;
}

int64_t engine_peak_bytes(const struct engine *g)
{
	return (int64_t)kern_peak(g->kern);
}
