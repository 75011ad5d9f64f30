#include "agent/engine/optim/optim.h"

#include "agent/engine/optim/offload.h"
#include "agent/engine/optim/rules.h"
#include "agent/engine/optim/states.h"
#include "libcomm/comm.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#define RULE(NAME, name) [OPTIMIZER_##NAME] = &optim_rule_##name,
static const struct optim_rule *const rules[] = { OPTIMIZERS(RULE) };
#undef RULE

enum job_optimizer optim_kind(const struct optim *o)
{
	return o->kind;
}

double optim_weight_decay(const struct optim *o, bool decay)
{
	return decay ? o->job->optimizer.weight_decay : 0;
}

/* --- Runs and stretches ------------------------------------------------------------------- */

/* The address where an update of the piece puts its stored form. NULL: the piece has none, or it is
 * rounded stochastically and therefore has an update of its own. */
static const char *stored_address(const struct optim *o, const struct param_piece *p)
{
	struct update u = { .stored = NULL };
	param_store_stored_form(o->store, p, 0, &u);
	return u.random ? NULL : u.stored;
}

/* Whether the piece begins where the run ends, or after a gap that all buffers have. Gaps hold
 * zeros with zero gradients, and an update leaves these zero. */
static bool joins_run(const struct optim *o, const struct optim_run *r, const struct param_piece *p)
{
	int64_t ahead = p->at - r->at;
	const char *from = stored_address(o, r->first), *to = stored_address(o, p);
	bool alone = backend_width(o->backend) < sizeof(float) &&
		     (!from || to != from + (size_t)ahead * backend_width(o->backend));
	return r->decay == p->param->decay && p->master - r->master == ahead &&
	       p->grad - r->grad == ahead && !alone;
}

static int refuse_table(int n, struct err *e)
{
	return err_set(e, ERR_NOMEM,
		       "optimizer: no memory for a table of %d pieces; close other programs", n);
}

static int find_runs(struct optim *o, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(o->store, &n);
	o->runs = calloc((size_t)n + 1, sizeof *o->runs);
	o->updates = calloc((size_t)n + 1, sizeof *o->updates);
	if (!o->runs || !o->updates)
		return refuse_table(n, e);
	for (int i = 0; i < n; i++) {
		const struct param_piece *p = &pieces[i];
		struct optim_run *last = o->n_runs ? &o->runs[o->n_runs - 1] : NULL;
		if (!last || !joins_run(o, last, p)) {
			last = &o->runs[o->n_runs++];
			*last = (struct optim_run){ .first = p,
						    .master = p->master,
						    .grad = p->grad,
						    .at = p->at,
						    .decay = p->param->decay };
		}
		last->count = p->at + p->count - last->at;
	}
	return 0;
}

/* The gradients that this rank counts in the norm. On the host, each piece is summed separately. A
 * device sums pieces together if there are only gaps of zeros between them. */
static int find_counted(struct optim *o, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(o->store, &n);
	o->counted = calloc((size_t)n + 1, sizeof *o->counted);
	if (!o->counted)
		return refuse_table(n, e);
	const float *whole_to = NULL; /* where the last piece ends, if all of it counts */
	const struct param_piece *before = NULL;
	for (int i = 0; i < n; i++) {
		const struct param_piece *p = &pieces[i];
		struct optim_stretch s = { p->grad + p->count_lo, p->count_hi - p->count_lo };
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

/* --- Opening and closing ------------------------------------------------------------------ */

static int open_memory(struct optim *o, const char *spill_dir, struct err *e)
{
	if (optim_states_open(o, spill_dir, e))
		return -1;
	if (!o->numbers && backend_on_host(o->backend))
		o->numbers = &o->numbers_here;
	if (!o->numbers) {
		o->numbers = backend_alloc(o->backend, sizeof *o->numbers);
		o->own_numbers = true;
	}
	if (!o->numbers)
		return err_set(e, ERR_NOMEM,
			       "optimizer: no memory for the numbers of a step; lower "
			       "batch.micro");
	return o->spilled && !backend_on_host(o->backend)
		       ? optim_offload_open(o->backend, optimizer_full_states(o->kind),
					    param_store_masters_offloaded(o->store), &o->offload, e)
		       : 0;
}

/* The job's checks refuse this before anything starts, but tests and tools call this without
 * them. */
static int check_backend(const struct optim *o, struct err *e)
{
	if (o->traits->elementwise || backend_on_host(o->backend))
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "optimizer.kind = %s runs on the CPU only in this version; use job.device = "
		       "cpu or another optimizer",
		       o->traits->name);
}

int optim_open(const struct optim_options *opt, struct optim **out, struct err *e)
{
	struct optim *o = calloc(1, sizeof *o);
	if (!o)
		return err_set(e, ERR_NOMEM, "optimizer: no memory; close other programs");
	*o = (struct optim){
		.kind = opt->job->optimizer.kind,
		.traits = optimizer_of(opt->job->optimizer.kind),
		.rule = rules[opt->job->optimizer.kind],
		.backend = opt->backend,
		.ops = backend_ops(opt->backend),
		.store = opt->store,
		.job = opt->job,
		.spilled = opt->job->offload.optimizer,
		.device_world = opt->device_world,
		.numbers = opt->numbers,
	};
	if (check_backend(o, e) || find_runs(o, e) || find_counted(o, e) ||
	    open_memory(o, opt->spill_dir, e) || (o->rule->open && o->rule->open(o, e))) {
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
	if (o->spilled) /* copies may still read and write the memory that is freed */
		backend_sync(o->backend, NULL);
	optim_queue_forget(o);
	if (o->rule->close)
		o->rule->close(o);
	optim_offload_close(o->offload);
	optim_states_close(o);
	if (o->own_numbers)
		backend_free(o->backend, o->numbers);
	free(o->counted);
	free(o->updates);
	free(o->runs);
	free(o);
}

bool optim_offloaded(const struct optim *o)
{
	return o->offload != NULL;
}

int optim_wait(struct optim *o, struct err *e)
{
	return o->offload ? optim_offload_wait(o->offload, e) : 0;
}

/* --- The norm ----------------------------------------------------------------------------- */

void optim_grad_norm_start(struct optim *o)
{
	double *squares = &o->numbers->sums[STEP_SQUARES];
	backend_zero(o->backend, squares, sizeof *squares);
	for (int i = 0; i < o->n_counted; i++)
		o->ops->sqnorm(o->backend, squares, o->counted[i].grad, o->counted[i].count);
	o->squared = true;
}

int optim_grad_norm(struct optim *o, struct comm *world, double loss_scale, double *norm,
		    struct err *e)
{
	double sum, *squares = &o->numbers->sums[STEP_SQUARES];
	struct comm *there = o->device_world;
	if (!o->squared)
		optim_grad_norm_start(o);
	o->squared = false;
	if (there && comm_all_reduce(there, squares, squares, 1, COMM_F64, COMM_SUM, e))
		return -1;
	if (backend_get(o->backend, &sum, squares, sizeof sum, e))
		return -1;
	/* A sum that a failure ended is no sum, and the device cannot tell. */
	if (there && comm_sync(there, e))
		return -1;
	if (!there && world && comm_size(world) > 1 &&
	    comm_all_reduce(world, &sum, &sum, 1, COMM_F64, COMM_SUM, e))
		return -1;
	*norm = sqrt(sum) / loss_scale;
	return 0;
}

/* The factor by which clipping scales gradients of this norm. */
static double clip_factor(const struct optim *o, double norm)
{
	double clip = o->job->optimizer.clip;
	return clip > 0 && norm > clip ? clip / norm : 1;
}

/* --- Steps -------------------------------------------------------------------------------- */

struct offloaded_step {
	const struct optim *o;
	const struct optim_step *s;
};

static void update_part(const struct update *part, void *arg)
{
	const struct offloaded_step *a = arg;
	struct update u = *part;
	a->o->rule->update(a->o, &u, 1, a->s);
}

/* Sets what the elementwise ops read of the step. */
static void set_numbers(struct optim *o, const struct optim_step *s)
{
	double weight = o->rule->weight ? o->rule->weight(o, s->share) : 1;
	const struct step_numbers n = {
		.step = s->number,
		.lr = (float)(s->lr * s->share),
		.grad_scale = (float)(s->scale * weight),
	};
	backend_put(o->backend, o->numbers, &n, offsetof(struct step_numbers, logit_scale));
}

void optim_update_runs(struct optim *o, const struct optim_step *s, int64_t step)
{
	struct offloaded_step offloaded = { o, s };
	const float *v = o->states[1].data;
	for (int i = 0; i < o->n_runs; i++) {
		const struct optim_run *r = &o->runs[i];
		struct update *u = &o->updates[i];
		*u = (struct update){
			.p = r->master,
			.g = r->grad,
			.m = o->states[0].data + r->at,
			.v = v ? o->states[1].data + r->at : NULL,
			.count = r->count,
			.weight_decay = (float)optim_weight_decay(o, r->decay),
		};
		param_store_stored_form(o->store, r->first, step, u);
	}
	if (o->offload)
		optim_offload_update(o->offload, o->updates, o->n_runs, update_part, &offloaded);
	else
		o->rule->update(o, o->updates, o->n_runs, s);
	param_store_stored_done(o->store);
}

int optim_step(struct optim *o, double norm, double loss_scale, int64_t step, struct err *e)
{
	const struct optim_step s = {
		.lr = optim_lr(o->job, step),
		.scale = clip_factor(o, norm) / loss_scale,
		.number = step + 1,
		.share = 1,
	};
	set_numbers(o, &s);
	if (o->rule->step)
		return o->rule->step(o, &s, e);
	optim_update_runs(o, &s, step + 1);
	return 0;
}

void optim_step_part(struct optim *o, double norm, double share, int64_t step, int64_t before)
{
	const struct optim_step s = {
		.lr = optim_lr(o->job, step),
		.scale = clip_factor(o, norm) / share,
		.number = before + 1,
		.share = share,
	};
	set_numbers(o, &s);
	optim_update_runs(o, &s, step + 1);
}
