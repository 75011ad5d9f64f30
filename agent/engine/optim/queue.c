/* Steps that are judged and applied on the device. The host reads their numbers later. */
#include "agent/engine/optim/rules.h"
#include "agent/engine/optim/scaler.h"
#include "libcomm/comm.h"

#include <stddef.h>

void optim_queue_open(struct optim *o, const struct scaler *s, int64_t tokens,
		      struct step_numbers *read)
{
	const struct step_numbers n = {
		.logit_scale = (float)(s->scale / (double)tokens),
		.loss_scale = s->scale,
		.good = s->good,
	};
	o->queued = read;
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
	if (!losses) {
		backend_zero(o->backend, &n->own_loss, sizeof n->own_loss + bytes);
		return;
	}
	backend_copy(o->backend, n->sums, losses, bytes);
	backend_copy(o->backend, &n->own_loss, losses, sizeof n->own_loss);
}

int optim_queue_step(struct optim *o, const double *losses, int64_t step, struct err *e)
{
	struct step_numbers *n = o->numbers;
	const struct optim_step s = { .lr = optim_lr(o->job, step),
				      .number = step + 1,
				      .share = 1 };
	const struct step_numbers known = { .step = s.number, .lr = (float)s.lr };
	optim_grad_norm_start(o);
	o->squared = false;
	set_losses(o, losses);
	if (o->device_world &&
	    comm_all_reduce(o->device_world, n->sums, n->sums, STEP_SUMS, COMM_F64, COMM_SUM, e))
		return -1;
	backend_put(o->backend, n, &known, offsetof(struct step_numbers, grad_scale));
	o->ops->step_judge(o->backend, n, &o->queued_rule);
	optim_update_runs(o, &s, step + 1);
	o->queued_ticket = backend_side_copy(o->backend, o->queued, n, sizeof *n);
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
