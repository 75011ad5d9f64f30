#include "agent/metrics/report.h"

#include "agent/control.h"
#include "agent/engine/ckpt/ckpt.h"

#include <stdbool.h>

json_t *agent_report_step(const struct step_report *r)
{
	bool fp16 = r->loss_scale > 0;
	struct msg_metrics m = {
		.step = r->step,
		.samples = r->samples,
		.tokens = r->tokens,
		.peak_bytes = r->peak_bytes,
		.loss = r->loss,
		.grad_norm = r->grad_norm,
		.lr = r->lr,
		.step_s = r->step_s,
		.has_cross_entropy = r->routed,
		.cross_entropy = r->cross_entropy,
		.has_balance_loss = r->routed,
		.balance_loss = r->balance_loss,
		.has_z_loss = r->routed,
		.z_loss = r->z_loss,
		.has_loss_scale = fp16,
		.loss_scale = r->loss_scale,
		.has_skipped = fp16,
		.skipped = r->skipped,
	};
#define COPY_PART(with, ENUM, member, name, transfers, doc) m.member##_s = r->member##_s;
	STEP_PARTS(COPY_PART, )
#undef COPY_PART
	return msg_metrics_json(&m);
}

json_t *agent_report_eval(int64_t step, double loss)
{
	return msg_eval_json(&(struct msg_eval){ .step = step, .loss = loss });
}

static void progress(void *arg, int64_t step, const char *phase)
{
	agent_control_progress(arg, step, phase);
}

static void moved(void *arg)
{
	agent_control_moved(arg);
}

static void worked(void *arg, double seconds)
{
	agent_control_worked(arg, seconds);
}

static void note_times(void *arg, const struct train_times *times, bool at_once)
{
	agent_control_times(arg, times, at_once);
}

static bool stopping(void *arg, bool *checkpoint)
{
	return agent_control_stopping(arg, checkpoint);
}

static int save_asked(void *arg)
{
	return agent_control_save_asked(arg);
}

static int trace_asked(void *arg, int *steps)
{
	return agent_control_trace_asked(arg, steps);
}

static int await_recorded(void *arg, int64_t step, double seconds, struct err *e)
{
	return agent_control_await_recorded(arg, step, seconds, e);
}

static int await_contact(void *arg, struct err *e)
{
	return agent_control_await_contact(arg, e);
}

static void give_up(void *arg)
{
	agent_control_give_up(arg);
}

static void send_ready(void *arg, int64_t step, int64_t samples, const char *from,
		       const struct phases *start)
{
	json_t *phases = train_phases_json(start);
	agent_control_send(arg, MSG_READY,
			   msg_ready_json(&(struct msg_ready){ .step = step,
							       .samples = samples,
							       .from = from,
							       .has_from = *from,
							       .phases = phases }));
	json_decref(phases);
}

static void send_step(void *arg, const struct step_report *r)
{
	agent_control_send(arg, MSG_METRICS, agent_report_step(r));
}

static void send_eval(void *arg, int64_t step, double loss)
{
	agent_control_send(arg, MSG_EVAL, agent_report_eval(step, loss));
}

static void send_bad_step(void *arg, const struct bad_step *b)
{
	agent_control_send(arg, MSG_BAD_STEP,
			   msg_bad_step_json(&(struct msg_bad_step){ .step = b->step,
								     .what = b->what,
								     .value = b->value,
								     .usual = b->usual,
								     .first = b->first,
								     .count = b->count }));
}

static void send_series(void *arg, int64_t step)
{
	agent_control_send(arg, MSG_SERIES, msg_series_json(&(struct msg_series){ .step = step }));
}

static void send_committed(void *arg, const struct ckpt_report *c)
{
	agent_control_send(arg, c->local ? MSG_CKPT_LOCAL : MSG_CKPT,
			   msg_ckpt_json(&(struct msg_ckpt){ .step = c->step,
							     .path = c->path,
							     .bytes = (int64_t)c->bytes,
							     .seconds = c->seconds,
							     .stall_s = c->stall_s }));
}

static void send_save_failed(void *arg, int64_t step, const char *why)
{
	agent_control_send(
		arg, MSG_SAVE_FAILED,
		msg_save_failed_json(&(struct msg_save_failed){ .step = step, .text = why }));
}

static void send_traced(void *arg, const struct trace_report *r)
{
	agent_control_send(arg, MSG_TRACED,
			   msg_traced_json(&(struct msg_traced){ .number = r->number,
								 .first = r->first,
								 .last = r->last,
								 .has_error = r->why != NULL,
								 .error = r->why }));
}

static void send_finished(void *arg, int64_t step, int64_t peak_bytes, const struct phases *spent)
{
	json_t *phases = train_phases_json(spent);
	agent_control_send(arg, MSG_FINISHED,
			   msg_finished_json(&(struct msg_finished){
				   .step = step, .peak_bytes = peak_bytes, .phases = phases }));
	json_decref(phases);
}

struct train_hooks agent_report_hooks(struct control *control)
{
	return (struct train_hooks){
		.arg = control,
		.progress = progress,
		.moved = moved,
		.worked = worked,
		.times = note_times,
		.stopping = stopping,
		.save_asked = save_asked,
		.trace_asked = trace_asked,
		.await_recorded = await_recorded,
		.await_contact = await_contact,
		.give_up = give_up,
		.ready = send_ready,
		.step = send_step,
		.eval = send_eval,
		.bad_step = send_bad_step,
		.series = send_series,
		.committed = send_committed,
		.save_failed = send_save_failed,
		.traced = send_traced,
		.finished = send_finished,
	};
}
