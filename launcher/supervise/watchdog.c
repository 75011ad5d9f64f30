/* watchdog: finds ranks that send nothing, and ranks that make no progress. */
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>

/* A gap of this many seconds between two ticks means that this process itself did not run. */
static const double asleep_s = 1.0;

enum { QUIET_BEATS = 3 };

/* Messages that came meanwhile may wait in the sockets, so no rank is blamed for the gap. Agents
 * that stood still with this process have the rest of their time for what they do. */
static void extend_deadlines(struct supervisor *s, double gap)
{
	s->deadline += s->deadline > 0 ? gap : 0;
	s->settle_at += s->settle_at > 0 ? gap : 0;
	for (int r = 0; r < s->world; r++) {
		s->ranks[r].beat += gap;
		s->ranks[r].moved += gap;
		s->ranks[r].active_at += gap;
	}
	s->program.exited_at += gap;
	s->program.printed_at += gap;
	s->program.ready_at += s->program.ready_at > 0 ? gap : 0;
}

/* Reads what waits in the sockets that tell of the rank: this process may be behind. True: the rank has not
 * been silent, or it has closed, which was handled. */
static bool is_heard_now(struct supervisor *s, int rank)
{
	const struct rank_state *k = &s->ranks[rank];
	uint32_t generation = s->generation;
	double beat = k->beat;
	supervise_progress_read_out(s, rank);
	return s->generation != generation || k->beat > beat || s->lost;
}

/* The rank that has been silent for longest is lost if that is too long. */
static bool find_silent_rank(struct supervisor *s, double now)
{
	struct lost_rank l = { .rank = -1, .how = LOST_SILENT, .code = ERR_TIMEOUT, .at = now };
	double oldest = now - s->o.limits.silent;
	for (int r = 0; r < s->world; r++) {
		const struct rank_state *k = &s->ranks[r];
		if (!k->hello || k->finished || k->beat >= oldest)
			continue;
		oldest = k->beat;
		l.rank = r;
	}
	if (l.rank < 0)
		return false;
	if (is_heard_now(s, l.rank))
		return true;
	snprintf(l.text, sizeof l.text, "the agent sent no message for %.3g s", now - oldest);
	supervise_handle(s, EV_LOST, &l, NULL);
	return true;
}

/* Agents send a message every heartbeat, also while they wait for another rank. */
static bool is_quiet(const struct supervisor *s, const struct rank_state *k)
{
	return supervise_now(s) - k->beat >
	       QUIET_BEATS * supervise_heartbeat(&s->o.limits, s->world);
}

static bool is_behind(const struct supervisor *s, const struct rank_state *a,
		      const struct rank_state *b)
{
	bool quiet = is_quiet(s, a);
	if (quiet != is_quiet(s, b))
		return quiet;
	return a->step != b->step ? a->step < b->step : a->moved < b->moved;
}

/* The rank that the others wait for is one that sends nothing; otherwise the one at the lowest
 * step; among several, the one without progress for the longest time. */
static int find_slowest(const struct supervisor *s)
{
	int worst = -1;
	for (int r = 0; r < s->world; r++)
		if (!s->ranks[r].finished &&
		    (worst < 0 || is_behind(s, &s->ranks[r], &s->ranks[worst])))
			worst = r;
	return worst;
}

static double latest_move(const struct supervisor *s)
{
	double latest = 0;
	for (int r = 0; r < s->world; r++)
		if (s->ranks[r].moved > latest)
			latest = s->ranks[r].moved;
	return latest;
}

/* Phases are learned from steps. What comes before the first one of a generation may take as long
 * as [restart] hang_timeout. A program has one phase, in which it evaluates and saves, too. */
static double limit_of(const struct supervisor *s, int slowest)
{
	const struct job *job = &s->d->job;
	if (s->state != SUP_TRAINING || !s->stepped || slowest < 0 || s->program.ranks)
		return job->restart.hang_timeout;
	return supervise_hang_limit_of(&s->hang, s->ranks[slowest].phase, job->restart.hang_floor,
				       job->restart.hang_timeout);
}

static void check_progress(struct supervisor *s, double now)
{
	double cap = s->d->job.restart.hang_timeout, floor = s->d->job.restart.hang_floor;
	double still = now - latest_move(s), late = supervise_heartbeat_late(s);
	if (cap <= 0 || still <= fmin(floor, cap) + late)
		return;
	int slowest = find_slowest(s);
	double limit = limit_of(s, slowest);
	if (still <= limit + late)
		return;
	struct lost_rank l = { .rank = slowest, .how = LOST_HUNG, .code = ERR_TIMEOUT, .at = now };
	snprintf(l.text, sizeof l.text, "no rank made progress for %.3g s%s" SUPERVISE_GUESS, still,
		 limit < cap ? ", many times longer than in this phase so far" : "");
	supervise_hang_note_hang(&s->hang, floor, limit, cap);
	supervise_handle(s, EV_LOST, &l, NULL);
}

bool supervise_ran_since(const struct supervisor *s, double time)
{
	return time > s->slept && supervise_now(s) - s->last_tick <= asleep_s;
}

void supervise_note_move(struct supervisor *s, struct rank_state *k)
{
	double now = supervise_now(s), last = s->last_move;
	k->moved = s->last_move = now;
	if (s->state == SUP_TRAINING && s->stepped && supervise_ran_since(s, last) && now > last)
		supervise_hang_note_gap(&s->hang, k->phase, now - last);
}

void supervise_note_sleep(struct supervisor *s)
{
	double now = supervise_now(s), gap = now - s->last_tick;
	if (gap <= asleep_s)
		return;
	extend_deadlines(s, gap);
	s->slept = now;
}

void supervise_watchdog(struct supervisor *s)
{
	double now = supervise_now(s);
	bool alive = s->state == SUP_STARTING || s->state == SUP_PREPARING ||
		     s->state == SUP_TRAINING || s->state == SUP_STOPPING;
	if (!alive || find_silent_rank(s, now)) /* the next tick goes on */
		return;
	if (s->state == SUP_PREPARING || s->state == SUP_TRAINING)
		check_progress(s, now);
}
