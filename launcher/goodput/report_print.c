/* report_print: the report for people. */
#include "launcher/goodput/report.h"

#include "base/human.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { BAR = 24, COLUMNS = 60 };

static const double least_events = 0.005; /* in a run */

/* A mean number of events: "0", "0.12", "3.4", "463". */
static const char *mean(double n, char out[HUMAN])
{
	snprintf(out, HUMAN, "%.*f", n >= 9.95 || n < 0.005 ? 0 : n >= 0.995 ? 1 : 2, n);
	return out;
}

static void print_head(const struct goodput_report *r, struct buf *out)
{
	const struct goodput_setup *s = &r->setup;
	double rate = goodput_faults_rate(s->faults) * s->nodes;
	char span[HUMAN], between[HUMAN];
	buf_printf(out, "%s on %s: %d devices on %d node%s, %d spare%s\n", r->job, r->cluster,
		   r->devices, s->nodes, human_s(s->nodes), s->spares, human_s(s->spares));
	buf_printf(out, "Faults as %s: %s%s; %d simulated run%s of %s\n", s->faults->name,
		   rate > 0 ? "one in " : "none", rate > 0 ? human_span(1 / rate, between) : "",
		   r->sum.runs, human_s(r->sum.runs), human_span(r->sum.seconds, span));
}

/* Seconds. */
static void print_costs(const struct goodput_report *r, struct buf *out)
{
	enum { A_LINE = 5 };
	struct goodput_costs c = r->setup.costs;
	buf_puts(out, "Seconds of each cost (--costs)\n");
	for (int i = 0; i < GOODPUT_COST_COUNT; i++) {
		double cost = *goodput_cost(&c, i);
		buf_printf(out, "  %s ", goodput_cost_row(i)->name);
		buf_printf(out, isinf(cost) ? "never" : cost < 1000 ? "%.3g" : "%.0f", cost);
		if (i % A_LINE == A_LINE - 1 || i == GOODPUT_COST_COUNT - 1)
			buf_puts(out, "\n");
	}
}

static void print_sum(const struct goodput_report *r, struct buf *out)
{
	const struct goodput_sum *s = &r->sum;
	char longest[HUMAN], steps[HUMAN], a[HUMAN], b[HUMAN], c[HUMAN];
	buf_printf(out, "\n  %-24s %.2f %%, and %.2f to %.2f %% in nine of ten runs\n",
		   "effective training time", goodput_percent(s->effective),
		   goodput_percent(s->low), goodput_percent(s->high));
	buf_printf(out, "  %-24s %s of %s each\n", "steps that count",
		   human_count(s->steps, "", steps), human_seconds(r->setup.costs.step, longest));
	buf_printf(
		out,
		"  %-24s %s; after %s of them the run went on from an earlier step, %s times from "
		"copies in memory\n",
		"faults", mean(s->all_faults, a), mean(s->restarts, b), mean(s->from_copies, c));
	buf_printf(out, "  %-24s replaced %s, left out with their replica %s, waited for %s",
		   "nodes", mean(s->replaced, a), mean(s->shrunk, b), mean(s->waited, c));
	if (s->excluded >= least_events)
		buf_printf(out, "; %s were excluded after several faults", mean(s->excluded, a));
	buf_puts(out, "\n");
	buf_printf(out, "  %-24s %s\n", "longest break", human_span(s->longest, longest));
	buf_printf(out, "  %-24s %s times", "begun again by hand", mean(s->people, a));
	if (s->futile >= least_events)
		buf_printf(out, ", %s of them after restarts without progress", mean(s->futile, a));
	buf_puts(out, "\n");
}

static void print_parts(const struct goodput_report *r, struct buf *out)
{
	buf_puts(out, "\nWhere the time goes\n");
	for (int i = 0; i < GOODPUT_PART_COUNT; i++) {
		double share = goodput_share(&r->sum, (enum goodput_part)i);
		if (share < GOODPUT_LEAST_SHARE)
			continue;
		buf_printf(out, "  %-12s ", goodput_part_name((enum goodput_part)i));
		human_bar(share, BAR, out);
		buf_printf(out, " %6.2f %%  %s\n", goodput_percent(share),
			   goodput_part_doc((enum goodput_part)i));
	}
}

/* --- The picture ---------------------------------------------------------------------------- */

static double column_of(const struct goodput_timeline *t, int column)
{
	enum { EACH = GOODPUT_SLICES / COLUMNS };
	double sum = 0;
	for (int i = 0; i < EACH; i++)
		sum += t->columns[column * EACH + i][GOODPUT_TRAINED];
	return sum / (EACH * t->each);
}

/* The first run. The lowest block is the next multiple of 10 % below its worst column. */
static void print_picture(const struct goodput_report *r, struct buf *out)
{
	static const char *const blocks[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	const struct goodput_timeline *run = &r->first;
	char each[HUMAN];
	double worst = 1;
	if (!run->n)
		return;
	for (int i = 0; i < COLUMNS; i++)
		worst = fmin(worst, column_of(run, i));
	double low = fmax(0, floor(worst * 10 - 1e-9) / 10);
	buf_printf(out,
		   "\nOne of the runs (seed %" PRIu64
		   "): effective training time, %s a column, from %.0f to "
		   "100 %%\n  ",
		   r->plan.seed, human_span(r->setup.seconds / COLUMNS, each),
		   goodput_percent(low));
	for (int i = 0; i < COLUMNS; i++) {
		double height = (column_of(run, i) - low) / (1 - low);
		buf_puts(out, blocks[(int)lround(fmin(fmax(height, 0), 1) * 8)]);
	}
	buf_puts(out, "\n");
}

/* --- Comparisons ---------------------------------------------------------------------------- */

static void print_lines(const struct goodput_report *r, const char *title,
			const struct goodput_lines *l, struct buf *out)
{
	if (!l->n)
		return;
	buf_printf(out, "\n%s\n", title);
	for (int i = 0; i < l->n; i++) {
		const struct goodput_sum *s = &l->of[i].sum;
		buf_printf(out, "  %-30s %6.2f %%  %+6.2f", l->of[i].what,
			   goodput_percent(s->effective),
			   goodput_percent(s->effective - r->sum.effective));
		if (s->people >= 0.5)
			buf_printf(out, ", by hand %.0f time%s", s->people,
				   human_s(lround(s->people)));
		if (s->endless)
			buf_puts(out, ", without end");
		buf_puts(out, "\n");
	}
}

static void print_advice(const struct goodput_report *r, struct buf *out)
{
	const struct goodput_advice *a = &r->advice;
	if (!a->known) {
		buf_puts(out, "\nThere were too few faults to tell which settings are best: give "
			      "--days, or "
			      "more --runs.\n");
		return;
	}
	buf_printf(out, "\nBest for these faults: %.2f %%, with\n",
		   goodput_percent(a->sum.effective));
	buf_printf(out, "  checkpoint.every=%" PRId64, a->every);
	if (r->setup.rules.copy_every)
		buf_printf(out, " checkpoint.memory_every=%" PRId64, a->copy_every);
	buf_printf(out, " slurm.spares=%d restart.max_restarts=%" PRId64 "%s\n", a->spares,
		   a->restarts,
		   a->leaves_slow == r->setup.rules.leaves_slow ? ""
		   : a->leaves_slow                             ? " health.slow_policy=exclude"
								: " health.slow_policy=warn");
	if (r->setup.rules.restarts >= 0 && (double)r->setup.rules.restarts < r->sum.restarts)
		buf_printf(out,
			   "The job's restart.max_restarts = %" PRId64
			   " ends the run after some %.2g of its "
			   "length.\n",
			   r->setup.rules.restarts,
			   (double)r->setup.rules.restarts / r->sum.restarts);
}

void goodput_report_print(const struct goodput_report *r, struct buf *out)
{
	print_head(r, out);
	print_costs(r, out);
	if (r->sum.endless) {
		buf_puts(out,
			 "\nA run would not end: faults come faster than it recovers from them.\n");
		return;
	}
	print_sum(r, out);
	print_parts(r, out);
	print_picture(r, out);
	print_lines(r, "With another setting", &r->settings, out);
	print_lines(r, "If it took twice as long (--costs)", &r->costs, out);
	print_lines(r, "The same job under other launchers (doc/guide/goodput.md)", &r->launchers,
		    out);
	print_advice(r, out);
}
