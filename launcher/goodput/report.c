/* report: the runs that a report compares. */
#include "launcher/goodput/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double goodput_percent(double share)
{
	return 100 * share;
}

static int add(struct goodput_lines *to, const struct goodput_setup *s,
	       const struct goodput_plan *p, const char *what, struct err *e)
{
	struct goodput_line *line = &to->of[to->n];
	if (to->n == GOODPUT_LINES)
		return err_set(e, ERR_INTERNAL, "more than %d lines in a report", GOODPUT_LINES);
	snprintf(line->what, sizeof line->what, "%s", what);
	to->n++;
	return goodput_sum(s, p, &line->sum, e);
}

static int add_spares(struct goodput_report *r, struct err *e)
{
	static const int counts[] = { 0, 1, 2, 4, 8, 16 };
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		struct goodput_setup other = r->setup;
		char what[GOODPUT_LINE];
		if (counts[i] == r->setup.spares || counts[i] > r->setup.nodes)
			continue;
		other.spares = counts[i];
		snprintf(what, sizeof what, "slurm.spares = %d", counts[i]);
		if (add(&r->settings, &other, &r->plan, what, e))
			return -1;
	}
	return 0;
}

static int add_intervals(struct goodput_report *r, struct err *e)
{
	static const double factors[] = { 0.1, 0.3, 3, 10 };
	int64_t last = 0;
	for (size_t i = 0; i < sizeof factors / sizeof *factors && r->setup.rules.every; i++) {
		struct goodput_setup other = r->setup;
		char what[GOODPUT_LINE];
		other.rules.every = (int64_t)ceil((double)r->setup.rules.every * factors[i]);
		if (other.rules.every == last || other.rules.every == r->setup.rules.every ||
		    other.rules.every > r->setup.steps)
			continue;
		last = other.rules.every;
		snprintf(what, sizeof what, "checkpoint.every = %" PRId64, other.rules.every);
		if (add(&r->settings, &other, &r->plan, what, e))
			return -1;
	}
	return 0;
}

/* What another value of a key changes. False: nothing. */
static bool without_copies(struct goodput_setup *s)
{
	bool changes = s->rules.copy_every > 0;
	s->rules.copy_every = 0;
	return changes;
}

static bool cold(struct goodput_setup *s)
{
	bool changes = s->rules.warm;
	s->rules.copy_every = 0;
	s->rules.warm = false;
	return changes;
}

static bool leaving_slow(struct goodput_setup *s)
{
	bool changes = !s->rules.leaves_slow && s->rules.finds < INFINITY;
	s->rules.leaves_slow = true;
	return changes;
}

static bool staying_slow(struct goodput_setup *s)
{
	bool changes = s->rules.leaves_slow && s->rules.finds < INFINITY;
	s->rules.leaves_slow = false;
	return changes;
}

static bool without_shrinking(struct goodput_setup *s)
{
	bool changes = s->rules.shrinks;
	s->rules.shrinks = false;
	return changes;
}

static bool without_excluding(struct goodput_setup *s)
{
	bool changes = s->rules.exclude_after > 0;
	s->rules.exclude_after = 0;
	return changes;
}

static bool never_futile(struct goodput_setup *s)
{
	bool changes = s->rules.futile > 0;
	s->rules.futile = 0;
	return changes;
}

/* Removes the last line if it differs too little. */
static void keep_if_shown(const struct goodput_report *r, struct goodput_lines *l)
{
	l->n -= fabs(l->of[l->n - 1].sum.effective - r->sum.effective) < GOODPUT_LEAST_SHARE;
}

static int add_switches(struct goodput_report *r, struct err *e)
{
	static const struct {
		const char *what;
		bool (*change)(struct goodput_setup *s);
		bool always; /* it is there even if it changes nothing */
	} switches[] = {
		{ "checkpoint.memory_every = 0", without_copies, true },
		{ "restart.warm = no", cold, true },
		{ "health.slow_policy = exclude", leaving_slow, true },
		{ "health.slow_policy = warn", staying_slow, true },
		{ "restart.shrink = keep", without_shrinking, true },
		{ "restart.exclude_after = 0", without_excluding, false },
		{ "restart.max_futile = 1000000", never_futile, false },
	};
	for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
		struct goodput_setup other = r->setup;
		if (!switches[i].change(&other))
			continue;
		if (add(&r->settings, &other, &r->plan, switches[i].what, e))
			return -1;
		if (!switches[i].always)
			keep_if_shown(r, &r->settings);
	}
	return 0;
}

static int add_costs(struct goodput_report *r, struct err *e)
{
	for (int i = 0; i < GOODPUT_COST_COUNT; i++) {
		struct goodput_setup other = r->setup;
		double *cost = goodput_cost(&other.costs, i), was = *cost;
		char what[GOODPUT_LINE];
		if (i == COST_step || !(was > 0) || isinf(was))
			continue;
		*cost = 2 * was;
		snprintf(what, sizeof what, "%s=%.4g", goodput_cost_row(i)->name, 2 * was);
		if (add(&r->costs, &other, &r->plan, what, e))
			return -1;
		keep_if_shown(r, &r->costs);
	}
	return 0;
}

/* Each with the checkpoints that are best for it. */
static int add_launchers(struct goodput_report *r, struct err *e)
{
	for (int i = 1; i < GOODPUT_LAUNCHERS; i++) {
		struct goodput_setup other = r->setup;
		char what[GOODPUT_LINE];
		goodput_launch_by(i, &other);
		if (goodput_choose_every(&other, &r->plan, e))
			return -1;
		snprintf(what, sizeof what, "%s, every %" PRId64, goodput_launcher_name(i),
			 other.rules.every);
		if (add(&r->launchers, &other, &r->plan, what, e))
			return -1;
	}
	return 0;
}

static int add_timeline(struct goodput_report *r, struct err *e)
{
	if (!(r->setup.seconds > 0) || (r->plan.watch && r->plan.watch->counts))
		return 0;
	return goodput_timeline_open(&r->first, &r->history, r->setup.seconds / GOODPUT_SLICES,
				     GOODPUT_SLICES, e);
}

static int make(struct goodput_report *r, struct err *e)
{
	struct goodput_plan recorded = r->plan;
	recorded.history = &r->history;
	if (goodput_sum(&r->setup, &recorded, &r->sum, e))
		return -1;
	if (r->sum.endless)
		return 0;
	return add_timeline(r, e) || add_switches(r, e) || add_spares(r, e) ||
			       add_intervals(r, e) || add_costs(r, e) || add_launchers(r, e) ||
			       goodput_advise(&r->setup, &r->plan, &r->advice, e)
		       ? -1
		       : 0;
}

/* How many runs the report needs does not depend on what they say. */
static int count_runs(const struct goodput_report *r, struct err *e)
{
	struct goodput_report *dry = malloc(sizeof *dry);
	if (!dry)
		return err_set(e, ERR_NOMEM, "no memory for a report");
	*dry = *r;
	r->plan.watch->counts = true;
	int rc = make(dry, e);
	r->plan.watch->counts = false;
	free(dry);
	return rc;
}

int goodput_report_make(struct goodput_report *r, struct err *e)
{
	return (r->plan.watch && count_runs(r, e)) || make(r, e) ? -1 : 0;
}

void goodput_report_close(struct goodput_report *r)
{
	goodput_timeline_close(&r->first);
	goodput_history_fini(&r->history);
}
