#include "launcher/supervise/slow_checkpoints.h"

#include "base/human.h"
#include "base/numbers.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The median of the earlier ones; 0: there are too few. */
static double usual_seconds(const struct slow_checkpoints *p)
{
	double sorted[SLOW_CKPT_HISTORY];
	int n = p->n < SLOW_CKPT_HISTORY ? p->n : SLOW_CKPT_HISTORY;
	if (n < SLOW_CKPT_KNOWN)
		return 0;
	memcpy(sorted, p->seconds, sizeof sorted);
	qsort(sorted, (size_t)n, sizeof *sorted, compare_double);
	return sorted[(n - 1) / 2];
}

/* Writes a clause that begins with "; ". */
static void explain(const struct supervisor *s, const char *path, char *out, size_t size)
{
	char disk[400];
	if (supervise_evidence_disk(s, disk, sizeof disk))
		snprintf(out, size, "; %s", disk);
	else
		snprintf(out, size,
			 "; no node's disk shows a reason, so look at the file system of %.300s",
			 path);
}

static void report(struct supervisor *s, const struct msg_ckpt *m, double usual, const char *text)
{
	bool slow = s->slow_checkpoints.slow;
	rundir_event_slow_ckpt(s->o.run, s->generation,
			       &(struct rundir_slow_ckpt){ .step = m->step,
							   .slow = slow,
							   .seconds = m->seconds,
							   .usual_s = usual,
							   .stall_s = m->stall_s,
							   .text = text });
	supervise_terminal_event(s->o.term, slow ? TONE_WARN : TONE_GOOD, "slow", "%s", text);
	supervise_warn_hold(s, WARNING_SLOW_CKPT, slow, text, true);
}

static void report_slow(struct supervisor *s, const struct msg_ckpt *m, double usual,
			double interval)
{
	char text[900], why[450], took[HUMAN], other[HUMAN];
	explain(s, m->path, why, sizeof why);
	human_seconds(m->seconds, took);
	if (usual > 0)
		snprintf(text, sizeof text,
			 "the checkpoint of step %lld took %s, and %s is usual: its folder is "
			 "slow%s",
			 (long long)m->step, took, human_seconds(usual, other), why);
	else
		snprintf(text, sizeof text,
			 "training waited for checkpoints for %.0f %% of the time: each takes %s, "
			 "so "
			 "raise checkpoint.every or use a faster folder%s",
			 100 * fmin(m->stall_s / interval, 1), took, why);
	report(s, m, usual, text);
}

/* Seconds since the last checkpoint of this generation; 0: there is none. */
static double begin_interval(struct supervisor *s)
{
	struct slow_checkpoints *p = &s->slow_checkpoints;
	double now = supervise_now(s);
	double interval = p->at > 0 && p->generation == s->generation ? now - p->at : 0;
	p->at = now;
	p->generation = s->generation;
	return interval;
}

void supervise_slow_checkpoints_note(struct supervisor *s, const struct msg_ckpt *m)
{
	struct slow_checkpoints *p = &s->slow_checkpoints;
	double usual = usual_seconds(p), interval = begin_interval(s);
	if (!isfinite(m->seconds) || !isfinite(m->stall_s))
		return;
	bool longer = usual > 0 && m->seconds > SLOW_CKPT_FACTOR * usual &&
		      m->seconds > usual + SLOW_CKPT_LEAST_S;
	bool waited = interval > 0 && m->stall_s > SLOW_CKPT_SHARE * interval &&
		      m->stall_s > SLOW_CKPT_LEAST_S;
	p->waits = waited ? p->waits + 1 : 0;
	bool slow = longer || p->waits > 1;
	if (!longer)
		p->seconds[p->n++ % SLOW_CKPT_HISTORY] = m->seconds;
	if (slow == p->slow)
		return;
	p->slow = slow;
	if (slow)
		report_slow(s, m, longer ? usual : 0, interval);
	else
		report(s, m, usual, "checkpoints do not take too long any more");
}
