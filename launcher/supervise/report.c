/* report: what the supervisor writes to events.jsonl and metrics.jsonl, and prints for people. */
#include "base/file.h"
#include "base/human.h"
#include "base/run_paths.h"
#include "launcher/supervise/supervisor.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { REFUSALS_MAX = 20 }; /* events per generation: strangers must not fill the disk */

static const char *const how_words[] = {
	[LOST_CLOSED] = "closed",     [LOST_EXITED] = "exited", [LOST_FAILED] = "failed",
	[LOST_PROTOCOL] = "protocol", [LOST_SILENT] = "silent", [LOST_HUNG] = "hung",
	[LOST_START] = "start",
};

void supervise_report_started(struct supervisor *s, const char *resume)
{
	const struct layout *l = &s->d->plan.layout;
	char text[64];
	rundir_event_plan(s->o.run, s->generation,
			  &(struct rundir_plan){ .world = s->world,
						 .tp = l->tp,
						 .cp = l->cp,
						 .ep = l->ep,
						 .dp = l->dp,
						 .pp = l->pp,
						 .step_s = s->d->plan.time.total });
	rundir_event_generation_start(
		s->o.run, s->generation,
		&(struct rundir_start){ .resume = resume,
					.restarts = s->restart.restarts,
					.auth = s->munge.work ? "secret and MUNGE credential"
							      : "secret" });
	if (!s->first)
		supervise_terminal_event(s->o.term, TONE_WARN, "restart", "generation %u starts",
					 s->generation);
	snprintf(text, sizeof text, "starting %d agent%s", s->world, human_s(s->world));
	supervise_terminal_waiting(s->o.term, text);
}

/* "continuing from step 40; 7 steps are repeated" */
static void describe_resume(const struct supervisor *s, char *out, size_t size)
{
	long long at = (long long)s->resumed;
	int64_t repeated = s->step > s->resumed ? s->step - s->resumed : 0;
	char again[80] = "";
	if (repeated)
		snprintf(again, sizeof again, "; %lld step%s repeated", (long long)repeated,
			 repeated == 1 ? " is" : "s are");
	if (s->resumed > 0)
		snprintf(out, size, "continuing from step %lld%s", at, again);
	else
		snprintf(out, size, "starting from the beginning%s", again);
}

void supervise_report_ready(struct supervisor *s)
{
	char text[200];
	bool lost = s->ckpt_step >
		    s->resumed; /* deleted, damaged, or not in this folder any more */
	rundir_event_ready(s->o.run, s->generation, &(struct rundir_step){ .step = s->resumed });
	if (s->first && s->resumed <= 0)
		return;
	describe_resume(s, text, sizeof text);
	if (lost)
		supervise_terminal_event(s->o.term, TONE_BAD, "resume",
					 "%s, because the checkpoint of step %lld is gone or "
					 "damaged: %s",
					 text, (long long)s->ckpt_step, s->ckpt_path);
	else
		supervise_terminal_event(s->o.term, TONE_WARN, "resume", "%s", text);
	if (lost)
		s->ckpt_step = -1;
}

static bool ended_by_signal(const struct rank_state *k)
{
	return k->exited && WIFSIGNALED(k->status);
}

static bool has_exited(const struct rank_state *k)
{
	return k->exited && !WIFSIGNALED(k->status);
}

void supervise_report_loss(struct supervisor *s)
{
	int rank = s->cause.rank;
	supervise_symptoms(s, &s->symptom);
	s->fault = supervise_fault_of(&s->symptom);
	struct rundir_rank_lost lost = {
		.fault = s->fault->name,
		.owner = supervise_owner_word(s->fault->owner),
		.how = how_words[s->cause.how],
		.code = err_word(s->cause.code),
		.text = s->cause.text,
	};
	if (rank >= 0) {
		const struct rank_state *k = &s->ranks[rank];
		lost.has_rank = lost.has_node = lost.has_step = lost.has_phase = true;
		lost.rank = rank;
		lost.node = supervise_node(s, rank);
		lost.step = k->step;
		lost.phase = k->phase;
		lost.has_signal = ended_by_signal(k);
		lost.signal = WTERMSIG(k->status);
		lost.has_status = has_exited(k);
		lost.status = WEXITSTATUS(k->status);
	}
	rundir_event_rank_lost(s->o.run, s->generation, &lost);
}

void supervise_report_verdict(struct supervisor *s, const struct rundir_verdict *v)
{
	rundir_event_verdict(s->o.run, s->generation, v);
	if (strcmp(v->finding, "none"))
		supervise_terminal_event(s->o.term, TONE_BAD, "verdict", "%s", v->text);
}

void supervise_report_exit(struct supervisor *s, int rank)
{
	const struct rank_state *k = &s->ranks[rank];
	rundir_event_exit(s->o.run, s->generation,
			  &(struct rundir_exit){ .has_rank = true,
						 .rank = rank,
						 .has_node = true,
						 .node = supervise_node(s, rank),
						 .has_step = true,
						 .step = k->step,
						 .has_phase = true,
						 .phase = k->phase,
						 .has_signal = ended_by_signal(k),
						 .signal = WTERMSIG(k->status),
						 .has_status = has_exited(k),
						 .status = WEXITSTATUS(k->status) });
}

void supervise_report_log(struct supervisor *s, int rank, const char *level, const char *text)
{
	rundir_event_log(s->o.run, s->generation,
			 &(struct rundir_log){ .rank = rank,
					       .node = supervise_node(s, rank),
					       .level = level,
					       .text = text });
}

/* Prints the last line of the launch log, where the dynamic linker and PMIx report errors. A line
 * of srun counts only if there is no other. */
static void print_launch_log(struct supervisor *s)
{
	char path[RUN_PATH], line[512], last[512] = "";
	run_path_launch_log(path, rundir_path(s->o.run), s->generation);
	int fd = file_open(path, O_RDONLY, FILE_OWN, NULL);
	FILE *in = fd < 0 ? NULL : fdopen(fd, "r");
	while (in && fgets(line, sizeof line, in))
		if (strcspn(line, "\n") && (strncmp(line, "srun: ", 6) || !*last))
			snprintf(last, sizeof last, "%.*s", (int)strcspn(line, "\n"), line);
	if (in)
		fclose(in);
	supervise_terminal_event(s->o.term, TONE_PLAIN, "log", "%s: %s", path,
				 *last ? last : "empty");
}

/* "rank 4 on n1, after step 12 (forward)"; "the agents" if no rank in particular is lost. */
static void describe_lost_rank(const struct supervisor *s, char *out, size_t size)
{
	int rank = s->cause.rank;
	if (rank < 0) {
		snprintf(out, size, "the agents");
		return;
	}
	const struct rank_state *k = &s->ranks[rank];
	char where[96] = "";
	if (k->step > 0)
		snprintf(where, sizeof where, ", after step %lld", (long long)k->step);
	else if (k->hello)
		snprintf(where, sizeof where, ", before its first step");
	snprintf(out, size, "rank %d on %.64s%s%s%s%s", rank, supervise_node(s, rank), where,
		 *k->phase ? " (" : "", k->phase, *k->phase ? ")" : "");
}

/* How the process of the lost rank ended, or what the supervisor saw, and what it means. */
static void describe_cause(const struct supervisor *s, char *out, size_t size)
{
	const struct symptom *m = &s->symptom;
	const struct lost_rank *l = &s->cause;
	bool ended = l->how == LOST_CLOSED || l->how == LOST_EXITED;
	if (ended && m->signal && sigabbrev_np(m->signal))
		snprintf(out, size, "killed by SIG%s; %s", sigabbrev_np(m->signal), s->fault->text);
	else if (ended && m->status)
		snprintf(out, size, "exit status %d; %s", m->status, s->fault->text);
	else if (ended)
		snprintf(out, size, "%s", s->fault->text);
	else if (l->how == LOST_FAILED || m->node == NODE_UP)
		snprintf(out, size, "%s", l->text);
	else
		snprintf(out, size, "%s; %s", l->text, s->fault->text);
}

static void write_fault(const struct supervisor *s)
{
	const struct symptom *m = &s->symptom;
	static const char *const words[] = {
		[RETRY_NEVER] = "never",
		[RETRY_ONCE] = "once",
		[RETRY_NOW] = "now",
		[RETRY_WAIT] = "wait",
	};
	bool ranked = s->cause.rank >= 0;
	rundir_event_fault(s->o.run, s->generation,
			   &(struct rundir_fault){ .has_rank = ranked,
						   .rank = s->cause.rank,
						   .has_node = ranked,
						   .node = supervise_node(s, s->cause.rank),
						   .fault = s->fault->name,
						   .owner = supervise_owner_word(s->fault->owner),
						   .retry = words[s->fault->retry],
						   .text = s->fault->text,
						   .remedy = s->fault->remedy,
						   .has_signal = m->signal != 0,
						   .signal = m->signal,
						   .has_status = m->status != 0,
						   .status = m->status });
}

void supervise_report_blame(struct supervisor *s)
{
	char who[256], why[1400];
	describe_lost_rank(s, who, sizeof who);
	describe_cause(s, why, sizeof why);
	write_fault(s);
	supervise_terminal_event(s->o.term, TONE_BAD, "lost", "%s: %s", who, why);
	if (!s->stepped && s->cause.how != LOST_FAILED)
		print_launch_log(s);
	/* An agent's own message ends with its remedy. */
	if (s->cause.how != LOST_FAILED && *s->fault->remedy && s->advice != s->fault)
		supervise_terminal_event(s->o.term, TONE_PLAIN, "remedy", "%s", s->fault->remedy);
	s->advice = s->fault;
}

void supervise_report_restart(struct supervisor *s, double wait)
{
	rundir_event_restart(s->o.run, s->generation,
			     &(struct rundir_restart){ .delay_s = wait,
						       .futile = s->restart.futile });
	if (s->fault->retry == RETRY_WAIT)
		supervise_terminal_event(s->o.term, TONE_WARN, "wait",
					 "%g s, then another start; muster waits up to %g s "
					 "([restart] patience), and this restart does not count",
					 wait, s->restart.limits.patience);
	else if (wait > 0)
		supervise_terminal_event(s->o.term, TONE_WARN, "restart",
					 "in %g s, because the last generation made no progress",
					 wait);
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

/* The first step of a generation warms up caches, so it is left out of the measured time. */
static void add_measured_step(struct supervisor *s, const struct msg_metrics *m)
{
	if (!(m->step_s > 0))
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
	};
	rundir_metrics(s->o.run, s->generation, m, s->d->plan.time.total);
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
	t.left_s = s->step_s > 0 ? (double)(s->d->job.job.steps - m->step) * s->step_s : -1;
	supervise_terminal_step(s->o.term, &t, supervise_now(s));
}

void supervise_report_eval(struct supervisor *s, const struct msg_eval *m)
{
	s->eval_loss = m->loss;
	s->has_eval = true;
	rundir_event_eval(s->o.run, s->generation,
			  &(struct rundir_eval){ .step = m->step, .loss = m->loss });
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
	supervise_terminal_event(s->o.term, TONE_GOOD, "checkpoint", "step %lld, %s in %.2f s",
				 (long long)m->step, human_bytes((double)m->bytes, bytes),
				 isfinite(m->seconds) ? m->seconds : 0);
}

/* Whether the agents of a node have more threads than it has cores. */
static bool shares_cores(const struct supervisor *s)
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

static void report_contract(struct supervisor *s)
{
	double predicted[STEP_PART_COUNT];
	if (!s->contract.steps)
		return;
	supervise_contract_predicted(&s->d->job, &s->d->cluster, &s->d->plan, predicted);
	json_t *o = supervise_contract_json(&s->contract, predicted);
	json_t *memory = json_object_get(o, "memory");
	rundir_event_contract(
		s->o.run, s->generation,
		&(struct rundir_contract){ .steps = s->contract.steps,
					   .predicted = json_object_get(o, "predicted"),
					   .measured = json_object_get(o, "measured"),
					   .has_memory = memory != NULL,
					   .memory = memory });
	json_decref(o);
}

static void print_contract(struct supervisor *s)
{
	double predicted[STEP_PART_COUNT];
	char text[300];
	if (!s->contract.steps)
		return;
	supervise_contract_predicted(&s->d->job, &s->d->cluster, &s->d->plan, predicted);
	supervise_contract_print(&s->contract, predicted, s->o.term);
	if (supervise_contract_mismatch(&s->contract, predicted, shares_cores(s), text,
					sizeof text))
		supervise_terminal_event(s->o.term, TONE_WARN, "warn", "%s", text);
}

static void print_results(struct supervisor *s)
{
	struct terminal *t = s->o.term;
	char speed[HUMAN];
	if (s->step >= 0 && s->has_eval)
		supervise_terminal_event(
			t, TONE_PLAIN, "loss",
			"%.4f after step %lld, %.4f after step %lld; held out %.4f", s->first_loss,
			(long long)s->first_loss_step, s->last_loss, (long long)s->step,
			s->eval_loss);
	else if (s->step >= 0)
		supervise_terminal_event(t, TONE_PLAIN, "loss",
					 "%.4f after step %lld, %.4f after step %lld",
					 s->first_loss, (long long)s->first_loss_step, s->last_loss,
					 (long long)s->step);
	if (s->measured)
		supervise_terminal_event(t, TONE_PLAIN, "speed",
					 "%s tokens/s; %.4g s per step, %.4g s predicted",
					 human_count(s->tokens / s->measured_s, "", speed),
					 s->measured_s / (double)s->measured,
					 s->d->plan.time.total);
	print_contract(s);
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
		if (s->step < 0)
			supervise_terminal_event(t, TONE_GOOD, "done",
						 "the run was already complete: %lld step%s", steps,
						 human_s(steps));
		else
			supervise_terminal_event(t, TONE_GOOD, "done", "%lld step%s, %s", steps,
						 human_s(steps), wall);
		break;
	case STATUS_STOPPED:
		if (s->lost) {
			describe_lost_rank(s, who, sizeof who);
			supervise_terminal_event(t, TONE_BAD, "lost", "%s, while stopping: %s", who,
						 s->cause.text);
		}
		if (s->ckpt_step >= 0)
			supervise_terminal_event(
				t, TONE_WARN, "stopped",
				"after %s; the same command continues from step %lld", wall,
				(long long)s->ckpt_step);
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

void supervise_report_end(struct supervisor *s)
{
	const struct rundir_end end = { .reason = s->reason,
					.status = s->status,
					.step = s->step,
					.restarts = s->restart.restarts };
	report_contract(s);
	if (s->status == STATUS_DONE)
		rundir_event_done(s->o.run, s->generation, &end);
	else if (s->status == STATUS_STOPPED)
		rundir_event_stopped(s->o.run, s->generation, &end);
	else if (s->status == STATUS_GAVE_UP)
		rundir_event_gave_up(s->o.run, s->generation, &end);
	else
		rundir_event_failed(s->o.run, s->generation, &end);
	supervise_terminal_waiting(s->o.term, "");
	print_end(s);
	print_results(s);
}
