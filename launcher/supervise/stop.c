#include "launcher/supervise/stop.h"

#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Between two questions about the time limit, which people may change. */
enum { LIMIT_S = 600 };
/* A signal that comes this much before [slurm] signal_before is early. How often a job may be requeued
 * after it without a checkpoint. */
enum { EARLY_S = 10, EARLY_MOST = 10 };

static void report_cause(struct supervisor *s, const struct stop_answer *a)
{
	rundir_event_stop_cause(
		s->o.run, s->generation,
		&(struct rundir_stop_cause){ .answered = a->answered,
					     .cause = launcher_stop_cause_word(a->cause),
					     .has_left_s = a->left >= 0,
					     .left_s = a->left,
					     .why = a->why });
	if (!a->answered)
		supervise_terminal_event(s->o.term, TONE_WARN, "stop", "the cause is unknown: %s",
					 a->why);
	else if (a->cause != STOP_BY_PERSON)
		supervise_terminal_event(s->o.term, TONE_WARN, "stop", "%s",
					 launcher_stop_cause_text(a->cause));
}

static void note_end(struct stop_state *p, const struct stop_answer *a, double now)
{
	if (a->answered)
		p->ends = a->left >= 0 ? now + a->left : 0;
}

static void on_answer(void *arg, const struct stop_answer *a)
{
	struct supervisor *s = arg;
	struct stop_state *p = &s->stop;
	p->query = NULL;
	note_end(p, a, supervise_now(s));
	if (!p->stopping)
		return;
	p->known = true;
	p->answer = *a;
	/* Slurm does not know yet why this stop has begun. */
	if (p->early && a->cause == STOP_BY_PERSON)
		p->answer.cause = STOP_TIME_LIMIT;
	report_cause(s, &p->answer);
	supervise_handle(s, EV_STOP_KNOWN, NULL, NULL);
}

/* True: an answer follows. */
static bool start_query(struct supervisor *s)
{
	struct stop_state *p = &s->stop;
	struct err e = ERR_INIT;
	if (!s->o.ops->stop_query)
		return false;
	if (!s->o.ops->stop_query(s->o.loop, s->o.job, on_answer, s, &p->query, &e))
		return true;
	p->query = NULL;
	snprintf(p->answer.why, sizeof p->answer.why, "%.190s", e.text);
	return false;
}

static void drop_query(struct supervisor *s)
{
	if (s->stop.query)
		s->o.ops->stop_query_end(s->stop.query);
	s->stop.query = NULL;
}

void supervise_stop_ask(struct supervisor *s)
{
	struct stop_state *p = &s->stop;
	if (p->stopping)
		return;
	p->stopping = true;
	drop_query(s); /* the job's state may have changed since */
	p->answer = (struct stop_answer){ .left = -1 };
	p->known = !start_query(s);
	if (p->known && s->o.ops->stop_query)
		report_cause(s, &p->answer);
}

static bool by_slurm(const struct supervisor *s)
{
	const struct stop_answer *a = &s->stop.answer;
	return a->answered && (a->cause == STOP_TIME_LIMIT || a->cause == STOP_PREEMPTED);
}

/* Slurm may send its signal up to a minute early: a short job may then have had no time to do anything. */
static bool was_early(const struct supervisor *s)
{
	const struct stop_answer *a = &s->stop.answer;
	return a->left > (double)s->o.job->slurm.signal_before + EARLY_S &&
	       a->restarts < EARLY_MOST;
}

bool supervise_stop_is_futile(const struct supervisor *s)
{
	const struct stop_answer *a = &s->stop.answer;
	return a->answered && !was_early(s) && a->cause == STOP_TIME_LIMIT && !s->program.ranks &&
	       (s->step < 0 || s->ckpt_step < 0);
}

/* Whether the job is to begin again. If not, *why says it to people, unless a person stopped it. */
static bool should_requeue(const struct supervisor *s, const char **why)
{
	const struct stop_answer *a = &s->stop.answer;
	*why = NULL;
	if (!by_slurm(s))
		return false;
	if (!s->o.job->slurm.requeue)
		*why = "[slurm] requeue = no";
	else if (!a->can_requeue || !s->o.ops->requeue)
		*why = "this is not a batch job that Slurm requeues";
	else if (supervise_stop_is_futile(s))
		*why = "it has finished no step, or committed no checkpoint; request a longer "
		       "[slurm] time";
	return !*why;
}

static void leave(struct supervisor *s)
{
	struct err e = ERR_INIT;
	const char *why;
	char next[LAUNCH_JOB_ID];
	if (by_slurm(s) && !supervise_stop_is_futile(s) && supervise_chain_next(s, next) &&
	    (!s->o.ops->job_waits || s->o.ops->job_waits(next))) {
		supervise_terminal_event(s->o.term, TONE_WARN, "chain", "job %s continues this run",
					 next);
	} else if (!should_requeue(s, &why)) {
		if (why)
			supervise_terminal_event(s->o.term, TONE_WARN, "requeue",
						 "the job does not begin again: %s", why);
	} else if (s->o.ops->requeue("", 0, 0, &e)) {
		/* Without a grace time Slurm has ended the job already. */
		struct err again = ERR_INIT;
		bool ended = e.code == ERR_ABORTED && s->stop.answer.cause == STOP_PREEMPTED;
		if (!ended || supervise_chain_submit_again(s, &again))
			supervise_terminal_event(s->o.term, TONE_BAD, "requeue",
						 "the job cannot be requeued: %s%s%s", e.text,
						 ended ? "; no other job was queued: " : "",
						 ended ? again.text : "");
	} else {
		rundir_event_requeued(s->o.run, s->generation, NULL);
		supervise_terminal_event(
			s->o.term, TONE_WARN, "requeue",
			"the job begins again in the queue, and continues from its checkpoint");
	}
	supervise_end(s, STATUS_STOPPED);
}

void supervise_stop_leave(struct supervisor *s)
{
	if (s->stop.query && s->stop.stopping && s->state != SUP_LEAVING)
		supervise_enter(s, SUP_LEAVING, s->o.limits.survey);
	else
		leave(s);
}

void supervise_stop_note_step(struct supervisor *s)
{
	struct stop_state *p = &s->stop;
	double now = supervise_now(s);
	/* A time in which this process did not run is not a step's. */
	if (p->stepped > 0 && p->stepped > s->slept)
		p->gap_s = fmax(p->gap_s, now - p->stepped);
	p->stepped = now;
}

void supervise_stop_note_ckpt(struct supervisor *s, double seconds)
{
	s->stop.ckpt_s = fmax(s->stop.ckpt_s, seconds);
}

/* A checkpoint may take twice as long as the longest one so far. How long a program saves is not known:
 * it has its grace for that. */
double supervise_stop_seconds(const struct supervisor *s)
{
	const struct stop_state *p = &s->stop;
	if (s->program.ranks)
		return STOP_MARGIN_S + s->d->job.program.stop_grace +
		       supervise_program_reach_seconds(s);
	return STOP_MARGIN_S + 2 * p->ckpt_s + p->gap_s;
}

void supervise_stop_tick(struct supervisor *s)
{
	struct stop_state *p = &s->stop;
	double now = supervise_now(s);
	if (s->state != SUP_TRAINING || p->stopping || p->query)
		return;
	bool near = p->ends > 0 && now >= p->ends - supervise_stop_seconds(s);
	if (near && p->near <= 0)
		p->near = now;
	if (!near)
		p->near = 0;
	/* The limit may have been raised, so it was asked once more. An answer that does not come
	 * changes nothing. */
	if (near && p->asked >= p->near) {
		p->early = true;
		supervise_stop(s, launcher_stop_cause_text(STOP_TIME_LIMIT), false);
	} else if (near || p->asked <= 0 || now - p->asked >= LIMIT_S) {
		p->asked = now;
		start_query(s);
	}
}

void supervise_stop_close(struct supervisor *s)
{
	drop_query(s);
}
