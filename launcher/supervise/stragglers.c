#include "launcher/supervise/stragglers.h"

#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The share of a window from which a cause explains that a rank is slow. */
#define EXPLAINS 0.15

/* Without memory nothing is compared. */
void supervise_stragglers_reset(struct supervisor *s)
{
	struct stragglers *t = &s->stragglers;
	const struct plan_rank *ranks = s->d->plan.ranks;
	size_t world = (size_t)s->world;
	supervise_stragglers_close(s);
	t->ranks = calloc(world, sizeof *t->ranks);
	t->order = calloc(world, sizeof *t->order);
	if (!t->ranks || !t->order) {
		supervise_stragglers_close(s);
		return;
	}
	t->world = s->world;
	for (int r = 0; r < t->world; r++)
		t->ranks[r].group = ranks[r].at.pp * s->d->cluster.n_kinds +
				    s->d->cluster.nodes[ranks[r].node].kind;
}

void supervise_stragglers_close(struct supervisor *s)
{
	struct stragglers *t = &s->stragglers;
	free(t->ranks);
	free(t->order);
	*t = (struct stragglers){ .begun = 0 };
}

void supervise_stragglers_note(struct supervisor *s, int rank, const struct msg_progress *m)
{
	struct pace *p = s->stragglers.ranks ? &s->stragglers.ranks[rank] : NULL;
	if (!p || !isfinite(m->own_s) || !isfinite(m->delay_s) || !isfinite(m->stalled_s))
		return;
	p->now.done = m->done;
	p->now.own = m->own_s;
	p->now.delay = m->delay_s;
	p->now.stalled = m->stalled_s;
}

static int compare_ranks(const void *a, const void *b)
{
	const struct pace *x = *(struct pace *const *)a, *y = *(struct pace *const *)b;
	if (x->group != y->group)
		return (x->group > y->group) - (x->group < y->group);
	return (x->pace > y->pace) - (x->pace < y->pace);
}

static int compare_values(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median of its last windows; 0: there are too few. */
static double own_median(const struct pace *p)
{
	double history[STRAGGLER_HISTORY];
	int n = p->windows < STRAGGLER_HISTORY ? p->windows : STRAGGLER_HISTORY;
	if (n < STRAGGLER_WINDOWS)
		return 0;
	memcpy(history, p->history, sizeof history);
	qsort(history, (size_t)n, sizeof *history, compare_values);
	return history[(n - 1) / 2];
}

static void set_references(struct supervisor *s)
{
	struct pace **order = s->stragglers.order;
	for (int r = 0; r < s->world; r++)
		order[r] = &s->stragglers.ranks[r];
	qsort(order, (size_t)s->world, sizeof *order, compare_ranks);
	for (int first = 0, end; first < s->world; first = end) {
		for (end = first + 1; end < s->world && order[end]->group == order[first]->group;)
			end++;
		for (int i = first; i < end; i++) {
			order[i]->alone = end - first == 1;
			order[i]->reference = order[i]->alone ? own_median(order[i])
							      : order[(first + end - 1) / 2]->pace;
		}
	}
}

/* Why the rank was slow in this window, as far as its node knows. */
static const char *explain(const struct pace *p, double window, char *out, size_t size)
{
	double delay = (p->now.delay - p->begin.delay) / window;
	double stalled = (p->now.stalled - p->begin.stalled) / window;
	if (stalled > EXPLAINS)
		snprintf(out, size,
			 "; its process did not run at all for %.0f %% of the time: is it, or its "
			 "machine, stopped at times?",
			 100 * stalled);
	else if (delay > EXPLAINS)
		snprintf(out, size,
			 "; it waited for a core for %.0f %% of the time: do other processes use "
			 "its "
			 "cores, or is its share of them limited?",
			 100 * delay);
	else
		snprintf(out, size, "; it has its cores, so look at their clock and at its memory");
	return out;
}

static void report(struct supervisor *s, int rank, double factor, double window)
{
	struct pace *p = &s->stragglers.ranks[rank];
	double now = supervise_now(s);
	char text[400], why[250] = "", duration[32];
	supervise_terminal_duration(now - p->since, duration, sizeof duration);
	if (p->straggler)
		snprintf(text, sizeof text,
			 "rank %d on %s is slow: %.1f times as long per step as %s, for %s%s", rank,
			 supervise_node(s, rank), factor, p->alone ? "before" : "its peers",
			 duration, explain(p, window, why, sizeof why));
	else
		snprintf(text, sizeof text, "rank %d on %s is as fast as %s again", rank,
			 supervise_node(s, rank), p->alone ? "before" : "its peers");
	rundir_event_slow_rank(s->o.run, s->generation,
			       &(struct rundir_slow_rank){ .rank = rank,
							   .node = supervise_node(s, rank),
							   .slow = p->straggler,
							   .factor = factor,
							   .since_s = now - p->since,
							   .text = text });
	supervise_terminal_event(s->o.term, p->straggler ? TONE_WARN : TONE_GOOD, "slow", "%s",
				 text);
}

static void judge(struct supervisor *s, int rank, double window)
{
	struct pace *p = &s->stragglers.ranks[rank];
	double steps = (double)(p->now.done - p->begin.done);
	double factor = p->reference > 0 ? p->pace / p->reference : 1;
	bool slow = factor > s->d->job.health.slow_factor &&
		    (p->pace - p->reference) * steps > STRAGGLER_SHARE * window;
	p->slow = slow ? p->slow + 1 : 0;
	p->fast = slow ? 0 : p->fast + 1;
	if (p->slow == 1 && !p->straggler)
		p->since = s->stragglers.begun;
	if (p->straggler ? p->fast < STRAGGLER_WINDOWS : p->slow < STRAGGLER_WINDOWS)
		return;
	p->straggler = slow;
	report(s, rank, factor, window);
}

static void begin_window(struct supervisor *s)
{
	struct stragglers *t = &s->stragglers;
	t->begun = supervise_now(s);
	for (int r = 0; r < s->world; r++)
		t->ranks[r].begin = t->ranks[r].now;
}

static void close_window(struct supervisor *s, double window)
{
	struct stragglers *t = &s->stragglers;
	for (int r = 0; r < s->world; r++) {
		struct pace *p = &t->ranks[r];
		p->pace = (p->now.own - p->begin.own) / (double)(p->now.done - p->begin.done);
	}
	set_references(s);
	for (int r = 0; r < s->world; r++)
		judge(s, r, window);
	for (int r = 0; r < s->world; r++) {
		struct pace *p = &t->ranks[r];
		if (!p->slow)
			p->history[p->windows++ % STRAGGLER_HISTORY] = p->pace;
	}
}

static bool is_complete(const struct supervisor *s)
{
	for (int r = 0; r < s->world; r++) {
		const struct pace *p = &s->stragglers.ranks[r];
		if (p->now.done - p->begin.done < STRAGGLER_STEPS)
			return false;
	}
	return true;
}

void supervise_stragglers_tick(struct supervisor *s)
{
	struct stragglers *t = &s->stragglers;
	double now = supervise_now(s), window = now - t->begun;
	/* Between two generations the next one may have another world already. */
	if (!t->ranks || t->world != s->world || s->d->job.health.slow_factor <= 0)
		return;
	if (s->state != SUP_TRAINING || t->begun <= 0 || s->slept > t->begun) {
		begin_window(s);
	} else if (window >= s->d->job.health.slow_window && is_complete(s)) {
		close_window(s, window);
		begin_window(s);
	}
}

void supervise_stragglers_note_silence(struct supervisor *s, int rank, double seconds)
{
	struct pace *p = s->stragglers.ranks ? &s->stragglers.ranks[rank] : NULL;
	double now = supervise_now(s);
	char text[300];
	/* A gap in which this process did not run is nobody's. */
	if (!p || s->state != SUP_TRAINING || !supervise_ran_since(s, now - seconds) ||
	    s->d->job.health.pause <= 0 || seconds < s->d->job.health.pause ||
	    (p->reported > 0 && now - p->reported < PAUSE_REPORT_S))
		return;
	p->reported = now;
	snprintf(text, sizeof text,
		 "rank %d on %s sent nothing for %.1f s and goes on: it was stopped, or its "
		 "machine or "
		 "network stood still",
		 rank, supervise_node(s, rank), seconds);
	rundir_event_rank_paused(s->o.run, s->generation,
				 &(struct rundir_rank_paused){ .rank = rank,
							       .node = supervise_node(s, rank),
							       .seconds = seconds,
							       .text = text });
	supervise_terminal_event(s->o.term, TONE_WARN, "paused", "%s", text);
}
