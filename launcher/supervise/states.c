#include "launcher/supervise/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { START_AGAIN = 2 }; /* times */

struct cause {
	const struct loss *loss;
	const char *reason;
};

static void enter(struct supervisor *s, enum sup_state state, double seconds)
{
	s->state = state;
	s->deadline = seconds > 0 ? supervisor_now(s) + seconds : 0;
}

static void end(struct supervisor *s, int status, const char *event)
{
	s->status = status;
	enter(s, SUP_DONE, 0);
	supervise_report_end(s, event);
}

/* Ends every process of the generation; what comes next is decided when none is left. */
static void drain(struct supervisor *s, enum verdict verdict)
{
	s->verdict = verdict;
	s->settle_at = 0;
	enter(s, SUP_DRAINING, s->o.limits.drain);
	supervisor_broadcast(s, MSG_ABORT,
			     json_pack("{s:s}", "reason", s->lost ? s->loss.text : s->reason));
	s->o.ops->kill(s->launch);
}

/* The first start ends muster when it fails, and so is tried again when a helper process of it
 * died. The generation keeps its number: nobody has heard of it. */
static int launch_first(struct supervisor *s, struct err *e)
{
	int rc = supervisor_launch(s, e);
	for (int again = 0; rc && e->code == ERR_PEER && again < START_AGAIN; again++) {
		supervise_report_event(s, "start-again", json_pack("{s:s}", "text", e->text));
		supervise_terminal_event(s->o.term, TONE_WARN, "start", "%s; trying again",
					 e->text);
		s->generation = 0;
		rc = supervisor_launch(s, e);
	}
	return rc;
}

static void launch_next(struct supervisor *s)
{
	struct err e = ERR_INIT;
	enter(s, SUP_STARTING, s->o.limits.start);
	if (!(s->generation ? supervisor_launch(s, &e) : launch_first(s, &e)))
		return;
	snprintf(s->reason, sizeof s->reason, "%s", e.text);
	if (s->first) {
		end(s, STATUS_CANNOT_START, "failed");
		return;
	}
	s->lost = true;
	s->loss = (struct loss){
		.rank = -1, .how = LOSS_START, .code = e.code, .at = supervisor_now(s)
	};
	snprintf(s->loss.text, sizeof s->loss.text, "%s", e.text);
	supervise_report_loss(s);
	s->verdict = VERDICT_RETRY;
	supervisor_handle(s, EV_ALL_GONE, NULL, NULL);
}

static void retry(struct supervisor *s)
{
	struct err e = ERR_INIT;
	double wait = 0;
	supervise_report_blame(s);
	if (!supervise_restart_decide(&s->restart, s->loss.code, &wait, &e)) {
		bool tried = e.code == ERR_ABORTED && s->restart.restarts;
		snprintf(s->reason, sizeof s->reason, "%s", e.text);
		end(s, tried ? STATUS_GAVE_UP : STATUS_FAILED, tried ? "gave-up" : "failed");
		return;
	}
	supervise_report_event(s, "restart",
			       json_pack("{s:I, s:f, s:I}", "generation",
					 (json_int_t)s->generation + 1, "delay_s", wait, "futile",
					 (json_int_t)s->restart.futile));
	if (wait > 0) {
		supervise_terminal_event(s->o.term, TONE_WARN, "restart",
					 "in %g s, as the last one went no step further", wait);
		enter(s, SUP_BACKOFF, wait);
	} else {
		launch_next(s);
	}
}

static bool complete(const struct supervisor *s)
{
	for (int r = 0; r < s->world; r++)
		if (!s->ranks[r].finished || s->ranks[r].step < s->o.job->job.steps)
			return false;
	return true;
}

static void do_gone(struct supervisor *s, const struct cause *c)
{
	(void)c;
	if (s->launch)
		s->o.ops->close(s->launch);
	s->launch = NULL;
	switch (s->verdict) {
	case VERDICT_FINISHED:
		if (complete(s))
			end(s, STATUS_DONE, "done");
		else
			end(s, STATUS_STOPPED, "stopped");
		break;
	case VERDICT_STOPPED:
		end(s, STATUS_STOPPED, "stopped");
		break;
	case VERDICT_RETRY:
	case VERDICT_NONE:
		retry(s);
		break;
	}
}

static void lose(struct supervisor *s);

/* The processes left: those who complained are believed. Nobody may have been seen to be lost (a
 * backend that cannot tell ranks apart). */
static void do_vanished(struct supervisor *s, const struct cause *c)
{
	if (s->settle_at) {
		lose(s);
		supervisor_handle(s, EV_ALL_GONE, NULL, NULL);
		return;
	}
	if (!s->lost) {
		s->lost = true;
		s->loss = (struct loss){
			.rank = -1, .how = LOSS_EXITED, .code = ERR_PEER, .at = supervisor_now(s)
		};
		snprintf(s->loss.text, sizeof s->loss.text, "every agent ended without a word");
		supervise_report_loss(s);
	}
	s->verdict = s->state == SUP_STOPPING ? VERDICT_STOPPED : VERDICT_RETRY;
	do_gone(s, c);
}

static void do_wire(struct supervisor *s, const struct cause *c)
{
	(void)c;
	enter(s, SUP_WIRING, 0);
	supervise_report_event(s, "wired", NULL);
}

static void do_train(struct supervisor *s, const struct cause *c)
{
	(void)c;
	enter(s, SUP_TRAINING, 0);
	supervise_report_event(s, "ready", json_pack("{s:I}", "step", (json_int_t)s->resumed));
}

static void do_leave(struct supervisor *s, const struct cause *c)
{
	(void)c;
	s->verdict = VERDICT_FINISHED;
	s->lost = false;
	s->settle_at = 0;
	enter(s, SUP_LEAVING, s->o.limits.drain);
	supervise_report_event(s, "finished",
			       json_pack("{s:I}", "step", (json_int_t)s->ranks[0].step));
}

/* A rank that blames a peer is seldom the culprit: the one that is shows itself within moments. */
static bool blames_another(const struct loss *l)
{
	return l->how == LOSS_FAILED && (l->code == ERR_PEER || l->code == ERR_ABORTED ||
					 l->code == ERR_NET || l->code == ERR_TIMEOUT);
}

/* The flight recorders say more of a wait than of a death. A generation that has not met has
 * none. */
static bool worth_a_trace(const struct supervisor *s)
{
	const struct loss *l = &s->loss;
	return s->state != SUP_STARTING &&
	       (l->how == LOSS_HUNG || l->how == LOSS_SILENT ||
		(l->how == LOSS_FAILED && (blames_another(l) || l->code == ERR_PROTO)));
}

/* The generation is lost because of s->loss. */
static void lose(struct supervisor *s)
{
	bool trace = worth_a_trace(s);
	s->lost = true;
	s->settle_at = 0;
	s->verdict = s->state == SUP_STOPPING ? VERDICT_STOPPED : VERDICT_RETRY;
	supervise_report_loss(s);
	if (!trace) {
		drain(s, s->verdict);
		return;
	}
	enter(s, SUP_ASKING, s->o.limits.trace);
	supervise_trace_ask(s);
	supervisor_handle(s, EV_DUMPED, NULL, NULL); /* there may be nobody to answer */
}

static void do_traced(struct supervisor *s, const struct cause *c)
{
	supervise_trace_stop(s);
	if (s->gone)
		do_gone(s, c);
	else
		drain(s, s->verdict);
}

static void do_judge(struct supervisor *s, const struct cause *c)
{
	enter(s, SUP_JUDGING, s->o.limits.trace);
	if (!supervise_trace_judge(s))
		do_traced(s, c);
}

/* An agent has answered, or will not any more. */
static void do_count(struct supervisor *s, const struct cause *c)
{
	if (supervise_trace_complete(s))
		do_judge(s, c);
}

/* Every process is gone: nobody is left to be asked or killed, but what they wrote is still
 * there. */
static void do_note_gone(struct supervisor *s, const struct cause *c)
{
	s->gone = true;
	if (s->state == SUP_ASKING)
		do_judge(s, c);
}

static void do_lose(struct supervisor *s, const struct cause *c)
{
	if (blames_another(c->loss)) {
		s->ranks[c->loss->rank].complained = true;
		if (!s->settle_at) {
			s->loss = *c->loss;
			s->settle_at = supervisor_now(s) + s->o.limits.settle;
		}
		return;
	}
	/* A rank that has complained leaves after it: no new culprit. */
	if (s->settle_at && c->loss->rank >= 0 && s->ranks[c->loss->rank].complained &&
	    c->loss->how != LOSS_HUNG)
		return;
	s->loss = *c->loss;
	lose(s);
}

static void do_late(struct supervisor *s, const struct cause *c)
{
	(void)c;
	struct loss l = {
		.rank = -1, .how = LOSS_SILENT, .code = ERR_TIMEOUT, .at = supervisor_now(s)
	};
	for (int r = 0; r < s->world && l.rank < 0; r++)
		if (!s->ranks[r].hello)
			l.rank = r;
	snprintf(l.text, sizeof l.text, "%d of %d agents did not report within %g s",
		 s->world - s->hellos, s->world, s->o.limits.start);
	supervisor_handle(s, EV_LOST, &l, NULL);
}

/* A checkpoint may take as long as a step may, or as Slurm was asked to leave: one that is under
 * way is not lost. */
static double stop_seconds(const struct supervisor *s)
{
	const struct job *job = s->o.job;
	return fmax(s->o.limits.stop,
		    fmax(job->restart.hang_timeout, (double)job->slurm.signal_before));
}

static void do_stop(struct supervisor *s, const struct cause *c)
{
	snprintf(s->reason, sizeof s->reason, "%s", c->reason);
	supervise_report_event(s, "stop",
			       json_pack("{s:s, s:b}", "reason", c->reason, "checkpoint", 1));
	supervise_terminal_event(
		s->o.term, TONE_WARN, "stop",
		"%s: finishing the step and writing a checkpoint (Ctrl-C again: at once)",
		c->reason);
	enter(s, SUP_STOPPING, stop_seconds(s));
	supervisor_broadcast(s, MSG_STOP,
			     json_pack("{s:s, s:b}", "reason", c->reason, "checkpoint", 1));
}

static void do_quit(struct supervisor *s, const struct cause *c)
{
	snprintf(s->reason, sizeof s->reason, "%s", c->reason);
	supervise_report_event(s, "stop",
			       json_pack("{s:s, s:b}", "reason", c->reason, "checkpoint", 0));
	supervise_terminal_event(s->o.term, TONE_WARN, "stop", "%s: at once", c->reason);
	drain(s, VERDICT_STOPPED);
}

static void do_overdue(struct supervisor *s, const struct cause *c)
{
	(void)c;
	char why[128];
	snprintf(why, sizeof why, "the agents did not stop within %g s and were killed",
		 stop_seconds(s));
	do_quit(s, &(struct cause){ .reason = why });
}

/* The generation is being ended for another reason, but no other one shall follow. */
static void do_stop_after(struct supervisor *s, const struct cause *c)
{
	snprintf(s->reason, sizeof s->reason, "%s", c->reason);
	s->verdict = VERDICT_STOPPED;
}

static void do_quit_tracing(struct supervisor *s, const struct cause *c)
{
	do_stop_after(s, c);
	do_traced(s, c);
}

static void do_stop_waiting(struct supervisor *s, const struct cause *c)
{
	snprintf(s->reason, sizeof s->reason, "%s", c->reason);
	end(s, STATUS_STOPPED, "stopped");
}

static void do_again(struct supervisor *s, const struct cause *c)
{
	(void)c;
	launch_next(s);
}

static void do_kill(struct supervisor *s, const struct cause *c)
{
	if (!c->reason)
		supervise_terminal_event(s->o.term, TONE_WARN, "kill",
					 "processes are still there after %g s", s->o.limits.drain);
	enter(s, s->state, s->o.limits.drain);
	s->o.ops->kill(s->launch);
}

/* An empty cell: the event says nothing new in that state. */
static void (*const table[SUP_STATE_COUNT][SUP_EVENT_COUNT])(struct supervisor *, const struct cause *) = {
	[SUP_STARTING] = {
		[EV_HELLO] = do_wire, [EV_LOST] = do_lose, [EV_STOP] = do_quit, [EV_STOP_NOW] = do_quit,
		[EV_TIMEOUT] = do_late, [EV_ALL_GONE] = do_vanished,
	},
	[SUP_WIRING] = {
		[EV_READY] = do_train, [EV_FINISHED] = do_leave, [EV_LOST] = do_lose, [EV_STOP] = do_quit,
		[EV_STOP_NOW] = do_quit, [EV_ALL_GONE] = do_vanished,
	},
	[SUP_TRAINING] = {
		[EV_FINISHED] = do_leave, [EV_LOST] = do_lose, [EV_STOP] = do_stop, [EV_STOP_NOW] = do_quit,
		[EV_ALL_GONE] = do_vanished,
	},
	[SUP_STOPPING] = {
		[EV_FINISHED] = do_leave, [EV_LOST] = do_lose, [EV_STOP_NOW] = do_quit, [EV_TIMEOUT] = do_overdue,
		[EV_ALL_GONE] = do_vanished,
	},
	[SUP_LEAVING] = {
		[EV_STOP_NOW] = do_kill, [EV_TIMEOUT] = do_kill, [EV_ALL_GONE] = do_gone,
	},
	[SUP_ASKING] = {
		[EV_DUMPED] = do_count, [EV_LOST] = do_count, [EV_TIMEOUT] = do_judge, [EV_ALL_GONE] = do_note_gone,
		[EV_STOP] = do_stop_after, [EV_STOP_NOW] = do_quit_tracing,
	},
	[SUP_JUDGING] = {
		[EV_VERDICT] = do_traced, [EV_TIMEOUT] = do_traced, [EV_ALL_GONE] = do_note_gone,
		[EV_STOP] = do_stop_after, [EV_STOP_NOW] = do_quit_tracing,
	},
	[SUP_DRAINING] = {
		[EV_STOP] = do_stop_after, [EV_STOP_NOW] = do_stop_after, [EV_TIMEOUT] = do_kill, [EV_ALL_GONE] = do_gone,
	},
	[SUP_BACKOFF] = {
		[EV_STOP] = do_stop_waiting, [EV_STOP_NOW] = do_stop_waiting, [EV_TIMEOUT] = do_again,
	},
};

void supervisor_handle(struct supervisor *s, enum sup_event ev, const struct loss *loss,
		       const char *reason)
{
	if (ev == EV_TIMEOUT && s->settle_at && supervisor_now(s) >= s->settle_at) {
		lose(s);
		return;
	}
	if (table[s->state][ev])
		table[s->state][ev](s, &(struct cause){ .loss = loss, .reason = reason });
}
