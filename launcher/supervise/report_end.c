/* report_end: what is written and printed at the end of a run. */
#include "base/human.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool supervise_shares_cores(const struct supervisor *s)
{
	const struct plan *p = &s->d->plan;
	int threads = 0;
	for (int i = 0; i < p->world; i++) {
		const struct node_kind *k = topo_cluster_kind(&s->d->cluster, p->ranks[i].node);
		threads = (i && p->ranks[i].node == p->ranks[i - 1].node ? threads : 0) +
			  p->ranks[i].threads;
		if (!strcmp(k->device, "cpu") && threads > k->cores)
			return true;
	}
	return false;
}

static bool likely_step(const struct supervisor *s, const double predicted[STEP_PART_COUNT],
			struct cost_interval *out)
{
	*out = (struct cost_interval){ 0 };
	return supervise_contract_interval(&s->d->job, &s->d->cluster, &s->d->plan,
					   supervise_contract_sum(predicted), out);
}

static void report_contract(struct supervisor *s)
{
	double predicted[STEP_PART_COUNT];
	struct cost_interval likely;
	if (!s->contract.steps || s->program.ranks) /* nothing was predicted */
		return;
	supervise_contract_predicted(&s->d->job, &s->d->cluster, &s->d->plan, predicted);
	bool sure = likely_step(s, predicted, &likely);
	json_t *o = supervise_contract_json(&s->contract, predicted);
	json_t *memory = json_object_get(o, "memory");
	rundir_event_contract(
		s->o.run, s->generation,
		&(struct rundir_contract){ .steps = s->contract.steps,
					   .predicted = json_object_get(o, "predicted"),
					   .measured = json_object_get(o, "measured"),
					   .has_least_s = sure,
					   .least_s = likely.least,
					   .has_most_s = sure,
					   .most_s = likely.most,
					   .has_memory = memory != NULL,
					   .memory = memory });
	json_decref(o);
}

static void print_contract(struct supervisor *s)
{
	double predicted[STEP_PART_COUNT];
	struct cost_interval likely;
	char text[300];
	if (!s->contract.steps || s->program.ranks)
		return;
	supervise_contract_predicted(&s->d->job, &s->d->cluster, &s->d->plan, predicted);
	supervise_contract_print(&s->contract, predicted,
				 likely_step(s, predicted, &likely) ? &likely : NULL, s->o.term);
	if (supervise_contract_mismatch(&s->contract, predicted, supervise_shares_cores(s), text,
					sizeof text))
		supervise_terminal_event(s->o.term, TONE_WARN, "warn", "%s", text);
}

static void print_results(struct supervisor *s)
{
	struct terminal *t = s->o.term;
	char speed[HUMAN];
	bool known = s->step >= 0 && isfinite(s->last_loss);
	if (known && s->has_eval)
		supervise_terminal_event(
			t, TONE_PLAIN, "loss",
			"%.4f after step %lld, %.4f after step %lld; held out %.4f", s->first_loss,
			(long long)s->first_loss_step, s->last_loss, (long long)s->step,
			s->eval_loss);
	else if (known)
		supervise_terminal_event(t, TONE_PLAIN, "loss",
					 "%.4f after step %lld, %.4f after step %lld",
					 s->first_loss, (long long)s->first_loss_step, s->last_loss,
					 (long long)s->step);
	if (s->measured && s->program.ranks)
		supervise_terminal_event(t, TONE_PLAIN, "speed", "%.4g s per step",
					 s->measured_s / (double)s->measured);
	else if (s->measured)
		supervise_terminal_event(t, TONE_PLAIN, "speed",
					 "%s tokens/s; %.4g s per step, %.4g s predicted",
					 human_count(s->tokens / s->measured_s, "", speed),
					 s->measured_s / (double)s->measured,
					 s->d->plan.time.total);
	print_contract(s);
	supervise_times_print(s);
	if (s->skipped)
		supervise_terminal_event(
			t, TONE_PLAIN, "skipped",
			"%lld step%s, because the gradients overflowed at the loss scale",
			(long long)s->skipped, human_s(s->skipped));
	if (s->restart.restarts)
		supervise_terminal_event(t, TONE_PLAIN, "restarts", "%lld",
					 (long long)s->restart.restarts);
	if (s->ckpt_step >= 0)
		supervise_terminal_event(t, TONE_PLAIN, "newest", "%s", s->ckpt_path);
	if (rundir_lost(s->o.run))
		supervise_terminal_event(t, TONE_WARN, "warn",
					 "%d line%s of events or metrics could not be written; is "
					 "the disk full, or is there "
					 "a limit of file sizes (ulimit -f)?",
					 rundir_lost(s->o.run), human_s(rundir_lost(s->o.run)));
	supervise_terminal_event(t, TONE_PLAIN, "run", "%s", rundir_path(s->o.run));
}

static void print_end(struct supervisor *s)
{
	struct terminal *t = s->o.term;
	char wall[32], who[256];
	supervise_terminal_duration(supervise_now(s) - s->opened, wall, sizeof wall);
	long long steps = (long long)s->d->job.job.steps;
	switch (s->status) {
	case STATUS_DONE:
		if (s->program.ranks)
			supervise_terminal_event(t, TONE_GOOD, "done",
						 "%d task%s ended with status 0, %s", s->world,
						 human_s(s->world), wall);
		else if (s->step < 0)
			supervise_terminal_event(t, TONE_GOOD, "done",
						 "the run was already complete: %lld step%s", steps,
						 human_s(steps));
		else
			supervise_terminal_event(t, TONE_GOOD, "done", "%lld step%s, %s", steps,
						 human_s(steps), wall);
		break;
	case STATUS_STOPPED:
		if (s->lost) {
			supervise_describe_lost_rank(s, who, sizeof who);
			supervise_terminal_event(t, TONE_BAD, "lost", "%s, while stopping: %s", who,
						 s->cause.text);
		}
		if (s->ckpt_step >= 0)
			supervise_terminal_event(
				t, TONE_WARN, "stopped",
				"after %s; the same command continues from step %lld", wall,
				(long long)s->ckpt_step);
		else if (s->program.ranks)
			supervise_terminal_event(
				t, TONE_WARN, "stopped",
				"after %s; the same command starts the program again", wall);
		else
			supervise_terminal_event(t, TONE_WARN, "stopped",
						 "after %s, without a new checkpoint; the same "
						 "command continues from the last one",
						 wall);
		break;
	case STATUS_GAVE_UP:
		supervise_terminal_event(t, TONE_BAD, "gave up", "after %s: %s", wall, s->reason);
		break;
	default:
		supervise_terminal_event(t, TONE_BAD, "failed", "%s", s->reason);
	}
}

/* The last line of a run that failed: whoever comes back to the terminal reads it first. It was
 * perhaps printed hours ago, with the first one of these losses. */
static void print_remedy(struct supervisor *s)
{
	bool failed = s->status == STATUS_FAILED || s->status == STATUS_GAVE_UP;
	if (failed && s->fault && *s->fault->remedy)
		supervise_terminal_event(s->o.term, TONE_BAD, "remedy", "%s", s->fault->remedy);
}

void supervise_report_end(struct supervisor *s)
{
	const struct rundir_end end = { .reason = s->reason,
					.status = s->status,
					.step = s->step,
					.restarts = s->restart.restarts };
	report_contract(s);
	supervise_times_end(s);
	if (s->status == STATUS_DONE)
		rundir_event_done(s->o.run, s->generation, &end);
	else if (s->status == STATUS_STOPPED)
		rundir_event_stopped(s->o.run, s->generation, &end);
	else if (s->status == STATUS_GAVE_UP)
		rundir_event_gave_up(s->o.run, s->generation, &end);
	else
		rundir_event_failed(s->o.run, s->generation, &end);
	supervise_notice_end(s);
	supervise_terminal_waiting(s->o.term, "");
	if (s->program.ranks)
		supervise_program_end_output(s);
	supervise_collect_end(s);
	print_end(s);
	print_results(s);
	print_remedy(s);
}
