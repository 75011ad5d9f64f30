/* report — what goes into events.jsonl and metrics.jsonl, and what a person is told of it. */
#include "base/file.h"
#include "base/human.h"
#include "launcher/supervise/state.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { REFUSALS_TOLD = 20 }; /* of a generation: strangers must not fill the disk */

static const char *const how_words[] = {
	[LOSS_CLOSED] = "closed",     [LOSS_EXITED] = "exited", [LOSS_FAILED] = "failed",
	[LOSS_PROTOCOL] = "protocol", [LOSS_SILENT] = "silent", [LOSS_HUNG] = "hung",
	[LOSS_START] = "start",
};

void supervise_report_event(struct supervisor *s, const char *event, json_t *fields)
{
	rundir_event(s->o.run, s->generation, event, fields);
}

void supervise_report_started(struct supervisor *s, const char *resume)
{
	const struct layout *l = &s->o.plan->layout;
	char text[64];
	supervise_report_event(s, "plan",
			       json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:f}", "world", s->world,
					 "tp", l->tp, "cp", l->cp, "ep", l->ep, "dp", l->dp, "pp",
					 l->pp, "step_s", s->o.plan->time.total));
	supervise_report_event(s, "generation-start",
			       json_pack("{s:s, s:I, s:s}", "resume", resume, "restarts",
					 (json_int_t)s->restart.restarts, "auth",
					 s->munge.work ? "secret and MUNGE credential" : "secret"));
	if (!s->first)
		supervise_terminal_event(
			s->o.term, TONE_WARN, "restart", "generation %u, %s", s->generation,
			s->ckpt_step >= 0
				? "from the newest checkpoint"
				: "from where this one began: no checkpoint was written since");
	snprintf(text, sizeof text, "starting %d agent%s", s->world, human_s(s->world));
	supervise_terminal_waiting(s->o.term, text);
}

static json_t *rank_fields(const struct supervisor *s, int rank)
{
	if (rank < 0)
		return json_pack("{s:n}", "rank");
	const struct rank_state *k = &s->ranks[rank];
	return json_pack("{s:i, s:s, s:I, s:s}", "rank", rank, "node", supervisor_node(s, rank),
			 "step", (json_int_t)k->step, "phase", k->phase);
}

static void add_status(const struct rank_state *k, json_t *fields)
{
	if (!k->exited)
		return;
	if (WIFSIGNALED(k->status))
		json_object_set_new(fields, "signal", json_integer(WTERMSIG(k->status)));
	else
		json_object_set_new(fields, "status", json_integer(WEXITSTATUS(k->status)));
}

void supervise_report_loss(struct supervisor *s)
{
	json_t *fields = rank_fields(s, s->loss.rank);
	json_object_set_new(fields, "how", json_string(how_words[s->loss.how]));
	json_object_set_new(fields, "code", json_string(err_word(s->loss.code)));
	json_object_set_new(fields, "text", json_string(s->loss.text));
	if (s->loss.rank >= 0)
		add_status(&s->ranks[s->loss.rank], fields);
	supervise_report_event(s, "rank-lost", fields);
}

void supervise_report_verdict(struct supervisor *s, json_t *verdict)
{
	const char *finding = json_string_value(json_object_get(verdict, "finding"));
	supervise_report_event(s, "verdict", json_incref(verdict));
	if (finding && strcmp(finding, "none"))
		supervise_terminal_event(s->o.term, TONE_BAD, "verdict", "%s",
					 json_string_value(json_object_get(verdict, "text")));
}

void supervise_report_exit(struct supervisor *s, int rank)
{
	json_t *fields = rank_fields(s, rank);
	add_status(&s->ranks[rank], fields);
	supervise_report_event(s, "exit", fields);
}

/* The last line that an agent printed outside its own log: what the dynamic linker or PMIx had to
 * say. srun's own count only where no agent said anything. */
static void show_log(struct supervisor *s)
{
	char path[1200], line[512], last[512] = "";
	snprintf(path, sizeof path, "%s/logs/launch-%u.log", rundir_path(s->o.run), s->generation);
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

/* "rank 4 on n1, after step 12 (forward)"; "the agents" when no rank in particular is to blame. */
static void name_lost(const struct supervisor *s, char *out, size_t size)
{
	int rank = s->loss.rank;
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
	snprintf(out, size, "rank %d on %.64s%s%s%s%s", rank, supervisor_node(s, rank), where,
		 *k->phase ? " (" : "", k->phase, *k->phase ? ")" : "");
}

void supervise_report_blame(struct supervisor *s)
{
	char who[256], end[96] = "";
	const struct rank_state *k = s->loss.rank >= 0 ? &s->ranks[s->loss.rank] : NULL;
	name_lost(s, who, sizeof who);
	if (k && k->exited && s->loss.how == LOSS_CLOSED && WIFSIGNALED(k->status))
		snprintf(end, sizeof end, ", killed by signal %d (%.40s)", WTERMSIG(k->status),
			 strsignal(WTERMSIG(k->status)));
	else if (k && k->exited && s->loss.how == LOSS_CLOSED)
		snprintf(end, sizeof end, ", exit status %d", WEXITSTATUS(k->status));
	supervise_terminal_event(s->o.term, TONE_BAD, "lost", "%s: %s%s", who, s->loss.text, end);
	if (!s->stepped && s->loss.how != LOSS_FAILED)
		show_log(s);
}

void supervise_report_refused(struct supervisor *s, const char *why)
{
	if (s->refusals++ < REFUSALS_TOLD)
		supervise_report_event(s, "refused", json_pack("{s:s}", "why", why));
}

void supervise_report_trouble(struct supervisor *s, const char *why)
{
	supervise_report_event(s, "unheard", json_pack("{s:s}", "why", why));
	supervise_terminal_event(s->o.term, TONE_WARN, "warn",
				 "agents that connect cannot be let in: %s", why);
}

static double number(const json_t *body, const char *key)
{
	const json_t *v = json_object_get(body, key);
	return json_is_number(v) ? json_number_value(v) : NAN;
}

static void first_step(struct supervisor *s, int64_t step, double loss)
{
	double now = supervisor_now(s);
	json_t *fields = json_pack("{s:I, s:f}", "step", (json_int_t)step, "since_start_s",
				   now - s->started);
	if (isfinite(loss))
		json_object_set_new(fields, "loss", json_real(loss));
	if (!s->first)
		json_object_set_new(fields, "since_lost_s", json_real(now - s->loss.at));
	else
		json_object_set_new(fields, "since_open_s", json_real(now - s->opened));
	supervise_report_event(s, "first-step", fields);
	s->stepped = true;
}

/* A generation's first step warms up caches and is left out of the measured time. */
static void measure(struct supervisor *s, const json_t *body, double step_s, double tokens)
{
	if (!(step_s > 0))
		return;
	s->step_s = s->step_s > 0 && s->stepped ? 0.9 * s->step_s + 0.1 * step_s : step_s;
	if (!s->stepped)
		return;
	supervise_contract_step(&s->contract, body);
	s->measured_s += step_s;
	s->measured++;
	if (tokens > 0)
		s->tokens += tokens;
}

void supervise_report_metrics(struct supervisor *s, json_t *body)
{
	double step_s = number(body, "step_s"), tokens = number(body, "tokens");
	int64_t step = json_integer_value(json_object_get(body, "step"));
	struct terminal_step t = {
		.step = step,
		.loss = number(body, "loss"),
		.grad_norm = number(body, "grad_norm"),
		.lr = number(body, "lr"),
		.cross_entropy = number(body, "cross_entropy"),
		.tokens_s = step_s > 0 && tokens > 0 ? tokens / step_s : 0,
		.step_s = step_s,
		.loss_scale = number(body, "loss_scale"),
		.skipped = json_is_true(json_object_get(body, "skipped")),
	};
	json_object_set_new(body, "predicted_s", json_real(s->o.plan->time.total));
	rundir_metrics(s->o.run, s->generation, json_incref(body));
	measure(s, body, step_s, tokens);
	if (s->step < 0) {
		s->first_loss = t.loss;
		s->first_loss_step = step;
	}
	if (!s->stepped)
		first_step(s, step, t.loss);
	s->step = step;
	s->last_loss = t.loss;
	s->skipped += t.skipped;
	t.left_s = s->step_s > 0 ? (double)(s->o.job->job.steps - step) * s->step_s : -1;
	supervise_terminal_step(s->o.term, &t, supervisor_now(s));
}

void supervise_report_eval(struct supervisor *s, int64_t step, double loss)
{
	s->eval_loss = loss;
	s->has_eval = true;
	supervise_report_event(s, "eval",
			       json_pack("{s:I, s:f}", "step", (json_int_t)step, "loss", loss));
	supervise_terminal_event(s->o.term, TONE_PLAIN, "eval", "step %lld  loss %.4f",
				 (long long)step, loss);
}

void supervise_report_ckpt(struct supervisor *s, json_t *body)
{
	char bytes[HUMAN];
	double size = number(body, "bytes"), took = number(body, "seconds");
	supervise_report_event(s, "ckpt", json_incref(body));
	supervise_terminal_event(s->o.term, TONE_GOOD, "checkpoint", "step %lld, %s in %.2f s",
				 (long long)s->ckpt_step,
				 human_bytes(isfinite(size) ? size : 0, bytes),
				 isfinite(took) ? took : 0);
}

/* A node's agents have more threads than it has cores. */
static bool shares_cores(const struct supervisor *s)
{
	const struct plan *p = s->o.plan;
	int threads = 0;
	for (int i = 0; i < p->world; i++) {
		const struct node_kind *k = topo_cluster_kind(s->o.cluster, p->ranks[i].node);
		threads = (i && p->ranks[i].node == p->ranks[i - 1].node ? threads : 0) +
			  p->ranks[i].threads;
		if (!strcmp(k->device, "cpu") && threads > k->cores)
			return true;
	}
	return false;
}

static void log_contract(struct supervisor *s)
{
	double predicted[CONTRACT_PARTS];
	if (!s->contract.steps)
		return;
	supervise_contract_predicted(s->o.job, s->o.cluster, s->o.plan, predicted);
	supervise_report_event(s, "contract", supervise_contract_json(&s->contract, predicted));
}

static void tell_contract(struct supervisor *s)
{
	double predicted[CONTRACT_PARTS];
	char text[300];
	if (!s->contract.steps)
		return;
	supervise_contract_predicted(s->o.job, s->o.cluster, s->o.plan, predicted);
	supervise_contract_tell(&s->contract, predicted, s->o.term);
	if (supervise_contract_mismatch(&s->contract, predicted, shares_cores(s), text,
					sizeof text))
		supervise_terminal_event(s->o.term, TONE_WARN, "warn", "%s", text);
}

static void tell_numbers(struct supervisor *s)
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
					 "%s tokens/s; a step took %.4g s, %.4g s were predicted",
					 human_count(s->tokens / s->measured_s, "", speed),
					 s->measured_s / (double)s->measured,
					 s->o.plan->time.total);
	tell_contract(s);
	if (s->skipped)
		supervise_terminal_event(
			t, TONE_PLAIN, "skipped",
			"%lld step%s, whose gradients overflowed at the loss scale that was tried",
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

static void tell_end(struct supervisor *s)
{
	struct terminal *t = s->o.term;
	char wall[32], who[256];
	supervise_terminal_span(supervisor_now(s) - s->opened, wall, sizeof wall);
	long long steps = (long long)s->o.job->job.steps;
	switch (s->status) {
	case STATUS_DONE:
		if (s->step < 0)
			supervise_terminal_event(t, TONE_GOOD, "done",
						 "the run was complete already: %lld step%s", steps,
						 human_s(steps));
		else
			supervise_terminal_event(t, TONE_GOOD, "done", "%lld step%s, %s", steps,
						 human_s(steps), wall);
		break;
	case STATUS_STOPPED:
		if (s->lost) {
			name_lost(s, who, sizeof who);
			supervise_terminal_event(t, TONE_BAD, "lost", "%s, while stopping: %s", who,
						 s->loss.text);
		}
		if (s->ckpt_step >= 0)
			supervise_terminal_event(
				t, TONE_WARN, "stopped",
				"after %s; the same command goes on from step %lld", wall,
				(long long)s->ckpt_step);
		else
			supervise_terminal_event(t, TONE_WARN, "stopped",
						 "after %s, without a new checkpoint; the same "
						 "command goes on from the "
						 "last one there is",
						 wall);
		break;
	case STATUS_GAVE_UP:
		supervise_terminal_event(t, TONE_BAD, "gave up", "after %s: %s", wall, s->reason);
		break;
	default:
		supervise_terminal_event(t, TONE_BAD, "failed", "%s", s->reason);
	}
}

void supervise_report_end(struct supervisor *s, const char *event)
{
	log_contract(s);
	supervise_report_event(s, event,
			       json_pack("{s:s, s:i, s:I, s:I}", "reason", s->reason, "status",
					 s->status, "step", (json_int_t)s->step, "restarts",
					 (json_int_t)s->restart.restarts));
	supervise_terminal_waiting(s->o.term, "");
	tell_end(s);
	tell_numbers(s);
}
