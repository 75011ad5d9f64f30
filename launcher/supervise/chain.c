#include "launcher/supervise/chain.h"

#include "base/run_paths.h"
#include "launcher/rundir/submissions.h"
#include "launcher/supervise/supervisor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *own_job(const struct supervisor *s)
{
	return s->o.ops->own_job ? s->o.ops->own_job() : NULL;
}

/* Reads the run's submissions. Returns the index of this job's line; -1: there is none, and `why` says
 * so. Free them in any case. */
static int read_own(const struct supervisor *s, struct rundir_submissions *all, struct err *why)
{
	const char *job = own_job(s);
	*all = (struct rundir_submissions){ .n = 0 };
	if (!job)
		return err_set(why, ERR_NOTFOUND, "this process runs in no job");
	if (rundir_submissions_read(rundir_path(s->o.run), all, why))
		return -1;
	int own = rundir_submissions_find(all, job);
	return own >= 0
		       ? own
		       : err_set(why, ERR_NOTFOUND,
				 "the run's submissions.jsonl does not list this job; only jobs of "
				 "`muster submit` have a chain");
}

/* The jobs after this one, in the order of the queue. Returns how many; ids: borrowed from `all`, freed by
 * the caller, or NULL. */
static int list_waiting(const struct rundir_submissions *all, int own, const char ***ids)
{
	int n = 0;
	*ids = own >= 0 && own + 1 < all->n ? calloc((size_t)all->n, sizeof **ids) : NULL;
	for (int i = own + 1; *ids && i < all->n; i++)
		if (all->of[i].submission == all->of[own].submission)
			(*ids)[n++] = all->of[i].job;
	return n;
}

bool supervise_chain_next(const struct supervisor *s, char id[LAUNCH_JOB_ID])
{
	struct rundir_submissions all;
	const char **ids = NULL;
	struct err why = ERR_INIT;
	int n = list_waiting(&all, read_own(s, &all, &why), &ids);
	if (n)
		snprintf(id, LAUNCH_JOB_ID, "%s", ids[0]);
	free(ids);
	rundir_submissions_free(&all);
	return n > 0;
}

/* How many jobs in a row, up to this one's predecessor, began at the step at which this one began. */
static int count_futile(const struct rundir_submissions *all, int own, int64_t resumed)
{
	int n = 0;
	for (int i = own; i >= 0; i--) {
		const struct rundir_submission *l = &all->of[i];
		if (l->submission != all->of[own].submission)
			continue;
		if (!l->has_by || !l->has_resumed || l->resumed != resumed)
			break;
		n++;
	}
	return n;
}

static void report(struct supervisor *s, const char *job, const char *text)
{
	rundir_event_chain(
		s->o.run, s->generation,
		&(struct rundir_chain){ .has_job = job != NULL, .job = job, .text = text });
	supervise_terminal_event(s->o.term, TONE_PLAIN, "chain", "%s", text);
}

static void warn_once(struct supervisor *s, const char *why)
{
	if (!s->chain.warned)
		supervise_terminal_event(s->o.term, TONE_WARN, "chain",
					 "the job that continues this run cannot be queued yet: %s",
					 why);
	s->chain.warned = true;
}

/* The job `id` was queued after this one. */
static void record_job(struct supervisor *s, int submission, const char *id)
{
	struct err e = ERR_INIT;
	char text[200];
	const struct rundir_submission line = { .submission = submission,
						.job = id,
						.has_by = true,
						.by = own_job(s),
						.has_resumed = true,
						.resumed = s->resumed };
	snprintf(text, sizeof text, "job %.40s continues this run when this job has ended", id);
	report(s, id, text);
	if (rundir_submissions_append(rundir_path(s->o.run), &line, &e))
		supervise_terminal_event(s->o.term, TONE_WARN, "chain",
					 "job %s cannot be recorded as a job of this run: %s", id,
					 e.text);
}

static void on_queued(void *arg, const char *id, const char *why)
{
	struct supervisor *s = arg;
	s->chain.queueing = NULL;
	s->chain.settled = id != NULL;
	if (id)
		record_job(s, s->chain.submission, id);
	else
		warn_once(s, why);
}

int supervise_chain_submit_again(struct supervisor *s, struct err *e)
{
	struct rundir_submissions all;
	char script[RUN_PATH], id[LAUNCH_JOB_ID];
	int own = read_own(s, &all, e), rc = -1, submission = own >= 0 ? all.of[own].submission : 0;
	rundir_submissions_free(&all);
	if (own >= 0 && !s->o.ops->submit_again)
		err_set(e, ERR_UNSUPPORTED, "nobody queues jobs here");
	else if (own >= 0) {
		run_path_script(script, rundir_path(s->o.run), (uint32_t)submission);
		rc = s->o.ops->submit_again(script, id, e);
	}
	if (!rc)
		record_job(s, submission, id);
	return rc;
}

static void queue_next(struct supervisor *s)
{
	char script[RUN_PATH];
	struct err e = ERR_INIT;
	run_path_script(script, rundir_path(s->o.run), (uint32_t)s->chain.submission);
	if (!s->o.ops->queue_next(s->o.loop, script, on_queued, s, &s->chain.queueing, &e))
		return;
	s->chain.queueing = NULL;
	warn_once(s, e.text);
}

static void queue_if_missing(struct supervisor *s)
{
	struct rundir_submissions all;
	char id[LAUNCH_JOB_ID];
	struct err e = ERR_INIT;
	int own = read_own(s, &all, &e);
	if (own < 0 && s->chain.looks++ < RECORD_LOOKS) { /* `muster submit` may record it soon */
		s->chain.again = supervise_now(s) + RECORD_AGAIN_S;
	} else if (own < 0) {
		warn_once(s, e.text);
	} else if (supervise_chain_next(s, id)) {
		s->chain.settled = true; /* an earlier start of this job has queued it */
	} else if (count_futile(&all, own, s->resumed) >= CHAIN_FUTILE) {
		s->chain.settled = true;
		report(s, NULL,
		       "no job is queued to continue this run: the last jobs of the chain have "
		       "committed no checkpoint; request a longer [slurm] time");
	} else {
		s->chain.submission = all.of[own].submission;
		queue_next(s);
	}
	rundir_submissions_free(&all);
}

void supervise_chain_tick(struct supervisor *s)
{
	struct chain_state *c = &s->chain;
	double now = supervise_now(s);
	if (!s->o.job->slurm.chain || c->settled || c->queueing || s->state != SUP_TRAINING ||
	    !s->stepped || !s->o.ops->queue_next || !own_job(s))
		return;
	if (now < c->again)
		return;
	c->again = now + CHAIN_AGAIN_S;
	queue_if_missing(s);
}

/* Why nothing is left for the jobs that wait; NULL: they are to continue the run. */
static const char *reason_to_cancel(const struct supervisor *s)
{
	const struct stop_answer *a = &s->stop.answer;
	switch (s->status) {
	case STATUS_DONE:
		return "the run is complete";
	case STATUS_FAILED:
		return "the job failed";
	case STATUS_GAVE_UP:
		return s->ckpt_step < 0 ? "this job has committed no checkpoint" : NULL;
	case STATUS_STOPPED:
		break;
	default:
		return NULL;
	}
	if (!s->stop.stopping || !a->answered)
		return NULL;
	if (a->cause == STOP_BY_PERSON || a->cause == STOP_CANCELLED)
		return "the run was stopped";
	if (supervise_stop_is_futile(s))
		return "this job has committed no checkpoint within its time";
	return NULL;
}

static void cancel_waiting(struct supervisor *s, const char *const *ids, int n, const char *why)
{
	struct err e = ERR_INIT;
	char text[200];
	if (s->o.ops->cancel(ids, n, &e)) {
		supervise_terminal_event(s->o.term, TONE_WARN, "chain",
					 "the jobs that wait to continue this run cannot be "
					 "cancelled (%s): scancel %s%s",
					 e.text, ids[0], n > 1 ? " …" : "");
		return;
	}
	snprintf(text, sizeof text, "%s: %d waiting job%s of the chain %s cancelled", why, n,
		 n == 1 ? "" : "s", n == 1 ? "is" : "are");
	report(s, ids[0], text);
}

void supervise_chain_end(struct supervisor *s)
{
	struct rundir_submissions all;
	struct err e = ERR_INIT;
	const char **ids = NULL, *why = reason_to_cancel(s);
	if (!s->o.ops->cancel)
		return;
	int n = list_waiting(&all, read_own(s, &all, &e), &ids);
	if (n && why)
		cancel_waiting(s, ids, n, why);
	else if (n && !s->stop.answer.answered)
		supervise_terminal_event(s->o.term, TONE_WARN, "chain",
					 "job %s continues this run; scancel %s%s prevents that",
					 ids[0], ids[0], n > 1 ? " …" : "");
	free(ids);
	rundir_submissions_free(&all);
}

void supervise_chain_close(struct supervisor *s)
{
	if (s->chain.queueing)
		s->o.ops->queue_next_end(s->chain.queueing);
	s->chain.queueing = NULL;
}
