#include "launcher/slurm/guard_state.h"

#include <stddef.h>

enum { REFUSALS_MAX = 3 };

void slurm_guard_init(struct guard_state *g, const struct guard_limits *limits, bool requeue,
		      double now)
{
	*g = (struct guard_state){ .limits = *limits,
				   .requeue = requeue,
				   .lost = true,
				   .heard = now,
				   .lost_at = now,
				   .next_connect = now,
				   .why = "" };
}

static void lose_line(struct guard_state *g, double now)
{
	g->line = GUARD_NO_LINE;
	if (!g->lost)
		g->lost_at = now;
	g->lost = true;
}

static enum guard_action choose_act(const struct guard_state *g)
{
	return g->requeue && g->may_requeue && g->refusals < REFUSALS_MAX ? GUARD_REQUEUE
									  : GUARD_CANCEL;
}

enum guard_action slurm_guard_next(struct guard_state *g, double now)
{
	if (g->over)
		return GUARD_LEAVE;
	if (g->line == GUARD_ALIVE && now - g->heard >= g->limits.silent) {
		lose_line(g, now);
		g->next_connect = now;
	}
	if (!g->lost)
		return GUARD_WAIT;
	if (g->acting)
		return choose_act(g);
	if (g->line == GUARD_NO_LINE && now >= g->next_connect) {
		g->line = GUARD_CONNECTING;
		g->next_connect = now + g->limits.retry;
		return GUARD_CONNECT;
	}
	return now - g->lost_at >= g->limits.grace && now >= g->next_ask ? GUARD_ASK : GUARD_WAIT;
}

void slurm_guard_accepted(struct guard_state *g)
{
	g->line = GUARD_MUTE;
}

void slurm_guard_heard(struct guard_state *g, double now)
{
	g->line = GUARD_ALIVE;
	g->heard = now;
	g->lost = g->acting = g->acted = false;
	g->dead_since = 0;
	g->refusals = 0;
}

void slurm_guard_unlinked(struct guard_state *g, double now)
{
	lose_line(g, now);
}

void slurm_guard_slept(struct guard_state *g, double seconds)
{
	g->heard += seconds;
	g->lost_at += seconds;
	g->dead_since += g->dead_since > 0 ? seconds : 0;
}

void slurm_guard_released(struct guard_state *g)
{
	g->over = true;
	g->why = "the supervisor has released it";
}

static void act(struct guard_state *g, const char *why)
{
	g->acting = true;
	g->why = why;
}

static void leave(struct guard_state *g, const char *why)
{
	g->over = true;
	g->why = why;
}

/* Whether a requeue now would lose the job's GPUs. */
static bool loses_gpus(const struct guard_state *g, const struct guard_answer *a, double now)
{
	return a->gpus && !a->host_down && choose_act(g) == GUARD_REQUEUE &&
	       now - g->dead_since < g->limits.down;
}

void slurm_guard_answered(struct guard_state *g, const struct guard_answer *a, double now)
{
	g->next_ask = now + g->limits.ask;
	g->waits = NULL;
	if (!a->answered)
		return;
	g->may_requeue = a->may_requeue;
	bool answers = (a->host_answers && !a->host_down) || g->line == GUARD_MUTE;
	if (answers)
		g->dead_since = 0;
	else if (g->dead_since <= 0)
		g->dead_since = now;
	if (!a->running)
		leave(g, g->acted ? "the job no longer runs" : "the job ends or has ended");
	else if (!a->batch)
		leave(g, "the job has no batch script; whoever uses the allocation decides");
	else if (!answers && now - g->dead_since >= g->limits.dead && loses_gpus(g, a, now))
		g->waits = "the requeue waits until Slurm counts the batch host as down, because "
			   "the job would lose its GPUs before";
	else if (!answers && now - g->dead_since >= g->limits.dead)
		act(g, "the batch host does not answer");
	else if (g->line == GUARD_MUTE && now - g->heard >= g->limits.patience)
		act(g, "the supervisor has been silent for longer than [restart] patience");
}

void slurm_guard_acted(struct guard_state *g, bool done, double now)
{
	g->acting = false;
	g->acted = g->acted || done;
	g->refusals += !done;
	g->next_ask = now + g->limits.ask;
}
