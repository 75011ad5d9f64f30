/*
 * next: what follows a generation. These are the steps from its last process to the next
 * generation, and the states in which the run waits between them:
 *
 *     supervise_start_first             the nodes are checked first?  yes: SUP_CHECKING
 *         supervise_use_checked_nodes   a node that is needed failed: a survey, then
 *                                       supervise_choose_deployment
 *         supervise_start_generation
 *
 *     EV_ALL_GONE, a loss; or EV_IDLE: all agents that live on (regroup.c) have left the generation
 *         supervise_survey_nodes        are the nodes known?  no: SUP_SURVEYING, then go on
 *         supervise_judge_loss          whose fault is it, does the run roll back (rollback.c), and
 *                                       may it restart (restart.c)?
 *                                                             no: the run ends
 *         supervise_choose_deployment   where does it continue (policy.c)?
 *             wait                      SUP_WAITING, a survey, and choose again
 *             requeue, give up          the run ends
 *             otherwise, after the back-off in SUP_BACKOFF:
 *         supervise_start_generation    SUP_STARTING
 *         supervise_agents_start       (agents.c) a start that fails is a loss: again from
 *                                       the top
 *
 *     EV_ALL_GONE, after a stop in order to grow
 *         supervise_start_grown         the deployment is chosen, or the job is requeued, and the
 *                                       run ends; if that is refused, the old deployment goes on
 *         supervise_start_generation
 */
#include "launcher/supervise/supervisor.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_START_RETRIES = 2 };

void supervise_enter(struct supervisor *s, enum sup_state state, double seconds)
{
	if (state != SUP_TRAINING) /* only a run that trains grows */
		supervise_checks_stop(s);
	s->state = state;
	supervise_times_enter(s);
	s->patience = seconds;
	s->deadline = seconds > 0 ? supervise_now(s) + seconds : 0;
}

/* Agents that wait for the next generation must be gone first. */
void supervise_end(struct supervisor *s, int status)
{
	s->status = status;
	if (supervise_agents_left(s)) {
		supervise_enter(s, SUP_ENDING, s->o.limits.drain);
		supervise_agents_kill(s, supervise_recovery_node_lost(s));
		return;
	}
	if (supervise_uploads_wait(s, status))
		supervise_enter(s, SUP_UPLOADING, s->o.job->checkpoint.remote_wait);
	else
		supervise_end_now(s);
}

void supervise_end_now(struct supervisor *s)
{
	supervise_uploads_leave(s);
	supervise_enter(s, SUP_DONE, 0);
	supervise_chain_end(s);
	supervise_report_end(s);
	supervise_state_write(s);
}

/* muster ends if the first start fails, so the start is tried again if one of its helper processes
 * died. The generation keeps its number, because no agent has seen it. */
static int launch_first_agents(struct supervisor *s, struct err *e)
{
	int rc = supervise_agents_start(s, e);
	for (int again = 0; rc && e->code == ERR_PEER && again < FIRST_START_RETRIES; again++) {
		rundir_event_start_again(s->o.run, s->generation,
					 &(struct rundir_start_again){ .text = e->text });
		supervise_terminal_event(s->o.term, TONE_WARN, "start", "%s; trying again",
					 e->text);
		s->generation = 0;
		rc = supervise_agents_start(s, e);
	}
	return rc;
}

void supervise_start_generation(struct supervisor *s)
{
	struct err e = ERR_INIT;
	supervise_enter(s, SUP_STARTING, s->o.limits.start);
	supervise_collect_begin(s);
	if (!(s->generation ? supervise_agents_start(s, &e) : launch_first_agents(s, &e))) {
		if (s->hellos == s->world) /* no agent was missing */
			supervise_handle(s, EV_ALL_CONNECTED, NULL, NULL);
		return;
	}
	snprintf(s->reason, sizeof s->reason, "%s", e.text);
	if (s->first) {
		supervise_end(s, STATUS_CANNOT_START);
		return;
	}
	s->lost = true;
	s->cause = (struct lost_rank){
		.rank = -1, .how = LOST_START, .code = e.code, .at = supervise_now(s)
	};
	snprintf(s->cause.text, sizeof s->cause.text, "%s", e.text);
	supervise_report_loss(s);
	supervise_end_generation(s, OUTCOME_RESTART);
}

static void start_after_backoff(struct supervisor *s, double wait)
{
	if (s->fault)
		supervise_report_restart(s, wait);
	if (wait > 0)
		supervise_enter(s, SUP_BACKOFF, wait);
	else
		supervise_start_generation(s);
}

/* True: the job is requeued, and the run has ended. False: s->reason says why not. */
static bool try_requeue(struct supervisor *s)
{
	struct err e = ERR_INIT;
	s->lost = false; /* the loss was reported */
	if (supervise_recovery_requeue(s, &e)) {
		snprintf(s->reason, sizeof s->reason, "the job cannot be requeued: %.900s", e.text);
		return false;
	}
	snprintf(s->reason, sizeof s->reason, "the job was requeued");
	supervise_terminal_event(s->o.term, TONE_WARN, "requeue",
				 "the job begins again in the queue%s%s", *e.text ? ": " : "",
				 e.text);
	supervise_end(s, STATUS_STOPPED);
	return true;
}

/* If Slurm does not answer, it is asked again, for as long as the run waits for nodes. */
static void requeue_job(struct supervisor *s)
{
	double since = s->recovery.waiting_since, now = supervise_now(s);
	if (try_requeue(s))
		return;
	if (since > 0 && now - since < s->d->job.restart.patience) {
		supervise_terminal_event(s->o.term, TONE_WARN, "requeue", "%s", s->reason);
		supervise_enter(s, SUP_WAITING, s->o.limits.look);
	} else {
		supervise_end(s, STATUS_GAVE_UP);
	}
}

void supervise_start_grown(struct supervisor *s)
{
	bool larger = supervise_recovery_grow(s);
	if (!larger && try_requeue(s))
		return;
	if (!larger) {
		s->recovery.refused = true;
		supervise_terminal_event(s->o.term, TONE_WARN, "requeue",
					 "%s; the run continues as it was", s->reason);
	}
	supervise_start_generation(s);
}

void supervise_choose_deployment(struct supervisor *s, double wait)
{
	switch (supervise_recovery_decide(s)) {
	case RECOVERY_REQUEUE:
		requeue_job(s);
		break;
	case RECOVERY_WAIT:
		supervise_enter(s, SUP_WAITING, s->o.limits.look);
		break;
	case RECOVERY_GIVE_UP:
		supervise_end(s, s->generation ? STATUS_GAVE_UP : STATUS_CANNOT_START);
		break;
	default:
		start_after_backoff(s, wait);
	}
}

void supervise_judge_loss(struct supervisor *s)
{
	struct err e = ERR_INIT;
	double wait = 0;
	int status = STATUS_FAILED;
	supervise_symptoms(s, &s->symptom);
	s->fault = supervise_fault_of(&s->symptom);
	supervise_report_blame(s);
	bool elsewhere = supervise_recovery_blame(s);
	switch (supervise_rollback_decide(s, &status)) {
	case ROLLBACK_ENDS:
		supervise_end(s, status);
		return;
	case ROLLBACK_SKIPS:
		supervise_choose_deployment(s, 0);
		return;
	case ROLLBACK_NONE:
		break;
	}
	supervise_program_judge_progress(s);
	if (!supervise_program_may_retry(s, &e) ||
	    !supervise_restart_decide(&s->restart, s->fault, elsewhere, supervise_now(s), &wait,
				      &e)) {
		bool tried = e.code == ERR_TIMEOUT ||
			     (e.code == ERR_ABORTED && s->restart.restarts);
		snprintf(s->reason, sizeof s->reason, "%s", e.text);
		supervise_end(s, tried ? STATUS_GAVE_UP : STATUS_FAILED);
		return;
	}
	supervise_report_remedy(s);
	supervise_choose_deployment(s, wait);
}

void supervise_survey_nodes(struct supervisor *s)
{
	if (s->recovery.surveying || (!s->recovery.known && supervise_recovery_survey(s, true)))
		supervise_enter(s, SUP_SURVEYING, s->o.limits.survey);
	else
		supervise_judge_loss(s);
}

void supervise_use_checked_nodes(struct supervisor *s)
{
	if (supervise_pool_covers(&s->recovery.pool, s->d))
		supervise_start_generation(s);
	else if (supervise_recovery_survey(s, false)) /* can the job be requeued? */
		supervise_enter(s, SUP_CHECKING, s->o.limits.survey);
	else
		supervise_choose_deployment(s, 0);
}

void supervise_start_first(struct supervisor *s)
{
	supervise_enter(s, SUP_CHECKING, 0);
	if (s->o.job->launch.preflight == PREFLIGHT_NO || !supervise_checks_start_all(s))
		supervise_start_generation(s);
}
