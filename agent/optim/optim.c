#include "agent/optim/optim.h"

#include "base/spill.h"
#include "libcomm/comm.h"

#include <math.h>
#include <stdlib.h>

/* Pieces that lie side by side in all their buffers and have the same decay: one update. */
struct run {
	float *master, *grad;
	int64_t at, count;
	bool decay;
};

/* What a step is made of, for all runs. */
struct step {
	double lr, scale; /* scale: of the gradients as they lie */
	int64_t number;   /* from 1 */
	double share;     /* how much of a whole step it is */
};

struct optimizer {
	const char *name;
	const char *moments[OPTIM_MOMENTS_MOST]; /* NULL: fewer */
	void (*update)(struct optim *o, const struct step *s);
};

struct optim {
	const struct optimizer *kind;
	struct kern *kern;
	const struct ops *ops;
	struct store *store;
	const struct job *job;
	float *moments[OPTIM_MOMENTS_MOST];
	size_t bytes;    /* of a moment */
	bool spilled;
	struct run *runs;
	struct update *updates; /* one a run */
	int n_runs;
};

/* weight: what the decay is multiplied with. */
static void set_updates(struct optim *o, double weight)
{
	for (int i = 0; i < o->n_runs; i++) {
		const struct run *r = &o->runs[i];
		o->updates[i] = (struct update){
			.p = r->master, .g = r->grad, .m = o->moments[0] + r->at, .v = o->moments[1] ? o->moments[1] + r->at : NULL,
			.count = r->count, .weight_decay = r->decay ? (float)(o->job->optimizer.weight_decay * weight) : 0,
		};
	}
}

static void adamw(struct optim *o, const struct step *s)
{
	const struct adamw_args a = {
		.lr = (float)(s->lr * s->share), .beta1 = (float)pow(o->job->optimizer.beta1, s->share),
		.beta2 = (float)pow(o->job->optimizer.beta2, s->share), .eps = (float)o->job->optimizer.eps, .grad_scale = (float)s->scale,
		.step = s->number,
	};
	set_updates(o, 1);
	o->ops->adamw(o->kern, o->updates, o->n_runs, &a);
}

/* The moment of an unchanging gradient G grows to G / (1 - momentum), whatever the share; 1 of a whole step. */
static double sgd_weight(double momentum, double share)
{
	return (1 - pow(momentum, share)) / (1 - momentum);
}

static void sgd(struct optim *o, const struct step *s)
{
	double momentum = o->job->optimizer.momentum, weight = sgd_weight(momentum, s->share);
	const struct sgd_args a = {
		.lr = (float)(s->lr * s->share), .momentum = (float)pow(momentum, s->share),
		.grad_scale = (float)(s->scale * weight), .step = s->number,
	};
	set_updates(o, weight);
	o->ops->sgd(o->kern, o->updates, o->n_runs, &a);
}

static const struct optimizer optimizers[] = {
	[OPTIMIZER_ADAMW] = { "adamw", { "m", "v" }, adamw },
	[OPTIMIZER_SGD] = { "sgd", { "m" }, sgd },
};

const char *optim_name(enum job_optimizer kind)
{
	return optimizers[kind].name;
}

const char *optim_moment_name(enum job_optimizer kind, int i)
{
	return i < OPTIM_MOMENTS_MOST ? optimizers[kind].moments[i] : NULL;
}

float *optim_moment(struct optim *o, int i)
{
	return i < OPTIM_MOMENTS_MOST ? o->moments[i] : NULL;
}

enum job_optimizer optim_kind(const struct optim *o)
{
	return (enum job_optimizer)(o->kind - optimizers);
}

/* Whether the piece begins where the run ends, or behind a gap that all buffers have: gaps hold zeros and zero gradients, which an
 * update leaves zero. */
static bool joins(const struct run *r, const struct piece *p)
{
	int64_t ahead = p->at - r->at;
	return r->decay == p->param->decay && p->master - r->master == ahead && p->grad - r->grad == ahead;
}

static int find_runs(struct optim *o, struct err *e)
{
	int n;
	const struct piece *pieces = store_pieces(o->store, &n);
	o->runs = calloc((size_t)n + 1, sizeof *o->runs);
	o->updates = calloc((size_t)n + 1, sizeof *o->updates);
	if (!o->runs || !o->updates)
		return err_set(e, ERR_NOMEM, "optimizer: no memory for a table of %d pieces; close other programs", n);
	for (int i = 0; i < n; i++) {
		const struct piece *p = &pieces[i];
		struct run *last = o->n_runs ? &o->runs[o->n_runs - 1] : NULL;
		if (!last || !joins(last, p)) {
			last = &o->runs[o->n_runs++];
			*last = (struct run){ .master = p->master, .grad = p->grad, .at = p->at, .decay = p->param->decay };
		}
		last->count = p->at + p->count - last->at;
	}
	return 0;
}

static int open_moments(struct optim *o, const char *spill_dir, struct err *e)
{
	for (int i = 0; optim_moment_name(optim_kind(o), i); i++) {
		void *p = NULL;
		if (o->spilled && spill_open(spill_dir, "the optimizer's moments", o->bytes, &p, e))
			return -1;
		if (!o->spilled && !(p = kern_alloc(o->kern, o->bytes)))
			return err_set(e, ERR_NOMEM, "optimizer: no memory for %zu bytes of %s's moments; raise parallel.tp, parallel.pp or "
				       "parallel.zero, or set offload.optimizer", o->bytes, o->kind->name);
		o->moments[i] = p;
	}
	return 0;
}

int optim_open(const struct optim_options *opt, struct optim **out, struct err *e)
{
	struct optim *o = calloc(1, sizeof *o);
	if (!o)
		return err_set(e, ERR_NOMEM, "optimizer: no memory; close other programs");
	*o = (struct optim){
		.kind = &optimizers[opt->job->optimizer.kind], .kern = opt->kern, .ops = kern_ops(opt->kern), .store = opt->store,
		.job = opt->job, .bytes = (size_t)store_owned(opt->store) * sizeof(float), .spilled = opt->job->offload.optimizer,
	};
	if (find_runs(o, e) || open_moments(o, opt->spill_dir, e)) {
		optim_close(o);
		return -1;
	}
	*out = o;
	return 0;
}

void optim_close(struct optim *o)
{
	if (!o)
		return;
	for (int i = 0; i < OPTIM_MOMENTS_MOST; i++)
		if (o->spilled)
			spill_close(o->moments[i], o->bytes);
		else
			kern_free(o->kern, o->moments[i]);
	free(o->runs);
	free(o->updates);
	free(o);
}

int optim_norm(struct optim *o, struct comm *world, double loss_scale, double *norm, struct err *e)
{
	int n;
	const struct piece *pieces = store_pieces(o->store, &n);
	double sum = 0;
	for (int i = 0; i < n; i++) {
		const struct piece *p = &pieces[i];
		if (p->count_hi > p->count_lo)
			o->ops->sqnorm(o->kern, &sum, p->grad + p->count_lo, p->count_hi - p->count_lo);
	}
	if (world && comm_size(world) > 1 && comm_all_reduce(world, &sum, &sum, 1, COMM_F64, COMM_SUM, e))
		return -1;
	*norm = sqrt(sum) / loss_scale;
	return 0;
}

/* What clipping makes of gradients of this norm. */
static double clipped(const struct optim *o, double norm)
{
	double clip = o->job->optimizer.clip;
	return clip > 0 && norm > clip ? clip / norm : 1;
}

void optim_step(struct optim *o, double norm, double loss_scale, int64_t step)
{
	const struct step s = {
		.lr = optim_lr(o->job, step), .scale = clipped(o, norm) / loss_scale, .number = step + 1, .share = 1,
	};
	o->kind->update(o, &s);
}

void optim_step_part(struct optim *o, double norm, double share, int64_t step, int64_t before)
{
	const struct step s = {
		.lr = optim_lr(o->job, step), .scale = clipped(o, norm) / share, .number = before + 1, .share = share,
	};
	o->kind->update(o, &s);
}
