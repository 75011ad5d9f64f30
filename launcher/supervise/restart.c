#include "launcher/supervise/restart.h"

#include <math.h>
#include <stddef.h>

void supervise_restart_init(struct restart *r, int64_t max_restarts, int64_t max_futile,
			    double backoff)
{
	*r = (struct restart){
		.max_restarts = max_restarts,
		.max_futile = max_futile,
		.backoff = backoff,
		.best_step = -1,
		.best_ckpt = -1,
	};
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

/* Whether the cause of an error remains after a restart. A code that is not listed is temporary: a
 * disk or a network recovers, memory is freed, a peer is replaced. */
static const bool lasts[] = {
	[ERR_USAGE] = true,       /* the job is wrong */
	[ERR_CORRUPT] = true,     /* damaged data, or a FIFO or link in place of a file */
	[ERR_NOTFOUND] = true,    /* a file or a program is missing */
	[ERR_UNSUPPORTED] = true, /* not built, or not granted by the system */
	[ERR_NOFIT] = true,       /* the plan is larger than the machine */
	[ERR_DENIED] = true,      /* permissions, a read-only file system */
	[ERR_INTERNAL] = false,   /* a bug may be a race */
};

bool supervise_restart_helps(enum err_code code)
{
	return (size_t)code >= sizeof lasts / sizeof *lasts || !lasts[code];
}

bool supervise_restart_decide(struct restart *r, enum err_code code, double *wait, struct err *e)
{
	bool lasting = !r->stepped && !supervise_restart_helps(code);
	bool hopeless = lasting && (r->early == code || !r->restarts);
	r->early = lasting ? code : ERR_NONE;
	if (r->progress)
		r->futile = 0;
	else if (r->restarts)
		r->futile++;
	r->progress = r->stepped = false;

	if (hopeless) {
		err_set(e, code,
			"the run failed %sbefore its first step, for a reason that a restart does "
			"not fix",
			r->restarts ? "twice in a row " : "");
		return false;
	}
	if (r->restarts >= r->max_restarts) {
		err_set(e, ERR_ABORTED, "[restart] max_restarts = %lld permits no other restart",
			(long long)r->max_restarts);
		return false;
	}
	if (r->futile && r->futile >= r->max_futile) {
		err_set(e, ERR_ABORTED,
			"%lld restart%s in a row made no progress, as many as [restart] max_futile "
			"permits",
			(long long)r->futile, r->futile == 1 ? "" : "s");
		return false;
	}
	*wait = r->futile ? fmin(r->backoff * exp2((double)(r->futile - 1)), RESTART_WAIT_MAX) : 0;
	r->restarts++;
	return true;
}
