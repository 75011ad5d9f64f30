/* report: the runs that a report compares. */
#include "launcher/goodput/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* A cost that changes less of the time than this is left out. */
static const double shown = 5e-5;

static int add(struct goodput_lines *to, const struct goodput_setup *s,
	       const struct goodput_plan *p, const char *what, struct err *e)
{
	struct goodput_line *line = &to->of[to->n];
	if (to->n == GOODPUT_LINES)
		return 0;
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
	for (size_t i = 0; i < sizeof factors / sizeof *factors && r->setup.rules.every; i++) {
		struct goodput_setup other = r->setup;
		char what[GOODPUT_LINE];
		other.rules.every = (int64_t)ceil((double)r->setup.rules.every * factors[i]);
		if (other.rules.every == r->setup.rules.every)
			continue;
		snprintf(what, sizeof what, "checkpoint.every = %" PRId64, other.rules.every);
		if (add(&r->settings, &other, &r->plan, what, e))
			return -1;
	}
	return 0;
}

static int add_switches(struct goodput_report *r, struct err *e)
{
	struct goodput_setup cold = r->setup, keep = r->setup, bare = r->setup, leave = r->setup;
	leave.rules.leaves_slow = !leave.rules.leaves_slow;
	bare.rules.copy_every = 0;
	cold.rules.copy_every = 0;
	cold.rules.warm = false;
	keep.rules.shrinks = false;
	if (r->setup.rules.copy_every &&
	    add(&r->settings, &bare, &r->plan, "checkpoint.memory_every = 0", e))
		return -1;
	if (r->setup.rules.warm && add(&r->settings, &cold, &r->plan, "restart.warm = no", e))
		return -1;
	if (add(&r->settings, &leave, &r->plan,
		r->setup.rules.leaves_slow ? "health.slow_policy = warn"
					   : "health.slow_policy = exclude",
		e))
		return -1;
	return r->setup.rules.shrinks
		       ? add(&r->settings, &keep, &r->plan, "restart.shrink = keep", e)
		       : 0;
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
		if (fabs(r->costs.of[r->costs.n - 1].sum.effective - r->sum.effective) < shown)
			r->costs.n--;
	}
	return 0;
}

static int add_launchers(struct goodput_report *r, struct err *e)
{
	for (int i = 1; i < GOODPUT_LAUNCHERS; i++) {
		struct goodput_setup other = r->setup;
		goodput_launch_by(i, &other);
		if (add(&r->launchers, &other, &r->plan, goodput_launcher_name(i), e))
			return -1;
	}
	return 0;
}

int goodput_report_make(struct goodput_report *r, struct err *e)
{
	return goodput_sum(&r->setup, &r->plan, &r->sum, e) || add_switches(r, e) ||
			       add_spares(r, e) || add_intervals(r, e) || add_costs(r, e) ||
			       add_launchers(r, e) ||
			       goodput_advise(&r->setup, &r->plan, &r->advice, e)
		       ? -1
		       : 0;
}
