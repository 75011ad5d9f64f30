/* Steps that are judged and applied on the device. The host reads their numbers later. What is
 * queued for a step is the same in each, so it is recorded as a graph in the second one. */
#include "agent/engine/optim/rules.h"
#include "agent/engine/optim/scaler.h"
#include "agent/engine/parallel/graph.h"
#include "libcomm/comm.h"

#include <stddef.h>

void optim_queue_open(struct optim *o, const struct scaler *s, int64_t tokens, bool counts,
		      struct step_numbers *read)
{
	const struct step_numbers n = {
		.logit_scale = (float)(s->scale / (double)tokens),
		.loss_scale = s->scale,
		.good = s->good,
	};
	optim_queue_forget(o);
	o->queued = read;
	o->queued_counts = counts;
	o->queued_rule = (struct step_rule){ .clip = o->job->optimizer.clip,
					     .tokens = (double)tokens,
					     .window = s->dynamic ? s->window : 0,
					     .scale_max = SCALER_MAX };
	backend_put(o->backend, o->numbers, &n, sizeof n);
}

/* Sets the sums that the norm's start has left to this rank's losses. */
static void set_losses(struct optim *o, const double *losses)
{
	struct step_numbers *n = o->numbers;
	const size_t bytes = STEP_SQUARES * sizeof *n->sums;
	backend_copy(o->backend, &n->own_loss, losses, sizeof n->own_loss);
	if (o->queued_counts)
		backend_copy(o->backend, n->sums, losses, bytes);
	else
		backend_zero(o->backend, n->sums, bytes);
}

/* Nothing that the host puts in here changes from one step to the next, except for stochastic
 * rounding. The step's number, rate and limits are in the device's memory. */
static int queue_work(struct optim *o, const double *losses, const struct optim_step *s,
		      struct err *e)
{
	struct step_numbers *n = o->numbers;
	optim_grad_norm_start(o);
	o->squared = false;
	set_losses(o, losses);
	if (o->device_world &&
	    comm_all_reduce(o->device_world, n->sums, n->sums, STEP_SUMS, COMM_F64, COMM_SUM, e))
		return -1;
	o->ops->step_judge(o->backend, n, &o->queued_rule);
	optim_update_runs(o, s, s->number);
	return 0;
}

/* --- The work as a graph ------------------------------------------------------------------ */

static bool can_record(const struct optim *o)
{
	return o->job->job.graphs && !backend_on_host(o->backend) && !o->offload &&
	       !o->job->precision.stochastic_rounding && parallel_graph_fits(o->device_world);
}

void optim_queue_forget(struct optim *o)
{
	parallel_graph_free(o->queued_graph);
	o->queued_graph = NULL;
	o->queued_before = false;
}

static int record_work(struct optim *o, const double *losses, const struct optim_step *s,
		       struct err *e)
{
	struct parallel_graph *g;
	int rc = parallel_graph_begin(o->backend, !o->device_world, "the update", &g, e);
	if (rc <= 0)
		return rc ? rc : queue_work(o, losses, s, e);
	rc = queue_work(o, losses, s, e);
	if (parallel_graph_end(g, rc ? NULL : e) && rc == 0)
		rc = err_prefix(e, "the update as a CUDA graph, which job.graphs = no leaves out");
	if (rc) {
		parallel_graph_free(g);
		return -1;
	}
	o->queued_graph = g;
	o->queued_losses = losses;
	return parallel_graph_launch(g, e);
}

static int replay_work(struct optim *o, struct err *e)
{
	if (parallel_graph_repeat(o->queued_graph, e) || parallel_graph_launch(o->queued_graph, e))
		return -1;
	param_store_stored_done(o->store);
	return 0;
}

/* The first step runs without a graph, so that whatever is created on first use exists. */
static int run_work(struct optim *o, const double *losses, const struct optim_step *s,
		    struct err *e)
{
	bool before = o->queued_before;
	o->queued_before = true;
	if (!before || !can_record(o))
		return queue_work(o, losses, s, e);
	if (o->queued_graph && o->queued_losses == losses)
		return replay_work(o, e);
	parallel_graph_free(o->queued_graph);
	o->queued_graph = NULL;
	return record_work(o, losses, s, e);
}

/* --- Steps -------------------------------------------------------------------------------- */

int optim_queue_step(struct optim *o, const double *losses, const struct optim_limits *limits,
		     int64_t step, struct err *e)
{
	const struct optim_step s = { .lr = optim_lr(o->job, step),
				      .number = step + 1,
				      .share = 1 };
	const struct step_numbers known = { .step = s.number,
					    .loss_limit = limits->loss,
					    .norm_limit = limits->norm,
					    .lr = (float)s.lr };
	backend_put(o->backend, o->numbers, &known, offsetof(struct step_numbers, grad_scale));
	if (run_work(o, losses, &s, e))
		return -1;
	o->queued_ticket = backend_side_copy(o->backend, o->queued, o->numbers, sizeof *o->numbers);
	return 0;
}

/* A sum that a failure ended is no sum, and the device cannot tell. */
int optim_queue_read(struct optim *o, struct step_numbers *out, struct err *e)
{
	if (backend_side_await(o->backend, o->queued_ticket, e) ||
	    (o->device_world && comm_sync(o->device_world, e)))
		return -1;
	*out = *o->queued;
	return 0;
}
