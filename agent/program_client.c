/* program_client: what the program reports through the client channel. */
#include "agent/program_inner.h"

#include "agent/metrics/report.h"
#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>

/* Between two messages about checkpoints: each costs a line, an event and a file. */
static const double saved_s = 0.2;

static int64_t now_us(void)
{
	return llround(1e6 * clock_s());
}

static void on_hello(void *arg, const struct task_hello *m)
{
	struct program *p = arg;
	if (!p->progress.used)
		log_info("the program uses the client channel (process %d)", m->pid);
	p->progress.used = true;
}

/* The first step of the task: it tells where the program continues from. The time of that step counts as
 * a part of the start. */
static void begin(struct program *p, const struct task_step *m, double now)
{
	struct program_progress *g = &p->progress;
	g->began = true;
	train_times_begin(&g->times, m->n - 1, now_us());
	agent_control_send(p->control, MSG_BEGAN,
			   msg_began_json(&(struct msg_began){ .step = m->n - 1,
							       .seconds = now - p->started_at }));
}

static void send_metrics(struct program *p, const struct task_step *m, double seconds)
{
	const struct program_progress *g = &p->progress;
	const struct step_report r = {
		.step = m->n,
		.samples = g->samples,
		.tokens = m->has_tokens ? m->tokens : 0,
		.loss = m->has_loss ? m->loss : NAN,
		.grad_norm = m->has_grad_norm ? m->grad_norm : NAN,
		.lr = m->has_lr ? m->lr : NAN,
		.step_s = seconds,
		.compute_s = seconds,
	};
	agent_control_send(p->control, MSG_METRICS, agent_report_step(&r));
}

/* As the built-in training: the step updates nothing any more, because the task is ended. */
static void refuse_loss(struct program *p, const struct task_step *m)
{
	agent_control_send(p->control, MSG_BAD_STEP,
			   msg_bad_step_json(&(struct msg_bad_step){
				   .step = m->n, .what = "loss", .value = m->loss, .count = 1 }));
	err_set(&p->progress.bad, ERR_NUMERIC,
		"the loss of step %lld is %s; see health.bad_numbers", (long long)m->n,
		isnan(m->loss) ? "NaN" : "infinite");
}

static void on_step(void *arg, const struct task_step *m)
{
	struct program *p = arg;
	struct program_progress *g = &p->progress;
	double now = clock_s(), seconds = now - (g->began ? g->step_at : p->started_at);
	if (m->n < 1)
		return;
	if (g->began &&
	    m->n <= g->step) { /* reported twice, as when the program resumes by itself */
		g->step_at = now;
		agent_control_moved(p->control);
		return;
	}
	if (!g->began)
		begin(p, m, now);
	g->step = m->n;
	g->step_at = now;
	if (m->has_samples && m->samples <= INT64_MAX - g->samples)
		g->samples += m->samples;
	train_times_step(&g->times, &(struct step_report){ .step = m->n, .compute_s = seconds },
			 now_us());
	agent_control_times(p->control, &g->times, false);
	agent_control_progress(p->control, m->n, "running");
	if (m->has_loss && !isfinite(m->loss) && !g->bad.code)
		refuse_loss(p, m);
	else if (g->metrics)
		send_metrics(p, m, seconds);
}

static void on_checkpoint(void *arg, const struct task_checkpoint *m)
{
	struct program_progress *g = &((struct program *)arg)->progress;
	g->saved_step = m->step;
	snprintf(g->saved_path, sizeof g->saved_path, "%s", m->path);
}

void agent_program_send_saved(struct program *p, double now, bool at_once)
{
	struct program_progress *g = &p->progress;
	if (g->saved_step < 0 || (!at_once && now - g->saved_told < saved_s))
		return;
	log_info("checkpoint of step %lld: %s", (long long)g->saved_step, g->saved_path);
	agent_control_send(p->control, MSG_CLIENT_CKPT,
			   msg_client_ckpt_json(&(struct msg_client_ckpt){
				   .step = g->saved_step, .path = g->saved_path }));
	g->saved_step = -1;
	g->saved_told = now;
}

const struct task_client_handlers agent_program_handlers = {
	.hello = on_hello,
	.step = on_step,
	.checkpoint = on_checkpoint,
};

void agent_program_serve_client(struct program *p, bool ended)
{
	struct err e = ERR_INIT;
	int (*serve)(struct task_client *, struct err *) = ended ? task_client_serve_all
								 : task_client_serve;
	p->progress.waits = !ended && agent_control_is_busy(p->control);
	if (!p->progress.waits && serve(p->client, &e))
		log_warn("client channel: %s", e.text);
}
