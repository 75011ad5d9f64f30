#include "launcher/supervise/program.h"

#include "base/process.h"
#include "launcher/supervise/supervisor.h"
#include "plan/spec/job/retry_on.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* A generation of a program that reports no steps has made progress after so many seconds. */
static const double progress_s = 60;

int supervise_program_open(struct supervisor *s, struct err *e)
{
	if (!job_has_program(s->o.job))
		return 0;
	s->program.ranks = calloc((size_t)s->most, sizeof *s->program.ranks);
	s->program.last_of = calloc((size_t)s->o.machines->n_nodes, sizeof *s->program.last_of);
	s->program.failed = calloc((size_t)s->most, sizeof *s->program.failed);
	if (s->program.ranks && s->program.last_of && s->program.failed)
		return 0;
	supervise_program_close(s);
	return err_set(e, ERR_NOMEM, "no memory for %d tasks", s->most);
}

static void forget_tasks(struct supervisor *s)
{
	json_decref(s->program.meeting);
	s->program.meeting = NULL;
	for (int r = 0; s->program.ranks && r < s->most; r++) {
		json_decref(s->program.ranks[r].last_lines);
		s->program.ranks[r] = (struct program_rank){ .status = -1 };
	}
}

void supervise_program_close(struct supervisor *s)
{
	forget_tasks(s);
	json_decref(s->program.printed_lines);
	free(s->program.ranks);
	free(s->program.last_of);
	free(s->program.failed);
	s->program.ranks = NULL;
	s->program.last_of = s->program.failed = NULL;
}

/* --- places ----------------------------------------------------------------------------- */

/* Numbers the nodes in the order in which the ranks use them, and the tasks of each node. */
static void number_tasks(struct supervisor *s)
{
	struct program_state *g = &s->program;
	memset(g->last_of, -1, (size_t)s->o.machines->n_nodes * sizeof *g->last_of);
	for (int r = 0; r < s->world; r++) {
		int *last = &g->last_of[s->d->plan.ranks[r].node];
		g->ranks[r].group_rank = *last < 0 ? g->groups++ : g->ranks[*last].group_rank;
		g->ranks[r].local_rank = *last < 0 ? 0 : g->ranks[*last].local_rank + 1;
		g->ranks[r].first = *last < 0 ? r : g->ranks[*last].first;
		g->ranks[r].next = -1;
		if (*last >= 0)
			g->ranks[*last].next = r;
		*last = r;
	}
}

void supervise_program_reset(struct supervisor *s)
{
	struct program_rank *ranks = s->program.ranks;
	int *last_of = s->program.last_of, *failed = s->program.failed;
	if (!ranks)
		return;
	supervise_program_end_output(s);
	forget_tasks(s);
	s->program = (struct program_state){ .ranks = ranks,
					     .last_of = last_of,
					     .failed = failed,
					     .exited_rank = -1,
					     .printed_lines = s->program.printed_lines };
	number_tasks(s);
}

/* "0,1,3,2" */
static void list_devices(const struct supervisor *s, int rank, struct buf *out)
{
	for (int r = s->program.ranks[rank].first; r >= 0; r = s->program.ranks[r].next)
		buf_printf(out, "%s%d", out->len ? "," : "", s->d->plan.ranks[r].slot);
}

json_t *supervise_program_place(const struct supervisor *s, int rank)
{
	const struct program_rank *k = &s->program.ranks[rank];
	struct buf devices = BUF_INIT;
	list_devices(s, rank, &devices);
	json_t *body = msg_program_json(
		&(struct msg_program){ .local_rank = k->local_rank,
				       .group_rank = k->group_rank,
				       .group_world = s->program.groups,
				       .devices = buf_str(&devices),
				       .restarts = (int)s->restart.restarts,
				       .max_restarts = (int)s->restart.limits.max_restarts,
				       .run_id = s->d->job.job.name,
				       .umask = (int)process_inherited_umask(),
				       .shown = supervise_program_is_shown(s, rank) });
	buf_fini(&devices);
	return body;
}

int supervise_program_publish(struct supervisor *s, int rank, json_t *values, struct err *e)
{
	struct program_state *g = &s->program;
	if (rank != 0 || g->meeting || !json_is_object(values))
		return err_set(e, ERR_PROTO,
			       "message endpoints: it was sent twice or at the wrong time");
	g->meeting = json_pack("[O]", values);
	if (!g->meeting)
		return err_set(e, ERR_NOMEM, "no memory for the meeting point of the tasks");
	supervise_program_meet(s);
	return 0;
}

void supervise_program_meet(struct supervisor *s)
{
	json_t *list = s->program.meeting;
	if (list && s->hellos == s->world)
		supervise_broadcast(s, MSG_WORLD_ENDPOINTS,
				    msg_world_endpoints_json(&(struct msg_world_endpoints){
					    .first = 0, .values = list }));
}

/* --- what tasks do ------------------------------------------------------------------------ */

void supervise_program_note_task(struct supervisor *s, int rank, const struct msg_task *m)
{
	struct process_id *id = &s->program.ranks[rank].task;
	*id = (struct process_id){ .pid = m->pid, .start = m->start, .pid_space = m->pid_space };
	snprintf(id->boot, sizeof id->boot, "%s", m->boot);
}

void supervise_program_note_began(struct supervisor *s, int rank, const struct msg_began *m)
{
	supervise_times_began(s, rank, m->step, m->seconds);
	s->program.start_s = fmax(s->program.start_s, m->seconds);
	if (s->program.began)
		return;
	s->program.began = true;
	s->resumed = m->step;
	supervise_report_resumed(s);
}

void supervise_program_note_ckpt(struct supervisor *s, const struct msg_client_ckpt *m)
{
	supervise_restart_ckpt(&s->restart, m->step);
	supervise_times_write(s);
	if (m->step <= s->ckpt_step)
		return;
	s->ckpt_step = m->step;
	snprintf(s->ckpt_path, sizeof s->ckpt_path, "%s", m->path);
	const struct msg_ckpt saved = { .step = m->step, .path = m->path };
	supervise_state_note_ckpt(s, &saved);
	supervise_comment_note_ckpt(s, m->step);
	supervise_console_note_ckpt(s, m->step, m->path);
	rundir_event_ckpt(s->o.run, s->generation,
			  &(struct rundir_ckpt){ .step = m->step, .path = m->path });
	exports_checkpoint(s->exports, &saved);
	supervise_terminal_event(s->o.term, TONE_GOOD, "checkpoint", "step %lld: %s",
				 (long long)m->step, m->path);
}

void supervise_program_note_failing(struct supervisor *s, int rank)
{
	struct program_rank *k = &s->program.ranks[rank];
	if (k->failing)
		return;
	s->program.failed[s->program.failing++] = rank;
	k->failing = s->program.failing;
}

bool supervise_program_failed_later(struct supervisor *s, int rank)
{
	struct program_state *g = &s->program;
	while (g->ended < g->failing && g->ranks[g->failed[g->ended]].status >= 0)
		g->ended++;
	return g->ranks && g->ended + 1 < g->ranks[rank].failing;
}

void supervise_program_note_end(struct supervisor *s, int rank, const struct msg_failed *m)
{
	struct program_rank *k = s->program.ranks ? &s->program.ranks[rank] : NULL;
	if (!k || !m->has_status)
		return;
	k->status = m->status;
	json_decref(k->last_lines);
	k->last_lines = m->has_last_lines ? json_incref(m->last_lines) : NULL;
}

void supervise_program_note_exit(struct supervisor *s, int rank)
{
	if (!s->program.ranks || s->program.exited_rank >= 0)
		return;
	s->program.exited_rank = rank;
	s->program.exited_at = supervise_now(s);
}

/* --- hangs that the progress of ranks does not show ------------------------------------------ */

/* When the rank's task has computed, printed or reported something for the last time. */
static double last_work(const struct supervisor *s, int rank)
{
	return fmax(s->ranks[rank].moved, s->ranks[rank].active_at);
}

/* The same of all tasks that still run. */
static double last_work_of_all(const struct supervisor *s)
{
	double last = 0;
	for (int r = 0; r < s->world; r++)
		if (!s->ranks[r].finished)
			last = fmax(last, last_work(s, r));
	return last;
}

/* Others may go on for long, such as a rank that evaluates at the end; but if they only wait, they wait
 * for the one that is gone. */
static bool exited_too_early(struct supervisor *s, double now)
{
	const struct program_state *g = &s->program;
	double limit = s->d->job.program.exit_timeout,
	       since = fmax(g->exited_at, last_work_of_all(s));
	char text[300];
	if (g->exited_rank < 0 || limit <= 0 || now - since < limit)
		return false;
	snprintf(text, sizeof text,
		 "the task exited with status 0, and %d of %d others still run and have been idle "
		 "for %.3g s; if they do not wait for it, raise program.exit_timeout",
		 s->world - s->finishes, s->world - 1, now - since);
	supervise_lose_rank(s, g->exited_rank, LOST_FAILED, ERR_TASK, text);
	return true;
}

static void check_silence(struct supervisor *s, double now)
{
	const struct program_state *g = &s->program;
	double limit = s->d->job.program.silence, since = fmax(g->printed_at, g->ready_at);
	char text[200];
	if (limit <= 0 || now - since < limit)
		return;
	snprintf(text, sizeof text, "no task has printed anything for %.3g s (program.silence)",
		 now - since);
	int rank = 0; /* the first one whose task still runs */
	while (rank + 1 < s->world && s->ranks[rank].finished)
		rank++;
	supervise_lose_rank(s, rank, LOST_HUNG, ERR_TIMEOUT, text);
}

/* A rank that does nothing while others work may wait for them, or they for it: people decide. */
static void name_idle_rank(struct supervisor *s, double now)
{
	double limit = s->d->job.restart.hang_timeout;
	if (s->program.idle_said || limit <= 0 || now - s->last_move > limit / 2)
		return;
	for (int r = 0; r < s->world && !s->program.idle_said; r++) {
		const struct rank_state *k = &s->ranks[r];
		if (!k->ready || k->finished || now - last_work(s, r) < limit)
			continue;
		s->program.idle_said = true;
		supervise_terminal_event(s->o.term, TONE_WARN, "idle",
					 "rank %d on %s has used no CPU and printed nothing for "
					 "%.3g s, while others work",
					 r, supervise_node(s, r), now - last_work(s, r));
		supervise_report_log(s, r, "warn",
				     "the task has used no CPU and printed nothing for as long as "
				     "restart.hang_timeout, while others work");
	}
}

void supervise_program_watch(struct supervisor *s)
{
	double now = supervise_now(s);
	if (!s->program.ranks)
		return;
	supervise_program_say_gaps(s);
	if (s->state != SUP_TRAINING)
		return;
	if (s->program.ready_at <= 0)
		s->program.ready_at = now;
	supervise_program_note_steps(s);
	name_idle_rank(s, now);
	if (!exited_too_early(s, now))
		check_silence(s, now);
}

/* --- the end ------------------------------------------------------------------------------ */

bool supervise_program_may_retry(const struct supervisor *s, struct err *e)
{
	const char *list = s->d->job.restart.retry_on;
	int rank = s->cause.rank;
	if (!s->program.ranks || rank < 0 || s->program.ranks[rank].status < 0 ||
	    s->cause.how != LOST_FAILED || job_retry_on_has(list, s->program.ranks[rank].status))
		return true;
	err_set(e, ERR_UNSUPPORTED, "[restart] retry_on = %s permits no restart after that", list);
	return false;
}

void supervise_program_judge_progress(struct supervisor *s)
{
	if (s->program.ranks && !s->program.began && s->program.ready_at > 0 &&
	    supervise_now(s) - s->program.ready_at >= progress_s)
		supervise_restart_progress(&s->restart);
}
