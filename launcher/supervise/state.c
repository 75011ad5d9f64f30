#include "launcher/supervise/state.h"

#include "base/clock.h"
#include "base/human.h"
#include "base/version.h"
#include "launcher/supervise/supervisor.h"
#include "plan/layout_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What a state of the supervisor is to people. */
static enum rundir_state_id state_of(const struct supervisor *s)
{
	static const enum rundir_state_id words[SUP_STATE_COUNT] = {
		[SUP_CHECKING] = RUNDIR_STATE_STARTING,
		[SUP_STARTING] = RUNDIR_STATE_STARTING,
		[SUP_PREPARING] = RUNDIR_STATE_STARTING,
		[SUP_TRAINING] = RUNDIR_STATE_TRAINING,
		[SUP_STOPPING] = RUNDIR_STATE_STOPPING,
		[SUP_EXITING] = RUNDIR_STATE_STOPPING,
		[SUP_DUMPING] = RUNDIR_STATE_RESTARTING,
		[SUP_ANALYZING] = RUNDIR_STATE_RESTARTING,
		[SUP_EXAMINING] = RUNDIR_STATE_RESTARTING,
		[SUP_REGROUPING] = RUNDIR_STATE_RESTARTING,
		[SUP_DRAINING] = RUNDIR_STATE_RESTARTING,
		[SUP_SURVEYING] = RUNDIR_STATE_RESTARTING,
		[SUP_WAITING] = RUNDIR_STATE_WAITING,
		[SUP_BACKOFF] = RUNDIR_STATE_RESTARTING,
		[SUP_LEAVING] = RUNDIR_STATE_STOPPING,
		[SUP_ENDING] = RUNDIR_STATE_STOPPING,
		[SUP_UPLOADING] = RUNDIR_STATE_UPLOADING,
	};
	enum rundir_state_id id = words[s->state];
	if (s->state == SUP_DONE)
		return s->status == STATUS_DONE      ? RUNDIR_STATE_DONE
		       : s->status == STATUS_STOPPED ? RUNDIR_STATE_STOPPED
		       : s->status == STATUS_GAVE_UP ? RUNDIR_STATE_GAVE_UP
						     : RUNDIR_STATE_FAILED;
	if (id == RUNDIR_STATE_STARTING && s->generation && !s->first)
		return RUNDIR_STATE_RESTARTING;
	if (id == RUNDIR_STATE_STOPPING && s->recovery.growing)
		return RUNDIR_STATE_RESTARTING;
	if (id == RUNDIR_STATE_RESTARTING && s->outcome == OUTCOME_STOPPED)
		return RUNDIR_STATE_STOPPING;
	return id;
}

/* Why the run is in this state; NULL: there is nothing to say. */
static const char *reason_of(const struct supervisor *s, enum rundir_state_id id)
{
	if (id == RUNDIR_STATE_RESTARTING || id == RUNDIR_STATE_WAITING)
		return s->recovery.growing ? "the run changes its nodes"
		       : s->lost           ? s->cause.text
					   : NULL;
	bool ends = id == RUNDIR_STATE_STOPPING || id > RUNDIR_STATE_DONE;
	return ends && *s->reason ? s->reason : NULL;
}

void supervise_state_note_metrics(struct supervisor *s, const struct msg_metrics *m)
{
	struct state_view *v = &s->view;
	double speed = m->step_s > 0 ? (double)m->tokens / m->step_s : 0;
	v->grad_norm = m->grad_norm;
	v->lr = m->lr;
	/* as step_s in report.c: the first step of a generation warms up caches */
	v->tokens_s = v->tokens_s > 0 && s->stepped ? 0.9 * v->tokens_s + 0.1 * speed : speed;
}

void supervise_state_note_eval(struct supervisor *s, int64_t step)
{
	s->view.eval_step = step;
}

void supervise_state_note_ckpt(struct supervisor *s, const struct msg_ckpt *m)
{
	s->view.ckpt = (struct rundir_state_ckpt){
		.step = m->step,
		.time = clock_wall_s(),
		.bytes = m->bytes,
		.seconds = m->seconds,
	};
}

/* Finished steps; -1: unknown. Until the first step of a generation, s->step is of the last one. Where a
 * program continues is known after its first step. */
static int64_t step_of(const struct supervisor *s)
{
	bool known = s->trained && (!s->program.ranks || s->program.began);
	return known && !s->stepped ? s->resumed : s->step;
}

static json_t *ckpt_json(const struct supervisor *s)
{
	struct rundir_state_ckpt c = s->view.ckpt;
	c.path = s->ckpt_path;
	return s->ckpt_step >= 0 ? rundir_state_ckpt_json(&c) : NULL;
}

static json_t *next_json(const struct supervisor *s, int64_t step)
{
	const struct job *job = &s->d->job;
	int64_t every = job->checkpoint.every, last = job_steps(job);
	if (step < 0 || step >= last)
		return NULL;
	int64_t next = every > 0 ? (step / every + 1) * every : last;
	next = next < last ? next : last;
	return rundir_state_next_json(
		&(struct rundir_state_next){ .step = next,
					     .has_eta_s = s->step_s > 0,
					     .eta_s = (double)(next - step) * s->step_s });
}

static void add_warning(json_t *list, bool holds, const char *id, const char *text)
{
	struct rundir_state_warning w = { .id = id, .text = text };
	if (holds)
		json_array_append_new(list, rundir_state_warning_json(&w));
}

static json_t *warnings_json(const struct supervisor *s)
{
	json_t *list = supervise_warnings_json(&s->warn.rules);
	int lost = rundir_lost(s->o.run);
	char text[200];
	snprintf(text, sizeof text,
		 "%d line%s of events or metrics could not be written; is the disk full?", lost,
		 human_s(lost));
	add_warning(list, lost > 0, "lost-lines", text);
	add_warning(list, s->suspects_failed, "suspects",
		    "the list of suspect nodes cannot be written");
	return list;
}

static void fill_progress(const struct supervisor *s, struct rundir_state *out)
{
	const struct state_view *v = &s->view;
	bool trained = s->step >= 0, timed = s->step_s > 0, program = s->program.ranks != NULL;
	struct cost_interval likely = { 0 };
	int64_t step = step_of(s);
	out->has_step = step >= 0;
	out->step = out->has_step ? step : 0;
	out->steps = job_steps(&s->d->job);
	/* a program need not report them */
	out->has_loss = trained && !(program && isnan(s->last_loss));
	out->has_grad_norm = trained && !(program && isnan(v->grad_norm));
	out->has_lr = trained && !(program && isnan(v->lr));
	out->loss = s->last_loss;
	out->grad_norm = v->grad_norm;
	out->lr = v->lr;
	out->has_eval_loss = out->has_eval_step = s->has_eval;
	out->eval_loss = s->eval_loss;
	out->eval_step = v->eval_step;
	out->has_tokens_s = v->tokens_s > 0;
	out->tokens_s = v->tokens_s;
	out->has_step_s = timed;
	out->step_s = s->step_s;
	out->predicted_s = program ? NAN : s->d->plan.time.total;
	out->has_least_s = out->has_most_s = supervise_contract_interval(
		&s->d->job, &s->d->cluster, &s->d->plan, out->predicted_s, &likely);
	out->least_s = likely.least;
	out->most_s = likely.most;
	out->has_eta_s = timed && step >= 0 && step < out->steps;
	out->eta_s = (double)(out->steps - step) * s->step_s;
}

static void fill_place(const struct supervisor *s, double now, double wall,
		       struct rundir_state *out)
{
	const struct process_id *id = &s->view.process;
	const char *job = s->o.ops->own_job ? s->o.ops->own_job() : NULL;
	out->world = s->world;
	out->nodes = launcher_deployment_nodes(s->d);
	out->has_job = job != NULL;
	out->job = job;
	out->host = s->view.host;
	out->pid = id->pid;
	out->start = id->start;
	out->pid_space = id->pid_space;
	out->boot = id->boot;
	out->folder = s->view.folder;
	out->has_ends = s->stop.ends > 0;
	out->ends = wall + s->stop.ends - now;
	out->has_lost_lines = rundir_lost(s->o.run) > 0;
	out->lost_lines = rundir_lost(s->o.run);
}

json_t *supervise_state_json(struct supervisor *s)
{
	double now = supervise_now(s), wall = clock_wall_s();
	enum rundir_state_id id = state_of(s);
	const char *reason = reason_of(s, id);
	struct buf layout = BUF_INIT;
	struct rundir_state out = {
		.version = RUNDIR_STATE_VERSION,
		.muster = MUSTER_VERSION,
		.name = s->o.job->job.name,
		.state = rundir_state_word(id),
		.has_reason = reason != NULL,
		.reason = reason,
		.has_status = s->state == SUP_DONE,
		.status = s->status,
		.since = s->view.since,
		.started = s->view.opened,
		.time = wall,
		.mono = now,
		.generation = s->generation,
		.restarts = s->restart.restarts,
		.checkpoint = ckpt_json(s),
		.next_checkpoint = rundir_state_active(id) ? next_json(s, step_of(s)) : NULL,
		.warnings = warnings_json(s),
		.stand_out = supervise_spots_json(s),
	};
	plan_print_degrees(&s->d->plan.layout, " × ", &layout);
	out.layout = buf_str(&layout);
	out.has_checkpoint = out.checkpoint != NULL;
	out.has_next_checkpoint = out.next_checkpoint != NULL;
	bool started = s->times.account.started;
	out.has_goodput = started && supervise_times_tell(s);
	out.goodput = time_parts_goodput(supervise_times_parts(s));
	out.account = started ? supervise_times_json(s) : NULL;
	out.has_account = out.account != NULL;
	fill_progress(s, &out);
	fill_place(s, now, wall, &out);
	json_t *o = rundir_state_json(&out);
	json_decref(out.account);
	json_decref(out.checkpoint);
	json_decref(out.next_checkpoint);
	json_decref(out.warnings);
	json_decref(out.stand_out);
	buf_fini(&layout);
	return o;
}

static void note_state(struct supervisor *s)
{
	struct state_view *v = &s->view;
	enum rundir_state_id id = state_of(s);
	if (v->opened <= 0) {
		v->opened = clock_wall_s();
		process_id_self(&v->process);
		if (gethostname(v->host, sizeof v->host - 1))
			strcpy(v->host, "unknown");
		if (!getcwd(v->folder, sizeof v->folder))
			strcpy(v->folder, "/");
	} else if (id == v->id) {
		return;
	}
	v->id = id;
	v->since = clock_wall_s();
	v->next = 0;
}

void supervise_state_write(struct supervisor *s)
{
	struct state_view *v = &s->view;
	struct err e = ERR_INIT;
	note_state(s);
	v->next = supervise_now(s) + STATE_S;
	json_t *o = supervise_state_json(s);
	int rc = o ? rundir_state_save(s->o.run, o, &e)
		   : err_set(&e, ERR_NOMEM, "no memory for state.json");
	json_decref(o);
	if (rc && !v->failed)
		supervise_terminal_event(s->o.term, TONE_WARN, "warn", "%s", e.text);
	v->failed = rc != 0;
}

void supervise_state_tick(struct supervisor *s)
{
	note_state(s);
	if (s->state != SUP_DONE && supervise_now(s) >= s->view.next)
		supervise_state_write(s);
}

/* Seconds of each part that the rank has reported; NULL: it has reported nothing. */
static json_t *parts_json(const struct account_report *r)
{
	static const char *const names[] = {
#define PART_NAME(with, ENUM, member, name, transfers, doc) #member,
		TIME_PARTS(PART_NAME, )
#undef PART_NAME
	};
	json_t *o = r->step ? json_object() : NULL;
	for (int i = 0; o && i < TIME_REPORTED; i++)
		json_object_set_new(o, names[TIME_STEP + i], json_real((double)r->us[i] * 1e-6));
	return o;
}

/* Seconds of a step in which the rank waited for others. */
static double wait_of(const struct account_report *r)
{
	int64_t us = 0;
	for (int i = 0; i < TIME_REPORTED; i++)
		if (time_part_transfers((enum time_part)(TIME_STEP + i)))
			us += r->us[i];
	return (double)us * 1e-6 / (double)r->step;
}

static json_t *rank_json(const struct supervisor *s, int rank, double now)
{
	const struct rank_state *k = &s->ranks[rank];
	const struct account_report *r = supervise_times_of(s, rank);
	const struct pace *p = s->stragglers.world == s->world ? &s->stragglers.ranks[rank] : NULL;
	bool paced = p && p->pace > 0, here = k->connection != NULL;
	json_t *parts = parts_json(r);
	json_t *o = rundir_state_rank_json(&(struct rundir_state_rank){
		.rank = rank,
		.node = supervise_node(s, rank),
		.phase = here ? k->phase : "",
		.step = here ? k->step : -1,
		.silent_s = here ? fmax(now - k->beat, 0) : NAN,
		.still_s = here ? fmax(now - k->moved, 0) : NAN,
		.has_own_s = paced,
		.own_s = paced ? p->pace : 0,
		.has_peers_s = paced && p->reference > 0,
		.peers_s = paced ? p->reference : 0,
		.has_wait_s = parts != NULL,
		.wait_s = parts ? wait_of(r) : 0,
		.has_parts = parts != NULL,
		.parts = parts,
		.has_peak_bytes = r->peak_bytes > 0,
		.peak_bytes = r->peak_bytes,
		.slow = p && p->straggler,
	});
	json_decref(parts);
	return o;
}

json_t *supervise_state_ranks_json(const struct supervisor *s, int first, int count)
{
	double now = supervise_now(s);
	json_t *list = json_array();
	int end = count < s->world - first ? first + count : s->world;
	for (int r = first; list && r < end; r++)
		json_array_append_new(list, rank_json(s, r, now));
	return list;
}
