#include "launcher/supervise/restart.h"

#include <math.h>
#include <stddef.h>

void supervise_restart_init(struct restart *r, const struct restart_limits *limits)
{
	*r = (struct restart){ .limits = *limits, .best_step = -1, .best_ckpt = -1 };
}

static void note_best(struct restart *r, int64_t *best, int64_t step)
{
	if (step <= *best)
		return;
	*best = step;
	r->progress = true;
}

void supervise_restart_step(struct restart *r, int64_t step)
{
	r->stepped = true;
	note_best(r, &r->best_step, step);
}

void supervise_restart_ckpt(struct restart *r, int64_t step)
{
	note_best(r, &r->best_ckpt, step);
}

void supervise_restart_progress(struct restart *r)
{
	r->stepped = r->progress = true;
}

/* Doubles from `first` with each repetition, which counts from 1. */
static double double_wait(double first, int64_t repetition, double most)
{
	return fmin(first * exp2((double)(repetition - 1)), most);
}

static bool wait_out(struct restart *r, const struct fault *fault, double now, double *wait,
		     struct err *e)
{
	if (!r->outages++)
		r->outage_at = now;
	double left = r->limits.patience - (now - r->outage_at);
	if (left <= 0) {
		err_set(e, ERR_TIMEOUT, "%s, for longer than [restart] patience = %g s permits",
			fault->text, r->limits.patience);
		return false;
	}
	*wait = fmin(double_wait(1, r->outages, OUTAGE_WAIT_MAX), left);
	return true;
}

/* Whether a limit ends the run. */
static bool reached_limit(const struct restart *r, struct err *e)
{
	if (r->restarts >= r->limits.max_restarts) {
		err_set(e, ERR_ABORTED, "[restart] max_restarts = %lld permits no other restart",
			(long long)r->limits.max_restarts);
		return true;
	}
	if (r->futile && r->futile >= r->limits.max_futile) {
		err_set(e, ERR_ABORTED,
			"%lld restart%s in a row made no progress, as many as [restart] max_futile "
			"permits",
			(long long)r->futile, r->futile == 1 ? "" : "s");
		return true;
	}
	return false;
}

void supervise_restart_go_on(struct restart *r)
{
	r->progress = r->stepped = r->counts = false;
}

bool supervise_restart_start(struct restart *r)
{
	bool counts = r->counts;
	r->restarts += counts;
	r->counts = false;
	return counts;
}

bool supervise_restart_decide(struct restart *r, const struct fault *fault, bool elsewhere,
			      double now, double *wait, struct err *e)
{
	bool never = fault->retry == RETRY_NEVER, stepped = r->stepped;
	bool hopeless = never || (fault->retry == RETRY_ONCE && !stepped &&
				  (!r->restarts || r->last == fault));
	bool twice = hopeless && r->last == fault, progress = r->progress;
	r->last = fault;
	r->progress = r->stepped = r->counts = false;
	if (progress || fault->retry != RETRY_WAIT)
		r->outages = 0;
	if (hopeless && !elsewhere) {
		err_set(e, ERR_UNSUPPORTED,
			"the run failed %s%s, for a reason that a restart does not fix: %s",
			twice ? "again " : "",
			stepped ? "after it had trained" : "before its first step", fault->text);
		return false;
	}
	if (fault->retry == RETRY_WAIT)
		return wait_out(r, fault, now, wait, e);
	if (progress)
		r->futile = 0;
	else if (r->restarts && fault->counts)
		r->futile++;
	if (reached_limit(r, e))
		return false;
	*wait = r->futile ? double_wait(r->limits.backoff, r->futile, RESTART_WAIT_MAX) : 0;
	r->counts = fault->counts;
	return true;
}
