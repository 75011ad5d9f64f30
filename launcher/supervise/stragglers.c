#include "launcher/supervise/stragglers.h"

#include "base/numbers.h"
#include "launcher/supervise/paces.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without memory nothing is compared. */
void supervise_stragglers_reset(struct supervisor *s)
{
	struct stragglers *t = &s->stragglers;
	const struct plan_rank *ranks = s->d->plan.ranks;
	size_t world = (size_t)s->world;
	supervise_stragglers_close(s);
	t->ranks = calloc(world, sizeof *t->ranks);
	t->order = calloc(world, sizeof *t->order);
	t->news = calloc((size_t)s->d->cluster.n_nodes, sizeof *t->news);
	if (!t->ranks || !t->order || !t->news) {
		supervise_stragglers_close(s);
		return;
	}
	t->world = s->world;
	for (int r = 0; r < t->world; r++) {
		t->ranks[r].rank = r;
		t->ranks[r].group = ranks[r].at.pp * s->d->cluster.n_kinds +
				    s->d->cluster.nodes[ranks[r].node].kind;
	}
}

void supervise_stragglers_close(struct supervisor *s)
{
	struct stragglers *t = &s->stragglers;
	free(t->ranks);
	free(t->order);
	free(t->news);
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

static double median_clock(const struct supervisor *s, int group, bool gpu)
{
	const struct stragglers *t = &s->stragglers;
	const struct rank_evidence *k = s->evidence.ranks;
	double *clocks = k ? malloc((size_t)t->world * sizeof *clocks) : NULL, median = 0;
	int n = 0;
	for (int r = 0; clocks && r < t->world; r++) {
		double clock = gpu ? k[r].gpu_clock : k[r].clock;
		if (t->ranks[r].group == group && clock > 0)
			clocks[n++] = clock;
	}
	if (n > 1) {
		qsort(clocks, (size_t)n, sizeof *clocks, compare_double);
		median = clocks[n / 2]; /* of two, the faster one */
	}
	free(clocks);
	return median;
}

static struct evidence_window window_of(const struct pace *p, double window)
{
	return (struct evidence_window){ .seconds = window,
					 .stalled = p->now.stalled - p->begin.stalled,
					 .delay = p->delay,
					 .pace = p->pace,
					 .peers = p->reference,
					 .steps = p->now.done - p->begin.done,
					 .slow = p->slow > 0 };
}

static double factor_of(const struct pace *p)
{
	return p->reference > 0 ? p->pace / p->reference : 1;
}

/* "rank 3 on n1", or with several ranks of its node "ranks 0, 1, 2 on n1". */
static void describe_ranks(const struct supervisor *s, int rank, bool all, char *out, size_t size)
{
	enum { SHOWN = 8 };
	const struct stragglers *t = &s->stragglers;
	int node = s->d->plan.ranks[rank].node, n = 0;
	int at = snprintf(out, size, "rank%s ", all ? "s" : "");
	for (int r = 0; r < t->world && n <= SHOWN; r++) {
		bool named = all ? s->d->plan.ranks[r].node == node && t->ranks[r].news &&
					     t->ranks[r].straggler
				 : r == rank;
		if (!named || at >= (int)size - 16)
			continue;
		at += n == SHOWN ? snprintf(out + at, size - (size_t)at, " and more")
				 : snprintf(out + at, size - (size_t)at, "%s%d", n ? ", " : "", r);
		n++;
	}
	snprintf(out + at, size - (size_t)at, " on %s", supervise_node(s, rank));
}

/* Writes "; reason". Returns the kind of the cause, "" if there is none. */
static const char *explain(const struct supervisor *s, int rank, double window, char *why,
			   size_t size)
{
	const struct pace *p = &s->stragglers.ranks[rank];
	struct evidence_window w = window_of(p, window);
	bool node;
	w.clock = median_clock(s, p->group, false);
	w.gpu_clock = median_clock(s, p->group, true);
	return supervise_evidence_explain(s, rank, &w, why, size, &node);
}

static void describe(const struct supervisor *s, int rank, bool all, double window, char *text,
		     size_t size)
{
	const struct pace *p = &s->stragglers.ranks[rank];
	char who[200], why[450], duration[32];
	describe_ranks(s, rank, all, who, sizeof who);
	if (!p->straggler) {
		snprintf(text, size, "%s is as fast as %s again", who,
			 p->alone ? "before" : "its peers");
		return;
	}
	explain(s, rank, window, why, sizeof why);
	supervise_terminal_duration(supervise_now(s) - p->since, duration, sizeof duration);
	snprintf(text, size, "%s %s%s slow: %.1f times as long per step as %s, for %s%s", who,
		 all ? "are" : "is", p->news ? "" : " still", factor_of(p),
		 p->alone ? "before"
		 : all    ? "their peers"
			  : "its peers",
		 duration, why);
}

static void note_suspect(struct supervisor *s, int rank, enum suspect_kind kind, const char *text)
{
	int node = supervise_pool_find(&s->recovery.pool, supervise_node(s, rank));
	if (node >= 0)
		supervise_suspect_note(s, node, kind, text, "");
}

static void record(struct supervisor *s, int rank, const char *text)
{
	const struct pace *p = &s->stragglers.ranks[rank];
	rundir_event_slow_rank(s->o.run, s->generation,
			       &(struct rundir_slow_rank){ .rank = rank,
							   .node = supervise_node(s, rank),
							   .slow = p->straggler,
							   .factor = factor_of(p),
							   .since_s = supervise_now(s) - p->since,
							   .text = text });
}

/* One event per rank; one line for people per rank, or per node if several of its ranks became
 * slow. */
static void report(struct supervisor *s, int rank, int slowest, double window)
{
	struct pace *p = &s->stragglers.ranks[rank];
	int node = s->d->plan.ranks[rank].node, *news = &s->stragglers.news[node];
	char text[800];
	describe(s, rank, false, window, text, sizeof text);
	record(s, rank, text);
	if (!p->straggler) {
		supervise_terminal_event(s->o.term, TONE_GOOD, "slow", "%s", text);
		return;
	}
	if (*news > 1)
		describe(s, rank, true, window, text, sizeof text);
	if (*news > 0) {
		supervise_terminal_event(s->o.term, TONE_WARN, "slow", "%s", text);
		if (node != s->d->plan.ranks[slowest].node)
			note_suspect(s, rank, SUSPECT_SLOW, text);
	}
	*news = *news > 1 ? 0 : *news;
}

/* Notes the strongest cause of the window. True: it has been another one than the one that was
 * reported last for several windows. */
static bool has_new_reason(struct supervisor *s, int rank, double window)
{
	struct pace *p = &s->stragglers.ranks[rank];
	char why[450];
	const char *kind = explain(s, rank, window, why, sizeof why);
	if (p->news) {
		snprintf(p->reason, sizeof p->reason, "%s", kind);
		p->others = p->reasons = 0;
		return false;
	}
	if (!p->slow || !*kind || !strcmp(kind, p->reason)) {
		p->others = 0;
		return false;
	}
	if (!p->others || strcmp(kind, p->other)) {
		snprintf(p->other, sizeof p->other, "%s", kind);
		p->others = 0;
	}
	if (++p->others < STRAGGLER_WINDOWS || p->reasons == STRAGGLER_REASONS)
		return false;
	snprintf(p->reason, sizeof p->reason, "%s", kind);
	p->others = 0;
	p->reasons++;
	return true;
}

static void report_new_reason(struct supervisor *s, int rank, double window)
{
	char text[800];
	describe(s, rank, false, window, text, sizeof text);
	record(s, rank, text);
	supervise_terminal_event(s->o.term, TONE_WARN, "slow", "%s", text);
}

static void judge(struct supervisor *s, int rank, double window)
{
	struct pace *p = &s->stragglers.ranks[rank];
	double steps = (double)(p->now.done - p->begin.done);
	bool slow = factor_of(p) > s->d->job.health.slow_factor &&
		    (p->pace - p->reference) * steps > STRAGGLER_SHARE * window;
	p->slow = slow ? p->slow + 1 : 0;
	p->fast = slow ? 0 : p->fast + 1;
	if (p->slow == 1 && !p->straggler)
		p->since = s->stragglers.begun;
	p->news = p->straggler ? p->fast >= STRAGGLER_WINDOWS : p->slow >= STRAGGLER_WINDOWS;
	if (!p->news)
		return;
	p->straggler = slow;
	s->stragglers.news[s->d->plan.ranks[rank].node] += slow;
}

/* Returns the rank that delays a step most; -1: none does. It chooses from the ranks that became
 * stragglers in this window; with `again`, from those that stay slow and whose node was not considered
 * for EXCLUDE_REST_S. */
static int find_slowest(const struct supervisor *s, bool again)
{
	const struct pace *ranks = s->stragglers.ranks;
	double now = supervise_now(s);
	int most = -1;
	for (int r = 0; r < s->world; r++) {
		const struct pace *p = &ranks[r];
		bool fits = again ? p->slow >= STRAGGLER_WINDOWS &&
					    now - p->considered >= EXCLUDE_REST_S
				  : p->news;
		if (p->straggler && fits &&
		    (most < 0 || p->pace - p->reference > ranks[most].pace - ranks[most].reference))
			most = r;
	}
	return most;
}

/* The run leaves one node at a time. */
static void consider_leaving(struct supervisor *s, int slowest, double window)
{
	const struct plan_rank *ranks = s->d->plan.ranks;
	int rank = slowest >= 0 ? slowest : find_slowest(s, true);
	char text[800];
	if (rank < 0)
		return;
	const struct pace *p = &s->stragglers.ranks[rank];
	for (int r = 0; r < s->world; r++)
		if (ranks[r].node == ranks[rank].node)
			s->stragglers.ranks[r].considered = supervise_now(s);
	describe(s, rank, false, window, text, sizeof text);
	if (supervise_exclude_consider(s, rank, p->pace - p->reference, text, slowest < 0))
		supervise_handle(s, EV_LEAVE_NODE, NULL, s->exclude.reason);
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
	supervise_paces_compute(s, window);
	memset(t->news, 0, (size_t)s->d->cluster.n_nodes * sizeof *t->news);
	for (int r = 0; r < s->world; r++)
		judge(s, r, window);
	int slowest = find_slowest(s, false);
	for (int r = 0; r < s->world; r++) {
		struct pace *p = &t->ranks[r];
		const struct evidence_window w = window_of(p, window);
		supervise_evidence_record(s, r, &w);
		if (p->news)
			report(s, r, slowest, window);
		if (p->straggler && has_new_reason(s, r, window))
			report_new_reason(s, r, window);
		if (!p->slow)
			p->history[p->windows++ % STRAGGLER_HISTORY] = p->pace;
	}
	supervise_warn_ranks(s, window);
	consider_leaving(s, slowest, window);
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
	    s->d->job.health.pause <= 0 ||
	    seconds < s->d->job.health.pause + supervise_heartbeat_late(s) ||
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
	if (++p->pauses == PAUSES_SUSPECT)
		note_suspect(s, rank, SUSPECT_PAUSED, text);
}
