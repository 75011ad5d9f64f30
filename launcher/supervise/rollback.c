#include "launcher/supervise/rollback.h"

#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>

int supervise_rollback_open(struct supervisor *s, struct err *e)
{
	return rundir_rollbacks_read(rundir_path(s->o.run), &s->rollback.list, e);
}

void supervise_rollback_close(struct supervisor *s)
{
	json_decref(s->rollback.list);
}

void supervise_rollback_note(struct supervisor *s, const struct msg_bad_step *m)
{
	struct rollback_state *r = &s->rollback;
	if (r->bad)
		return;
	r->bad = true;
	snprintf(r->what, sizeof r->what, "%s", m->what);
	r->value = m->value;
	r->usual = m->usual;
	r->step = m->step;
	r->first = m->first;
	r->count = m->count;
}

/* "step 41: the loss is nan". A number that is not finite travels as null and comes as NaN. */
static void describe(const struct rollback_state *r, char *out, size_t size)
{
	int n = snprintf(out, size, "step %lld: the %s is ", (long long)r->step, r->what);
	if (isfinite(r->value))
		snprintf(out + n, size - (size_t)n, "%.6g, and %.6g is usual", r->value, r->usual);
	else
		snprintf(out + n, size - (size_t)n, "NaN or infinite");
}

static void end_run(struct supervisor *s, const char *what, const char *remedy)
{
	const struct rollback_state *r = &s->rollback;
	snprintf(s->reason, sizeof s->reason, "%s; its samples are %lld to %lld of the order; %s",
		 what, (long long)r->first, (long long)(r->first + r->count - 1), remedy);
}

/* Records the rollback. Then it takes place. The checkpoints beyond which it goes are no longer the
 * run's. */
static int record(struct supervisor *s, const char *what, struct err *e)
{
	const struct rollback_state *r = &s->rollback;
	int64_t before = s->d->job.health.skip_before, good = r->step - 1 - before;
	char reason[300];
	snprintf(reason, sizeof reason, "%s (generation %u)", what, s->generation);
	const struct rundir_rollback line = {
		.first = r->first,
		.count = r->count,
		.reason = reason,
		.generation = s->generation,
		.step = r->step,
		.what = r->what,
		.value = r->value,
		.usual = r->usual,
		.has_resume = before > 0,
		.resume = good > 0 ? good : 0,
	};
	if (rundir_rollbacks_add(rundir_path(s->o.run), s->rollback.list, &line, e))
		return -1;
	if (line.has_resume && s->ckpt_step > line.resume)
		s->ckpt_step = -1;
	return 0;
}

static void report(struct supervisor *s, const char *what)
{
	const struct rollback_state *r = &s->rollback;
	long long n = (long long)json_array_size(r->list), first = (long long)r->first,
		  last = first + (long long)r->count - 1;
	rundir_event_rollback(s->o.run, s->generation,
			      &(struct rundir_rolled_back){ .step = r->step,
							    .what = r->what,
							    .value = r->value,
							    .usual = r->usual,
							    .first = r->first,
							    .count = r->count,
							    .rollbacks = n,
							    .text = what });
	supervise_terminal_event(s->o.term, TONE_WARN, "rollback",
				 "%s; the run continues from its last checkpoint%s and skips the "
				 "samples %lld to %lld (rollback %lld of %lld)",
				 what,
				 s->d->job.health.skip_before ? " before the first of them" : "",
				 first, last, n, (long long)s->d->job.health.max_skips);
}

enum rollback_answer supervise_rollback_decide(struct supervisor *s, int *status)
{
	const struct job *job = &s->d->job;
	char what[200], remedy[300];
	struct err e = ERR_INIT;
	if (!s->rollback.bad || s->cause.code != ERR_NUMERIC ||
	    job->health.bad_numbers == BAD_NUMBERS_RETRY)
		return ROLLBACK_NONE;
	describe(&s->rollback, what, sizeof what);
	long long n = (long long)json_array_size(s->rollback.list);
	if (job->health.bad_numbers == BAD_NUMBERS_STOP && s->program.ranks) {
		snprintf(s->reason, sizeof s->reason, "%s; health.bad_numbers = stop ends the run",
			 what);
		*status = STATUS_FAILED;
		return ROLLBACK_ENDS;
	}
	if (job->health.bad_numbers == BAD_NUMBERS_STOP) {
		end_run(s, what,
			"health.bad_numbers = stop ends the run; health.bad_numbers = skip would "
			"continue without them");
		*status = STATUS_FAILED;
		return ROLLBACK_ENDS;
	}
	if (n >= job->health.max_skips) {
		snprintf(remedy, sizeof remedy,
			 "after %lld rollback%s health.max_skips = %lld permits no other; if the "
			 "samples differ each time, they are not the cause: lower optimizer.lr",
			 n, n == 1 ? "" : "s", (long long)job->health.max_skips);
		end_run(s, what, remedy);
		*status = STATUS_GAVE_UP;
		return ROLLBACK_ENDS;
	}
	if (record(s, what, &e)) {
		supervise_terminal_event(s->o.term, TONE_BAD, "rollback",
					 "%s; its samples cannot be skipped, because that cannot "
					 "be recorded: %s",
					 what, e.text);
		return ROLLBACK_NONE;
	}
	report(s, what);
	supervise_restart_go_on(&s->restart);
	return ROLLBACK_SKIPS;
}
