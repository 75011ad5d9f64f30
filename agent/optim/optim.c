#include "agent/optim/optim.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Adjacent parameters with the same decay, updated by one call. */
struct run {
	int64_t lo, hi; /* elements of the flat buffer */
	bool decay;
};

struct optim {
	struct kern *kern;
	const struct job *job;
	float *m, *v;
	struct run *runs;
	int n_runs;
};

/* The gaps between parameters hold zeros and zero gradients, which an update
 * leaves zero, so that a run may reach over them. */
static void find_runs(const struct catalogue *c, struct optim *o)
{
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		struct run *last = o->n_runs ? &o->runs[o->n_runs - 1] : NULL;
		if (!last || last->decay != p->decay) {
			last = &o->runs[o->n_runs++];
			*last = (struct run){ .lo = p->offset, .decay = p->decay };
		}
		last->hi = p->offset + p->count;
	}
}

int optim_open(struct kern *k, const struct catalogue *c, const struct job *job, struct optim **out,
	       struct err *e)
{
	struct optim *o = calloc(1, sizeof *o);
	if (!o)
		return err_set(e, ERR_NOMEM, "optimizer: no memory");
	size_t bytes = (size_t)c->elements * sizeof(float);
	o->kern = k;
	o->job = job;
	o->m = kern_alloc(k, bytes);
	o->v = kern_alloc(k, bytes);
	o->runs = calloc((size_t)c->n + 1, sizeof *o->runs);
	if (!o->m || !o->v || !o->runs) {
		optim_close(o);
		return err_set(e, ERR_NOMEM, "optimizer: no memory for 2 × %zu bytes of AdamW state; "
			       "use more tp or pp, or a smaller model", bytes);
	}
	find_runs(c, o);
	*out = o;
	return 0;
}

void optim_close(struct optim *o)
{
	if (!o)
		return;
	kern_free(o->kern, o->m);
	kern_free(o->kern, o->v);
	free(o->runs);
	free(o);
}

float *optim_m(struct optim *o)
{
	return o->m;
}

float *optim_v(struct optim *o)
{
	return o->v;
}

static double cosine(double t)
{
	return 0.5 * (1 + cos(t * M_PI));
}

static double linear(double t)
{
	return 1 - t;
}

static double constant(double t)
{
	(void)t;
	return 1;
}

/* From 1 at the end of the warm-up (t = 0) to the share of (lr - min_lr) left at decay_steps (t = 1). */
static double (*const shapes[])(double t) = {
	[LR_COSINE] = cosine,
	[LR_LINEAR] = linear,
	[LR_CONSTANT] = constant,
};

double optim_lr(const struct job *job, int64_t step)
{
	double lr = job->optimizer.lr, least = job->optimizer.min_lr;
	int64_t warmup = job->optimizer.warmup;
	int64_t decay = job->optimizer.decay_steps ? job->optimizer.decay_steps : job->job.steps;
	if (step < warmup)
		return lr * (double)(step + 1) / (double)warmup;
	double t = decay > warmup ? (double)(step - warmup) / (double)(decay - warmup) : 1;
	return least + (lr - least) * shapes[job->optimizer.schedule](t < 1 ? t : 1);
}

void optim_step(struct optim *o, float *params, const float *grads, double grad_norm, int64_t step)
{
	double clip = o->job->optimizer.clip;
	struct adamw_args a = {
		.lr = (float)optim_lr(o->job, step),
		.beta1 = (float)o->job->optimizer.beta1,
		.beta2 = (float)o->job->optimizer.beta2,
		.eps = (float)o->job->optimizer.eps,
		.grad_scale = clip > 0 && grad_norm > clip ? (float)(clip / grad_norm) : 1.0f,
		.step = step + 1,
	};
	for (int i = 0; i < o->n_runs; i++) {
		const struct run *r = &o->runs[i];
		a.weight_decay = r->decay ? (float)o->job->optimizer.weight_decay : 0;
		kern_ops(o->kern)->adamw(o->kern, params + r->lo, grads + r->lo, o->m + r->lo, o->v + r->lo,
					 r->hi - r->lo, &a);
	}
}
