#include "agent/engine/optim/optim.h"

#include "agent/engine/optim/away.h"
#include "base/spill.h"
#include "libcomm/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pieces that lie side by side in all their buffers and have the same decay: one update for all. */
struct run {
	const struct param_piece *first;
	float *master, *grad;
	int64_t at, count;
	bool decay;
};

/* Gradients that are counted in the norm. */
struct stretch {
	const float *grad;
	int64_t count;
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
	/* Queues n updates, whose weight_decay is the job's where there is any. */
	void (*update)(const struct optim *o, struct update *u, int n, const struct step *s);
};

struct optim {
	const struct optimizer *kind;
	struct backend *backend;
	const struct ops *ops;
	struct param_store *store;
	const struct job *job;
	float *moments[OPTIM_MOMENTS_MOST];
	size_t bytes; /* of a moment */
	bool spilled;
	struct optim_offload *away; /* spilled, and the backend's memory is a device's */
	struct run *runs;
	int n_runs;
	struct update *updates; /* [n_runs], of the step under way */
	struct stretch *counted;
	int n_counted;
	double squares;     /* the sum of them, of one step */
	double *squares_at; /* in the backend's memory: the one above, or the device's */
	bool squared;
};

static double decay_of(const struct optim *o, bool decay)
{
	return decay ? o->job->optimizer.weight_decay : 0;
}

static void adamw(const struct optim *o, struct update *u, int n, const struct step *s)
{
	const struct adamw_args a = {
		.lr = (float)(s->lr * s->share),
		.beta1 = (float)pow(o->job->optimizer.beta1, s->share),
		.beta2 = (float)pow(o->job->optimizer.beta2, s->share),
		.eps = (float)o->job->optimizer.eps,
		.grad_scale = (float)s->scale,
		.step = s->number,
	};
	o->ops->adamw(o->backend, u, n, &a);
}

/* The moment of an unchanging gradient G grows to G / (1 - momentum), whatever the share; 1 of a
 * whole step. */
static double sgd_weight(double momentum, double share)
{
	return (1 - pow(momentum, share)) / (1 - momentum);
}

static void sgd(const struct optim *o, struct update *u, int n, const struct step *s)
{
	double momentum = o->job->optimizer.momentum, weight = sgd_weight(momentum, s->share);
	const struct sgd_args a = {
		.lr = (float)(s->lr * s->share),
		.momentum = (float)pow(momentum, s->share),
		.grad_scale = (float)(s->scale * weight),
		.step = s->number,
	};
	for (int i = 0; i < n; i++)
		u[i].weight_decay = (float)(decay_of(o, u[i].weight_decay > 0) * weight);
	o->ops->sgd(o->backend, u, n, &a);
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

/* Where an update of the piece puts its stored form; NULL: nowhere, or it rounds at random and
 * so by itself alone. */
static const char *stored_of(const struct optim *o, const struct param_piece *p)
{
	struct update u = { .stored = NULL };
	param_store_stored_form(o->store, p, 0, &u);
	return u.random ? NULL : u.stored;
}

/* Whether the piece begins where the run ends, or behind a gap that all buffers have: gaps hold
 * zeros and zero gradients, which an update leaves zero. */
static bool joins(const struct optim *o, const struct run *r, const struct param_piece *p)
{
	int64_t ahead = p->at - r->at;
	const char *from = stored_of(o, r->first), *to = stored_of(o, p);
	bool alone = backend_width(o->backend) < sizeof(float) &&
		     (!from || to != from + (size_t)ahead * backend_width(o->backend));
	return r->decay == p->param->decay && p->master - r->master == ahead &&
	       p->grad - r->grad == ahead && !alone;
}

static int find_runs(struct optim *o, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(o->store, &n);
	o->runs = calloc((size_t)n + 1, sizeof *o->runs);
	o->updates = calloc((size_t)n + 1, sizeof *o->updates);
	if (!o->runs || !o->updates)
		return err_set(
			e, ERR_NOMEM,
			"optimizer: no memory for a table of %d pieces; close other programs", n);
	for (int i = 0; i < n; i++) {
		const struct param_piece *p = &pieces[i];
		struct run *last = o->n_runs ? &o->runs[o->n_runs - 1] : NULL;
		if (!last || !joins(o, last, p)) {
			last = &o->runs[o->n_runs++];
			*last = (struct run){ .first = p,
					      .master = p->master,
					      .grad = p->grad,
					      .at = p->at,
					      .decay = p->param->decay };
		}
		last->count = p->at + p->count - last->at;
	}
	return 0;
}

/* What a rank counts of its pieces. On the host each is summed by itself; a device sums what lies
 * side by side, but for gaps of zeros, at once. */
static int find_counted(struct optim *o, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(o->store, &n);
	o->counted = calloc((size_t)n + 1, sizeof *o->counted);
	if (!o->counted)
		return err_set(
			e, ERR_NOMEM,
			"optimizer: no memory for a table of %d pieces; close other programs", n);
	const float *whole_to = NULL; /* where the last piece ends, when all of it counts */
	const struct param_piece *before = NULL;
	for (int i = 0; i < n; i++) {
		const struct param_piece *p = &pieces[i];
		struct stretch s = { p->grad + p->count_lo, p->count_hi - p->count_lo };
		if (s.count <= 0) {
			whole_to = NULL;
			continue;
		}
		bool follows = !backend_on_host(o->backend) && whole_to && p->count_lo == 0 &&
			       p->grad - before->grad == p->at - before->at;
		if (follows)
			o->counted[o->n_counted - 1].count = s.grad + s.count -
							     o->counted[o->n_counted - 1].grad;
		else
			o->counted[o->n_counted++] = s;
		whole_to = p->count_hi == p->count ? p->grad + p->count : NULL;
		before = p;
	}
	return 0;
}

static void *take_moment(const struct optim *o, const char *spill_dir, struct err *e)
{
	void *p = NULL;
	if (!o->spilled) {
		if (!(p = backend_alloc(o->backend, o->bytes)))
			err_set(e, ERR_NOMEM,
				"optimizer: no memory for %zu bytes of %s's moments; raise "
				"parallel.tp, parallel.pp or "
				"parallel.zero, or set offload.optimizer",
				o->bytes, o->kind->name);
		return p;
	}
	if (backend_on_host(o->backend))
		return spill_open(spill_dir, "the optimizer's moments", o->bytes, &p, e) ? NULL : p;
	if (!(p = backend_host_alloc(o->backend, o->bytes)))
		err_set(e, ERR_NOMEM,
			"optimizer: no memory of the host for %zu bytes of %s's moments; free "
			"some, or set offload.optimizer = no",
			o->bytes, o->kind->name);
	else
		memset(p, 0, o->bytes);
	return p;
}

static int open_moments(struct optim *o, const char *spill_dir, struct err *e)
{
	int n = 0;
	for (; optim_moment_name(optim_kind(o), n); n++)
		if (!(o->moments[n] = take_moment(o, spill_dir, e)))
			return -1;
	o->squares_at = backend_on_host(o->backend)
				? &o->squares
				: backend_alloc(o->backend, sizeof *o->squares_at);
	if (!o->squares_at)
		return err_set(e, ERR_NOMEM, "optimizer: no memory for a sum; lower batch.micro");
	return o->spilled && !backend_on_host(o->backend)
		       ? optim_away_open(o->backend, n, param_store_masters_offloaded(o->store),
					 &o->away, e)
		       : 0;
}

int optim_open(const struct optim_options *opt, struct optim **out, struct err *e)
{
	struct optim *o = calloc(1, sizeof *o);
	if (!o)
		return err_set(e, ERR_NOMEM, "optimizer: no memory; close other programs");
	*o = (struct optim){
		.kind = &optimizers[opt->job->optimizer.kind],
		.backend = opt->backend,
		.ops = backend_ops(opt->backend),
		.store = opt->store,
		.job = opt->job,
		.bytes = (size_t)param_store_owned(opt->store) * sizeof(float),
		.spilled = opt->job->offload.optimizer,
	};
	if (find_runs(o, e) || find_counted(o, e) || open_moments(o, opt->spill_dir, e)) {
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
	if (o->spilled)
		/* copies may still read and write what is given back */
		backend_sync(o->backend, NULL);
	optim_away_close(o->away);
	for (int i = 0; i < OPTIM_MOMENTS_MOST; i++)
		if (!o->spilled)
			backend_free(o->backend, o->moments[i]);
		else if (backend_on_host(o->backend))
			spill_close(o->moments[i], o->bytes);
		else
			backend_host_free(o->backend, o->moments[i]);
	if (o->squares_at != &o->squares)
		backend_free(o->backend, o->squares_at);
	free(o->counted);
	free(o->updates);
	free(o->runs);
	free(o);
}

bool optim_offloaded(const struct optim *o)
{
	return o->away != NULL;
}

int optim_wait(struct optim *o, struct err *e)
{
	return o->away ? optim_away_settle(o->away, e) : 0;
}

void optim_square(struct optim *o)
{
	backend_zero(o->backend, o->squares_at, sizeof *o->squares_at);
	for (int i = 0; i < o->n_counted; i++)
		o->ops->sqnorm(o->backend, o->squares_at, o->counted[i].grad, o->counted[i].count);
	o->squared = true;
}

int optim_norm(struct optim *o, struct comm *world, double loss_scale, double *norm, struct err *e)
{
	double sum;
	if (!o->squared)
		optim_square(o);
	o->squared = false;
	if (backend_get(o->backend, &sum, o->squares_at, sizeof sum, e))
		return -1;
	if (world && comm_size(world) > 1 &&
	    comm_all_reduce(world, &sum, &sum, 1, COMM_F64, COMM_SUM, e))
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

struct applying {
	const struct optim *o;
	const struct step *s;
};

static void apply_part(const struct update *part, void *arg)
{
	const struct applying *a = arg;
	struct update u = *part;
	a->o->kind->update(a->o, &u, 1, a->s);
}

/* step: how many are finished when the masters are published. */
static void update_all(struct optim *o, const struct step *s, int64_t step)
{
	struct applying applying = { o, s };
	for (int i = 0; i < o->n_runs; i++) {
		const struct run *r = &o->runs[i];
		struct update *u = &o->updates[i];
		*u = (struct update){
			.p = r->master,
			.g = r->grad,
			.m = o->moments[0] + r->at,
			.v = o->moments[1] ? o->moments[1] + r->at : NULL,
			.count = r->count,
			.weight_decay = (float)decay_of(o, r->decay),
		};
		param_store_stored_form(o->store, r->first, step, u);
	}
	if (o->away)
		optim_away_update(o->away, o->updates, o->n_runs, apply_part, &applying);
	else
		o->kind->update(o, o->updates, o->n_runs, s);
	param_store_stored_done(o->store);
}

void optim_step(struct optim *o, double norm, double loss_scale, int64_t step)
{
	const struct step s = {
		.lr = optim_lr(o->job, step),
		.scale = clipped(o, norm) / loss_scale,
		.number = step + 1,
		.share = 1,
	};
	update_all(o, &s, step + 1);
}

void optim_step_part(struct optim *o, double norm, double share, int64_t step, int64_t before)
{
	const struct step s = {
		.lr = optim_lr(o->job, step),
		.scale = clipped(o, norm) / share,
		.number = before + 1,
		.share = share,
	};
	update_all(o, &s, step + 1);
}
