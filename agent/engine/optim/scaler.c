#include "agent/engine/optim/scaler.h"

#include "kernels/ops.h"

void optim_scaler_init(struct scaler *s, const struct job *job)
{
	bool scales = job->precision.dtype == DTYPE_FP16,
	     dynamic = scales && job->precision.loss_scale <= 0;
	*s = (struct scaler){
		.scales = scales,
		.dynamic = dynamic,
		.window = job->precision.loss_scale_window,
		.scale = dynamic  ? SCALER_FIRST
			 : scales ? job->precision.loss_scale
				  : 1,
	};
}

void optim_scaler_resume(struct scaler *s, double scale, int64_t good)
{
	if (!s->dynamic || !(scale >= 1 && scale <= SCALER_MAX))
		return;
	s->scale = scale;
	s->good = good;
}

/* Returns 0 if a smaller scale can mend the overflow, otherwise ERR_NUMERIC. */
static int judge_overflow(const struct scaler *s, struct err *e)
{
	if (!s->scales)
		return err_set(e, ERR_NUMERIC,
			       "the loss or the gradient is not finite, and nothing was updated; "
			       "lower optimizer.lr, or lengthen optimizer.warmup");
	if (!s->dynamic)
		return err_set(e, ERR_NUMERIC,
			       "gradients overflow at precision.loss_scale = %g; lower it, or set "
			       "it to 0 for a dynamic one",
			       s->scale);
	if (s->scale <= 1)
		return err_set(e, ERR_NUMERIC,
			       "gradients overflow even at a loss scale of 1; lower optimizer.lr, "
			       "or use precision.dtype = bf16");
	return 0;
}

int optim_scaler_update(struct scaler *s, bool finite, struct err *e)
{
	const struct step_rule rule = { .window = s->dynamic ? s->window : 0,
					.scale_max = SCALER_MAX };
	if (!finite && judge_overflow(s, e))
		return -1;
	s->scale = backend_next_scale(&rule, s->scale, finite, &s->good);
	return finite;
}
