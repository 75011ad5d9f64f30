#include "agent/metrics/report.h"

#include "agent/control.h"
#include "agent/engine/ckpt/ckpt.h"

#include <math.h>
#include <stddef.h>

/* clang-format off */
static const struct {
	const char *name;
	size_t at;
} whole[] = {
#define FIELD(name) { #name, offsetof(struct step_report, name) }
	FIELD(step), FIELD(samples), FIELD(tokens), FIELD(peak_bytes),
}, real[] = {
	FIELD(loss), FIELD(grad_norm), FIELD(lr),
	FIELD(step_s), FIELD(data_s), FIELD(compute_s), FIELD(recompute_s), FIELD(tp_s), FIELD(cp_s), FIELD(ep_s), FIELD(pp_s), FIELD(dp_s), FIELD(optimizer_s),
	FIELD(checkpoint_s), FIELD(other_s),
#undef FIELD
};
/* clang-format on */

static const struct {
	const char *name;
	size_t at;
} routers[] = {
#define FIELD(name) \
	{ \
#name, offsetof(struct step_report, name) \
	}
	FIELD(cross_entropy),
	FIELD(balance_loss),
	FIELD(z_loss),
#undef FIELD
};

static json_t *number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

json_t *agent_report_step(const struct step_report *r)
{
	json_t *o = json_object();
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		json_object_set_new(
			o, whole[i].name,
			json_integer(*(const int64_t *)((const char *)r + whole[i].at)));
	for (size_t i = 0; i < sizeof real / sizeof *real; i++)
		json_object_set_new(o, real[i].name,
				    number(*(const double *)((const char *)r + real[i].at)));
	for (size_t i = 0; r->routed && i < sizeof routers / sizeof *routers; i++)
		json_object_set_new(o, routers[i].name,
				    number(*(const double *)((const char *)r + routers[i].at)));
	if (r->loss_scale > 0) {
		json_object_set_new(o, "loss_scale", json_real(r->loss_scale));
		json_object_set_new(o, "skipped", json_boolean(r->skipped));
	}
	return o;
}

json_t *agent_report_eval(int64_t step, double loss)
{
	return json_pack("{s:I, s:o}", "step", (json_int_t)step, "loss", number(loss));
}

static void progress(void *arg, int64_t step, const char *phase)
{
	agent_control_progress(arg, step, phase);
}

static void moved(void *arg)
{
	agent_control_moved(arg);
}

static bool stopping(void *arg, bool *checkpoint)
{
	return agent_control_stopping(arg, checkpoint);
}

static int await_recorded(void *arg, int64_t step, double seconds, struct err *e)
{
	return agent_control_await_recorded(arg, step, seconds, e);
}

static void give_up(void *arg)
{
	agent_control_give_up(arg);
}

static void send_ready(void *arg, int64_t step, int64_t samples, const struct phases *start)
{
	agent_control_send(arg, MSG_READY,
			   json_pack("{s:I, s:I, s:o}", "step", (json_int_t)step, "samples",
				     (json_int_t)samples, "phases", train_phases_json(start)));
}

static void send_step(void *arg, const struct step_report *r)
{
	agent_control_send(arg, MSG_METRICS, agent_report_step(r));
}

static void send_eval(void *arg, int64_t step, double loss)
{
	agent_control_send(arg, MSG_EVAL, agent_report_eval(step, loss));
}

static void send_series(void *arg, int64_t step)
{
	agent_control_send(arg, MSG_SERIES, json_pack("{s:I}", "step", (json_int_t)step));
}

static void send_committed(void *arg, const struct ckpt_report *c)
{
	agent_control_send(arg, MSG_CKPT,
			   json_pack("{s:I, s:s, s:I, s:f, s:f}", "step", (json_int_t)c->step,
				     "path", c->path, "bytes", (json_int_t)c->bytes, "seconds",
				     c->seconds, "stall_s", c->stall_s));
}

static void send_finished(void *arg, int64_t step, int64_t peak_bytes, const struct phases *spent)
{
	agent_control_send(arg, MSG_FINISHED,
			   json_pack("{s:I, s:I, s:o}", "step", (json_int_t)step, "peak_bytes",
				     (json_int_t)peak_bytes, "phases", train_phases_json(spent)));
}

struct train_hooks agent_report_hooks(struct control *control)
{
	return (struct train_hooks){
		.arg = control,
		.progress = progress,
		.moved = moved,
		.stopping = stopping,
		.await_recorded = await_recorded,
		.give_up = give_up,
		.ready = send_ready,
		.step = send_step,
		.eval = send_eval,
		.series = send_series,
		.committed = send_committed,
		.finished = send_finished,
	};
}
