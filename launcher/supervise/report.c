/* report: what the supervisor writes to events.jsonl and metrics.jsonl, and prints for people. */
#include "base/human.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { REFUSALS_MAX = 20 }; /* events per generation: strangers must not fill the disk */

/* "generation 3 starts, restart 2 of 10" */
static void print_start(struct supervisor *s, bool counts)
{
	char count[80] = "";
	if (counts)
		snprintf(count, sizeof count, ", restart %lld of %lld",
			 (long long)s->restart.restarts, (long long)s->restart.limits.max_restarts);
	supervise_terminal_event(s->o.term, TONE_WARN, "restart", "generation %u starts%s",
				 s->generation, count);
}

void supervise_report_started(struct supervisor *s, const char *resume, bool counts)
{
	const struct layout *l = &s->d->plan.layout;
	double step = s->d->plan.time.total;
	struct cost_interval likely = { 0 };
	bool sure = supervise_contract_interval(&s->d->job, &s->d->cluster, &s->d->plan, step,
						&likely);
	char text[64];
	rundir_event_plan(s->o.run, s->generation,
			  &(struct rundir_plan){ .world = s->world,
						 .tp = l->tp,
						 .cp = l->cp,
						 .ep = l->ep,
						 .dp = l->dp,
						 .pp = l->pp,
						 .has_step_s = !s->program.ranks,
						 .step_s = step,
						 .has_least_s = sure,
						 .least_s = likely.least,
						 .has_most_s = sure,
						 .most_s = likely.most });
	rundir_event_generation_start(
		s->o.run, s->generation,
		&(struct rundir_start){ .resume = resume,
					.restarts = s->restart.restarts,
					.auth = s->munge.work ? "secret and MUNGE credential"
							      : "secret" });
	if (!s->first)
		print_start(s, counts);
	snprintf(text, sizeof text, "starting %d agent%s", s->world, human_s(s->world));
	supervise_terminal_waiting(s->o.term, text);
}

void supervise_report_note(struct supervisor *s, enum launch_note what, const char *node,
			   const char *text)
{
	static const char *const words[] = {
		[LAUNCH_NOTE_OWN_PMIX] = "own",
		[LAUNCH_NOTE_PMIX_REFUSED] = "refused",
		[LAUNCH_NOTE_HELPER_LOST] = "helper-lost",
	};
	rundir_event_pmix(s->o.run, s->generation,
			  &(struct rundir_pmix){ .what = words[what],
						 .has_node = node != NULL,
						 .node = node,
						 .text = text });
	if (what == LAUNCH_NOTE_HELPER_LOST)
		supervise_terminal_event(s->o.term, TONE_BAD, "helper", "%s: %s", node, text);
	else if (what == LAUNCH_NOTE_OWN_PMIX && !s->pmix_said)
		supervise_terminal_event(s->o.term, TONE_PLAIN, "pmix",
					 "%s: muster serves PMIx itself, by a helper on each node",
					 text);
	else if (what == LAUNCH_NOTE_PMIX_REFUSED)
		supervise_terminal_event(s->o.term, TONE_WARN, "pmix", "%s", text);
	s->pmix_said |= what == LAUNCH_NOTE_OWN_PMIX;
}

/* "continuing from step 40 in memory; 7 steps are repeated" */
static void describe_resume(const struct supervisor *s, char *out, size_t size)
{
	long long at = (long long)s->resumed;
	int64_t repeated = s->step > s->resumed ? s->step - s->resumed : 0;
	char again[80] = "";
	if (repeated)
		snprintf(again, sizeof again, "; %lld step%s repeated", (long long)repeated,
			 repeated == 1 ? " is" : "s are");
	if (s->resumed > 0)
		snprintf(out, size, "continuing from step %lld%s%s", at,
			 strcmp(s->resumed_from, "memory") ? "" : ", copied in memory", again);
	else
		snprintf(out, size, "starting from the beginning%s", again);
}

void supervise_report_resumed(struct supervisor *s)
{
	char text[200];
	bool lost = s->ckpt_step >
		    s->resumed; /* deleted, damaged, or not in this folder any more */
	if (s->first && s->resumed <= 0)
		return;
	describe_resume(s, text, sizeof text);
	if (lost && s->program.ranks) /* which decides itself what it loads */
		supervise_terminal_event(s->o.term, TONE_BAD, "resume",
					 "%s, although the program reported a checkpoint of step "
					 "%lld: %s",
					 text, (long long)s->ckpt_step, s->ckpt_path);
	else if (lost)
		supervise_terminal_event(s->o.term, TONE_BAD, "resume",
					 "%s, because the checkpoint of step %lld is gone or "
					 "damaged: %s",
					 text, (long long)s->ckpt_step, s->ckpt_path);
	else
		supervise_terminal_event(s->o.term, TONE_WARN, "resume", "%s", text);
	if (lost)
		s->ckpt_step = -1;
}

void supervise_report_ready(struct supervisor *s)
{
	rundir_event_ready(s->o.run, s->generation,
			   &(struct rundir_ready){ .step = s->resumed,
						   .from = s->resumed_from,
						   .has_from = *s->resumed_from });
	supervise_exporting_begin(s);
	supervise_notice_ready(s);
	if (s->program.ranks) /* its first step tells it, if it reports steps */
		supervise_terminal_waiting(s->o.term, "");
	else
		supervise_report_resumed(s);
}

void supervise_report_log(struct supervisor *s, int rank, const char *level, const char *text)
{
	rundir_event_log(s->o.run, s->generation,
			 &(struct rundir_log){ .rank = rank,
					       .node = supervise_node(s, rank),
					       .level = level,
					       .text = text });
}

void supervise_report_refused(struct supervisor *s, const char *why)
{
	if (s->refusals++ < REFUSALS_MAX)
		rundir_event_refused(s->o.run, s->generation, &(struct rundir_why){ .why = why });
}

void supervise_report_trouble(struct supervisor *s, const char *why)
{
	rundir_event_accept_failed(s->o.run, s->generation, &(struct rundir_why){ .why = why });
	supervise_terminal_event(s->o.term, TONE_WARN, "warn",
				 "the supervisor cannot accept the agents' connections: %s", why);
}

static void report_first_step(struct supervisor *s, int64_t step, double loss)
{
	double now = supervise_now(s);
	rundir_event_first_step(s->o.run, s->generation,
				&(struct rundir_first_step){ .step = step,
							     .since_start_s = now - s->started,
							     .has_loss = isfinite(loss),
							     .loss = loss,
							     .has_since_lost_s = s->cause.at > 0,
							     .since_lost_s = now - s->cause.at,
							     .has_since_open_s = s->first,
							     .since_open_s = now - s->opened });
	s->stepped = true;
}

/* The first step of a generation warms up caches, so it is left out of the measured time. A program's
 * includes its start, and says nothing of a step. */
static void add_measured_step(struct supervisor *s, const struct msg_metrics *m)
{
	if (!(m->step_s > 0) || (s->program.ranks && !s->stepped))
		return;
	s->step_s = s->step_s > 0 && s->stepped ? 0.9 * s->step_s + 0.1 * m->step_s : m->step_s;
	if (!s->stepped)
		return;
	supervise_contract_step(&s->contract, m);
	s->measured_s += m->step_s;
	s->measured++;
	s->tokens += (double)m->tokens;
}

void supervise_report_metrics(struct supervisor *s, const struct msg_metrics *m)
{
	struct terminal_step t = {
		.step = m->step,
		.loss = m->loss,
		.grad_norm = m->grad_norm,
		.lr = m->lr,
		.cross_entropy = m->cross_entropy,
		.tokens_s = m->step_s > 0 ? (double)m->tokens / m->step_s : 0,
		.step_s = m->step_s,
		.loss_scale = m->loss_scale,
		.skipped = m->skipped,
		.partial = s->program.ranks != NULL,
	};
	rundir_metrics(s->o.run, s->generation, m, s->program.ranks ? NAN : s->d->plan.time.total);
	exports_step(s->exports, m);
	add_measured_step(s, m);
	if (s->step < 0) {
		s->first_loss = t.loss;
		s->first_loss_step = m->step;
	}
	if (!s->stepped)
		report_first_step(s, m->step, t.loss);
	s->step = m->step;
	s->last_loss = t.loss;
	s->skipped += t.skipped;
	t.left_s = s->step_s > 0 && !s->program.ranks
			   ? (double)(s->d->job.job.steps - m->step) * s->step_s
			   : -1;
	supervise_terminal_step(s->o.term, &t, supervise_now(s));
}

void supervise_report_eval(struct supervisor *s, const struct msg_eval *m)
{
	s->eval_loss = m->loss;
	s->has_eval = true;
	rundir_event_eval(s->o.run, s->generation,
			  &(struct rundir_eval){ .step = m->step, .loss = m->loss });
	exports_eval(s->exports, m);
	supervise_terminal_event(s->o.term, TONE_PLAIN, "eval", "step %lld  loss %.4f",
				 (long long)m->step, m->loss);
}

void supervise_report_ckpt(struct supervisor *s, const struct msg_ckpt *m)
{
	char bytes[HUMAN];
	rundir_event_ckpt(s->o.run, s->generation,
			  &(struct rundir_ckpt){ .step = m->step,
						 .path = m->path,
						 .bytes = m->bytes,
						 .seconds = m->seconds,
						 .stall_s = m->stall_s });
	exports_checkpoint(s->exports, m);
	supervise_terminal_event(s->o.term, TONE_GOOD, "checkpoint", "step %lld, %s in %.2f s",
				 (long long)m->step, human_bytes((double)m->bytes, bytes),
				 isfinite(m->seconds) ? m->seconds : 0);
}
