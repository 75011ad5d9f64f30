/* watchdog: finds ranks that send nothing, and ranks that make no progress. */
#include "launcher/supervise/supervisor.h"

#include <stdio.h>

/* A gap of this many seconds between two ticks means that this process itself did not run. */
static const double asleep_s = 1.0;

/* Messages that came meanwhile may wait in the sockets, so no rank is blamed for the gap. */
static void extend_deadlines(struct supervisor *s, double gap)
{
	for (int r = 0; r < s->world; r++) {
		s->ranks[r].beat += gap;
		s->ranks[r].moved += gap;
	}
}

static bool find_silent_rank(struct supervisor *s, double now)
{
	for (int r = 0; r < s->world; r++) {
		const struct rank_state *k = &s->ranks[r];
		if (!k->hello || k->finished || now - k->beat <= s->o.limits.silent)
			continue;
		struct lost_rank l = {
			.rank = r, .how = LOST_SILENT, .code = ERR_TIMEOUT, .at = now
		};
		snprintf(l.text, sizeof l.text, "the agent sent no message for %.3g s",
			 now - k->beat);
		supervise_handle(s, EV_LOST, &l, NULL);
		return true;
	}
	return false;
}

/* The rank that the others wait for is the one at the lowest step; among several, the one without
 * progress for the longest time. */
static int find_slowest(const struct supervisor *s)
{
	int worst = -1;
	for (int r = 0; r < s->world; r++) {
		const struct rank_state *k = &s->ranks[r], *w = &s->ranks[worst < 0 ? 0 : worst];
		if (k->finished)
			continue;
		if (worst < 0 || k->step < w->step || (k->step == w->step && k->moved < w->moved))
			worst = r;
	}
	return worst;
}

static void check_progress(struct supervisor *s, double now)
{
	double limit = s->d->job.restart.hang_timeout, latest = 0;
	for (int r = 0; r < s->world; r++)
		if (s->ranks[r].moved > latest)
			latest = s->ranks[r].moved;
	if (limit <= 0 || now - latest <= limit)
		return;
	struct lost_rank l = {
		.rank = find_slowest(s), .how = LOST_HUNG, .code = ERR_TIMEOUT, .at = now
	};
	snprintf(l.text, sizeof l.text,
		 "no rank made progress for %.3g s; this one is the furthest behind", now - latest);
	supervise_handle(s, EV_LOST, &l, NULL);
}

void supervise_watchdog(struct supervisor *s)
{
	double now = supervise_now(s), gap = now - s->last_tick;
	if (gap > asleep_s)
		extend_deadlines(s, gap);
	bool alive = s->state == SUP_STARTING || s->state == SUP_PREPARING ||
		     s->state == SUP_TRAINING || s->state == SUP_STOPPING;
	if (!alive || find_silent_rank(s, now))
		return;
	if (s->state == SUP_PREPARING || s->state == SUP_TRAINING)
		check_progress(s, now);
}
