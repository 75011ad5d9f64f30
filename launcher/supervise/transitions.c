#include "launcher/oom.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct cause {
	const struct lost_rank *loss;
	const char *reason;
};

void supervise_end_generation(struct supervisor *s, enum outcome outcome)
{
	s->outcome = outcome;
	s->settle_at = 0;
	if (!supervise_agents_left(s)) {
		supervise_handle(s, EV_ALL_GONE, NULL, NULL);
		return;
	}
	bool wait = s->program.ranks && !supervise_recovery_node_lost(s);
	supervise_enter(s, SUP_DRAINING, wait ? s->o.limits.leave : s->o.limits.drain);
	supervise_broadcast(s, MSG_ABORT,
			    msg_abort_json(&(struct msg_abort){ .reason = s->lost ? s->cause.text
										  : s->reason }));
	if (!wait) /* agents of a program first end their tasks, which takes moments */
		supervise_agents_kill(s, supervise_recovery_node_lost(s));
}

static void do_judge_loss(struct supervisor *s, const struct cause *c)
{
	(void)c;
	supervise_recovery_stop_survey(s);
	supervise_judge_loss(s);
}

/* It waits for a node. A survey that cannot be made leaves the decision to the last one. */
static void do_look_again(struct supervisor *s, const struct cause *c)
{
	(void)c;
	supervise_recovery_stop_survey(s);
	supervise_enter(s, SUP_WAITING, s->o.limits.look);
	if (!supervise_recovery_survey(s, true))
		supervise_choose_deployment(s, 0);
}

static void do_use_checked_nodes(struct supervisor *s, const struct cause *c)
{
	(void)c;
	supervise_checks_finish_all(s);
	supervise_use_checked_nodes(s);
}

static void do_choose_again(struct supervisor *s, const struct cause *c)
{
	(void)c;
	supervise_recovery_stop_survey(s);
	supervise_choose_deployment(s, 0);
}

/* The state of the nodes is known while the processes are killed: those of a dead node do not count
 * any more. */
static void do_note_survey(struct supervisor *s, const struct cause *c)
{
	(void)c;
	if (supervise_recovery_node_lost(s))
		supervise_agents_kill(s, true);
}

static bool has_done_all_steps(const struct supervisor *s)
{
	if (s->program.ranks)
		return s->program.done;
	for (int r = 0; r < s->world; r++)
		if (!s->ranks[r].finished || s->ranks[r].step < s->d->job.job.steps)
			return false;
	return true;
}

static void do_gone(struct supervisor *s, const struct cause *c)
{
	(void)c;
	switch (s->outcome) {
	case OUTCOME_FINISHED:
		if (has_done_all_steps(s))
			supervise_end(s, STATUS_DONE);
		else if (s->recovery.growing)
			supervise_start_grown(s);
		else
			supervise_stop_leave(s);
		break;
	case OUTCOME_STOPPED:
		supervise_stop_leave(s);
		break;
	case OUTCOME_RESTART:
	case OUTCOME_NONE:
		supervise_survey_nodes(s);
		break;
	}
}

static void lose_generation(struct supervisor *s);

/* A generation that stops in order to grow is followed by another one. */
static bool stops_for_good(const struct supervisor *s)
{
	return s->state == SUP_STOPPING && !s->recovery.growing;
}

/* All processes are gone. If a rank blamed another one, that loss counts. There may be no lost rank
 * at all if the launch backend cannot distinguish ranks. */
static void do_all_vanished(struct supervisor *s, const struct cause *c)
{
	if (s->settle_at) {
		lose_generation(s);
		supervise_handle(s, EV_ALL_GONE, NULL, NULL);
		return;
	}
	if (!s->lost) {
		s->lost = true;
		s->cause = (struct lost_rank){
			.rank = -1, .how = LOST_EXITED, .code = ERR_PEER, .at = supervise_now(s)
		};
		snprintf(s->cause.text, sizeof s->cause.text,
			 "every agent ended without reporting an error");
		supervise_report_loss(s);
	}
	s->outcome = stops_for_good(s) ? OUTCOME_STOPPED : OUTCOME_RESTART;
	do_gone(s, c);
}

static void do_prepare(struct supervisor *s, const struct cause *c)
{
	(void)c;
	supervise_enter(s, SUP_PREPARING, 0);
	rundir_event_connected(s->o.run, s->generation, NULL);
	supervise_program_meet(s);
}

static void do_train(struct supervisor *s, const struct cause *c)
{
	(void)c;
	s->trained = true;
	s->oom_kills = launcher_oom_kills(s->o.root);
	supervise_enter(s, SUP_TRAINING, 0);
	supervise_report_ready(s);
	supervise_collect_ready(s);
}

static void do_exit(struct supervisor *s, const struct cause *c)
{
	(void)c;
	s->program.done = !s->stop.stopping && !s->recovery.growing;
	s->outcome = OUTCOME_FINISHED;
	s->lost = false;
	s->settle_at = 0;
	supervise_enter(s, SUP_EXITING, s->o.limits.drain);
	rundir_event_finished(s->o.run, s->generation,
			      &(struct rundir_step){ .step = s->ranks[0].step });
}

/* The agents of the other ranks live on if they can; otherwise every process is ended. */
static void leave_generation(struct supervisor *s)
{
	if (!supervise_regroup_start(s)) {
		supervise_end_generation(s, s->outcome);
		return;
	}
	supervise_enter(s, SUP_REGROUPING, s->d->job.restart.regroup_timeout);
	supervise_handle(s, EV_IDLE, NULL, NULL);
}

/* The generation is lost because of s->cause. */
static void lose_generation(struct supervisor *s)
{
	supervise_recovery_stop_survey(s); /* it may have found a node that still lived */
	bool trace = supervise_verdict_needed(s);
	s->lost = true;
	s->settle_at = 0;
	s->outcome = stops_for_good(s) ? OUTCOME_STOPPED : OUTCOME_RESTART;
	s->recovery.growing = false;
	supervise_report_loss(s);
	supervise_collect_lost(s, s->cause.rank);
	supervise_recovery_survey(s, true);
	if (!trace) {
		leave_generation(s);
		return;
	}
	supervise_enter(s, SUP_DUMPING, s->o.limits.trace);
	supervise_verdict_request(s);
	supervise_handle(s, EV_DUMPED, NULL, NULL); /* no agent may be left to answer */
}

/* What was to be found out about the lost generation is known. */
static void do_end_lost(struct supervisor *s, const struct cause *c)
{
	supervise_verdict_stop(s);
	supervise_stacks_finish(s);
	if (s->gone)
		do_gone(s, c);
	else
		leave_generation(s);
}

static void do_idle(struct supervisor *s, const struct cause *c)
{
	(void)c;
	if (!supervise_regroup_ready(s))
		return;
	supervise_regroup_keep(s);
	supervise_survey_nodes(s);
}

static void do_regroup_timeout(struct supervisor *s, const struct cause *c)
{
	if (supervise_regroup_read_out(s))
		return;
	if (!supervise_regroup_give_up(s)) {
		supervise_end_generation(s, s->outcome);
		return;
	}
	supervise_enter(s, SUP_REGROUPING, s->d->job.restart.regroup_timeout);
	do_idle(s, c);
}

/* Another rank is lost meanwhile, or tells late that the generation is lost. */
static void do_lose_more(struct supervisor *s, const struct cause *c)
{
	if (c->loss->rank >= 0 && !supervise_blames_another(c->loss)) {
		supervise_collect_lost(s, c->loss->rank);
		supervise_regroup_exclude(s, c->loss->rank);
	}
	do_idle(s, c);
}

static void do_stop_regrouping(struct supervisor *s, const struct cause *c)
{
	snprintf(s->reason, sizeof s->reason, "%s", c->reason);
	supervise_end_generation(s, OUTCOME_STOPPED);
}

static void do_end(struct supervisor *s, const struct cause *c)
{
	(void)c;
	supervise_end(s, s->status);
}

static void do_verdict_done(struct supervisor *s, const struct cause *c)
{
	supervise_verdict_stop(s);
	if (s->gone || !supervise_stacks_start(s)) {
		do_end_lost(s, c);
		return;
	}
	supervise_enter(s, SUP_EXAMINING, s->d->job.restart.stacks_timeout);
	if (supervise_stacks_ready(s))
		do_end_lost(s, c);
}

static void do_examined(struct supervisor *s, const struct cause *c)
{
	if (supervise_stacks_ready(s))
		do_end_lost(s, c);
}

static void do_read_verdict(struct supervisor *s, const struct cause *c)
{
	supervise_enter(s, SUP_ANALYZING, s->o.limits.trace);
	if (!supervise_verdict_read(s))
		do_verdict_done(s, c);
}

/* An agent has answered, or is lost and will not. */
static void do_count_dumps(struct supervisor *s, const struct cause *c)
{
	if (supervise_verdict_ready(s))
		do_read_verdict(s, c);
}

/* Every process is gone: none is left to answer or to be killed, but their files remain. */
static void do_note_gone(struct supervisor *s, const struct cause *c)
{
	s->gone = true;
	if (s->state == SUP_DUMPING)
		do_read_verdict(s, c);
	else if (s->state == SUP_EXAMINING)
		do_end_lost(s, c);
}

/* The cause is probably another rank, whose loss is not known yet. */
static bool follows_another(struct supervisor *s, const struct lost_rank *l)
{
	return supervise_blames_another(l) ||
	       (l->how == LOST_FAILED && l->code == ERR_TASK && l->rank >= 0 &&
		supervise_program_failed_later(s, l->rank));
}

static void do_lose(struct supervisor *s, const struct cause *c)
{
	if (follows_another(s, c->loss)) {
		s->ranks[c->loss->rank].blamed_peer = true;
		if (!s->settle_at) {
			s->cause = *c->loss;
			s->settle_at = supervise_now(s) + s->o.limits.settle;
		}
		return;
	}
	/* A rank that blamed another one exits after that. This is not a new cause. */
	if (s->settle_at && c->loss->rank >= 0 && s->ranks[c->loss->rank].blamed_peer &&
	    c->loss->how != LOST_HUNG)
		return;
	s->cause = *c->loss;
	lose_generation(s);
}

static void do_connect_timeout(struct supervisor *s, const struct cause *c)
{
	(void)c;
	struct lost_rank l = {
		.rank = -1, .how = LOST_SILENT, .code = ERR_TIMEOUT, .at = supervise_now(s)
	};
	for (int r = 0; r < s->world && l.rank < 0; r++)
		if (!s->ranks[r].hello)
			l.rank = r;
	snprintf(l.text, sizeof l.text, "%d of %d agents did not connect within %g s",
		 s->world - s->hellos, s->world, s->o.limits.start);
	supervise_handle(s, EV_LOST, &l, NULL);
}

/* Long enough for a checkpoint that is being written: it may take as long as a step may, or as long
 * as Slurm gives before the time limit. */
static double stop_seconds(const struct supervisor *s)
{
	const struct job *job = &s->d->job;
	double least = s->o.limits.stop;
	if (s->program.ranks) /* the step, then the request, then the signal, then SIGKILL */
		least = fmax(least, supervise_program_reach_seconds(s) +
					    2 * job->program.stop_grace + s->o.limits.drain);
	return fmax(least, fmax(job->restart.hang_timeout, (double)job->slurm.signal_before));
}

static void report_stop(struct supervisor *s, const char *reason)
{
	snprintf(s->reason, sizeof s->reason, "%s", reason);
	rundir_event_stop(s->o.run, s->generation,
			  &(struct rundir_stop){ .reason = reason,
						 .checkpoint = !s->program.ranks });
	supervise_terminal_event(s->o.term, TONE_WARN, "stop", "%s: %s%s", reason,
				 s->program.ranks ? "the tasks are asked to save and exit"
						  : "finishing the step and writing a checkpoint",
				 isatty(STDIN_FILENO) ? " (Ctrl-C again: stop at once)" : "");
}

/* The ranks finish the step, write a checkpoint and leave. */
static void ask_to_stop(struct supervisor *s, const char *reason)
{
	const struct msg_stop m = {
		.reason = reason,
		.checkpoint = true,
		.has_at_step = s->program.began,
		.at_step = supervise_program_stop_step(s),
		.has_reach_s = s->program.began,
		.reach_s = supervise_program_reach_seconds(s),
	};
	supervise_broadcast(s, MSG_STOP, msg_stop_json(&m));
}

static void do_stop(struct supervisor *s, const struct cause *c)
{
	report_stop(s, c->reason);
	supervise_enter(s, SUP_STOPPING, stop_seconds(s));
	ask_to_stop(s, c->reason);
}

/* Nodes are back. The generation writes a checkpoint and leaves, and a larger one follows. */
static void do_grow(struct supervisor *s, const struct cause *c)
{
	(void)c;
	if (!supervise_recovery_wants_to_grow(s))
		return;
	supervise_enter(s, SUP_STOPPING, stop_seconds(s));
	ask_to_stop(s, "nodes are back");
}

/* The generation writes a checkpoint and leaves, and one without the slow node follows. */
static void do_leave_node(struct supervisor *s, const struct cause *c)
{
	supervise_enter(s, SUP_STOPPING, stop_seconds(s));
	ask_to_stop(s, c->reason);
}

/* The generation stops in order to grow, and now the run is to stop. */
static void do_stop_growing(struct supervisor *s, const struct cause *c)
{
	if (!s->recovery.growing)
		return;
	s->recovery.growing = false;
	supervise_times_enter(s);
	report_stop(s, c->reason);
}

static void do_quit(struct supervisor *s, const struct cause *c)
{
	snprintf(s->reason, sizeof s->reason, "%s", c->reason);
	rundir_event_stop(s->o.run, s->generation,
			  &(struct rundir_stop){ .reason = c->reason, .checkpoint = false });
	supervise_terminal_event(s->o.term, TONE_WARN, "stop", "%s: stopping at once", c->reason);
	supervise_end_generation(s, OUTCOME_STOPPED);
}

/* Nobody asked for the end of a generation that stops in order to grow: its agents hang. */
static void do_stop_timeout(struct supervisor *s, const struct cause *c)
{
	(void)c;
	struct lost_rank l = {
		.rank = -1, .how = LOST_HUNG, .code = ERR_TIMEOUT, .at = supervise_now(s)
	};
	snprintf(l.text, sizeof l.text, "the agents did not stop within %.3g s and were killed",
		 s->patience);
	if (s->recovery.growing)
		supervise_handle(s, EV_LOST, &l, NULL);
	else
		do_quit(s, &(struct cause){ .reason = l.text });
}

/* The generation already ends for another reason; no other one may follow. */
static void do_stop_after(struct supervisor *s, const struct cause *c)
{
	snprintf(s->reason, sizeof s->reason, "%s", c->reason);
	s->outcome = OUTCOME_STOPPED;
}

static void do_quit_verdict(struct supervisor *s, const struct cause *c)
{
	do_stop_after(s, c);
	do_end_lost(s, c);
}

static void do_stop_waiting(struct supervisor *s, const struct cause *c)
{
	snprintf(s->reason, sizeof s->reason, "%s", c->reason);
	s->lost = false; /* the loss was reported, and another plan may have followed it */
	supervise_stop_leave(s);
}

static void do_leave(struct supervisor *s, const struct cause *c)
{
	(void)c;
	supervise_stop_leave(s);
}

static void do_leave_now(struct supervisor *s, const struct cause *c)
{
	(void)c;
	supervise_end(s, STATUS_STOPPED);
}

static void do_end_now(struct supervisor *s, const struct cause *c)
{
	(void)c;
	supervise_end_now(s);
}

static void do_start(struct supervisor *s, const struct cause *c)
{
	(void)c;
	supervise_start_generation(s);
}

/* Processes that outlive the signal may be on a node that has died since the last survey. */
static void do_kill(struct supervisor *s, const struct cause *c)
{
	s->recovery.growing &= !c->reason; /* a person or Slurm asked for the end */
	if (!c->reason)
		supervise_terminal_event(s->o.term, TONE_WARN, "kill",
					 "processes still run after %g s and are killed",
					 s->patience);
	supervise_enter(s, s->state, s->o.limits.drain);
	supervise_agents_kill(s, supervise_recovery_node_lost(s));
	if (!c->reason)
		supervise_recovery_survey(s, true);
}

/* clang-format off */

/* An empty cell: the event changes nothing in that state. */
static void (*const transitions[SUP_STATE_COUNT][SUP_EVENT_COUNT])(struct supervisor *, const struct cause *) = {
	[SUP_CHECKING] = {
		[EV_CHECKED] = do_use_checked_nodes, [EV_SURVEYED] = do_choose_again, [EV_TIMEOUT] = do_choose_again,
		[EV_STOP] = do_stop_waiting, [EV_STOP_NOW] = do_stop_waiting,
	},
	[SUP_STARTING] = {
		[EV_ALL_CONNECTED] = do_prepare, [EV_LOST] = do_lose, [EV_STOP] = do_quit, [EV_STOP_NOW] = do_quit,
		[EV_TIMEOUT] = do_connect_timeout, [EV_ALL_GONE] = do_all_vanished,
	},
	[SUP_PREPARING] = {
		[EV_ALL_READY] = do_train, [EV_ALL_FINISHED] = do_exit, [EV_LOST] = do_lose, [EV_STOP] = do_quit,
		[EV_STOP_NOW] = do_quit, [EV_ALL_GONE] = do_all_vanished,
	},
	[SUP_TRAINING] = {
		[EV_ALL_FINISHED] = do_exit, [EV_LOST] = do_lose, [EV_STOP] = do_stop, [EV_STOP_NOW] = do_quit,
		[EV_ALL_GONE] = do_all_vanished, [EV_SURVEYED] = do_grow, [EV_CHECKED] = do_grow, [EV_LEAVE_NODE] = do_leave_node,
	},
	[SUP_STOPPING] = {
		[EV_ALL_FINISHED] = do_exit, [EV_LOST] = do_lose, [EV_STOP] = do_stop_growing, [EV_STOP_NOW] = do_quit, [EV_TIMEOUT] = do_stop_timeout,
		[EV_ALL_GONE] = do_all_vanished,
	},
	[SUP_EXITING] = {
		[EV_STOP] = do_stop_growing, [EV_STOP_NOW] = do_kill, [EV_TIMEOUT] = do_kill, [EV_ALL_GONE] = do_gone,
		[EV_SURVEYED] = do_note_survey,
	},
	[SUP_DUMPING] = {
		[EV_DUMPED] = do_count_dumps, [EV_LOST] = do_count_dumps, [EV_TIMEOUT] = do_read_verdict, [EV_ALL_GONE] = do_note_gone,
		[EV_STOP] = do_stop_after, [EV_STOP_NOW] = do_quit_verdict,
	},
	[SUP_ANALYZING] = {
		[EV_VERDICT] = do_verdict_done, [EV_TIMEOUT] = do_verdict_done, [EV_ALL_GONE] = do_note_gone,
		[EV_STOP] = do_stop_after, [EV_STOP_NOW] = do_quit_verdict,
	},
	[SUP_EXAMINING] = {
		[EV_EXAMINED] = do_examined, [EV_LOST] = do_examined, [EV_TIMEOUT] = do_end_lost, [EV_ALL_GONE] = do_note_gone,
		[EV_STOP] = do_stop_after, [EV_STOP_NOW] = do_quit_verdict,
	},
	[SUP_REGROUPING] = {
		[EV_IDLE] = do_idle, [EV_LOST] = do_lose_more, [EV_TIMEOUT] = do_regroup_timeout, [EV_ALL_GONE] = do_gone,
		[EV_STOP] = do_stop_regrouping, [EV_STOP_NOW] = do_stop_regrouping,
	},
	[SUP_DRAINING] = {
		[EV_STOP] = do_stop_after, [EV_STOP_NOW] = do_stop_after, [EV_TIMEOUT] = do_kill, [EV_ALL_GONE] = do_gone,
		[EV_SURVEYED] = do_note_survey,
	},
	[SUP_SURVEYING] = {
		[EV_STOP] = do_stop_waiting, [EV_STOP_NOW] = do_stop_waiting, [EV_TIMEOUT] = do_judge_loss, [EV_SURVEYED] = do_judge_loss,
	},
	[SUP_WAITING] = {
		[EV_STOP] = do_stop_waiting, [EV_STOP_NOW] = do_stop_waiting, [EV_TIMEOUT] = do_look_again, [EV_SURVEYED] = do_choose_again,
	},
	[SUP_BACKOFF] = {
		[EV_STOP] = do_stop_waiting, [EV_STOP_NOW] = do_stop_waiting, [EV_TIMEOUT] = do_start,
	},
	[SUP_LEAVING] = {
		[EV_STOP_NOW] = do_leave_now, [EV_TIMEOUT] = do_leave, [EV_STOP_KNOWN] = do_leave,
	},
	[SUP_ENDING] = {
		[EV_STOP_NOW] = do_kill, [EV_TIMEOUT] = do_kill, [EV_ALL_GONE] = do_end, [EV_SURVEYED] = do_note_survey,
	},
	[SUP_UPLOADING] = {
		[EV_UPLOADED] = do_end_now, [EV_TIMEOUT] = do_end_now, [EV_STOP] = do_end_now, [EV_STOP_NOW] = do_end_now,
	},
};

/* clang-format on */

void supervise_handle(struct supervisor *s, enum sup_event ev, const struct lost_rank *loss,
		      const char *reason)
{
	supervise_hellos_end(s);
	if (ev == EV_TIMEOUT && s->settle_at && supervise_now(s) >= s->settle_at) {
		lose_generation(s);
		return;
	}
	if (transitions[s->state][ev])
		transitions[s->state][ev](s, &(struct cause){ .loss = loss, .reason = reason });
}
