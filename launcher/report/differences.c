/* differences: several runs side by side. */
#include "launcher/report/chart.h"
#include "launcher/report/page.h"
#include "launcher/report/sections.h"

#include <math.h>

/* The first step in which two runs have other losses. */
static void put_parting(struct buf *out, const struct report_run *a, const struct report_run *b)
{
	const struct rundir_columns *x = &a->history.steps, *y = &b->history.steps;
	size_t i = 0, k = 0, same_steps = 0;
	char word[REPORT_WORD];
	while (i < x->n && k < y->n) {
		double at = x->of[COLUMN_STEP][i], other = y->of[COLUMN_STEP][k];
		if (at == other && x->of[COLUMN_LOSS][i] != y->of[COLUMN_LOSS][k]) {
			buf_puts(out, "step ");
			report_data(out, "parts-at", at, report_count((int64_t)at, word));
			return;
		}
		same_steps += at == other;
		i += at <= other;
		k += other <= at;
	}
	if (same_steps)
		buf_printf(out, "the same in %s steps", report_count((int64_t)same_steps, word));
	else
		buf_puts(out, "no step in common");
}

static void put_state(struct buf *out, const struct report_run *r)
{
	buf_puts(out, report_state_word(r));
}

static void put_step(struct buf *out, const struct report_run *r)
{
	char word[REPORT_WORD];
	double last = report_last(r, COLUMN_STEP);
	buf_puts(out, isnan(last) ? "0" : report_count((int64_t)last, word));
}

static void put_loss(struct buf *out, const struct report_run *r)
{
	char word[REPORT_WORD];
	double last = report_last(r, COLUMN_LOSS);
	report_data(out, "last-loss", last, report_value(last, word));
}

static void put_validation(struct buf *out, const struct report_run *r)
{
	char word[REPORT_WORD];
	double best = NAN;
	for (size_t i = 0; i < r->history.n_evaluations; i++)
		best = fmin(best, r->history.evaluations[i].loss);
	buf_puts(out, report_value(best, word));
}

static void put_tokens(struct buf *out, const struct report_run *r)
{
	char word[REPORT_WORD];
	buf_puts(out, report_rate(report_last(r, COLUMN_TOKENS) / r->step_s, word));
}

static void put_share(struct buf *out, const struct report_run *r)
{
	char word[REPORT_WORD];
	buf_puts(out, report_percent(r->predicted_s / r->step_s, word));
}

static void put_goodput(struct buf *out, const struct report_run *r)
{
	char word[REPORT_WORD];
	buf_puts(out, report_percent(r->time.goodput, word));
}

static void put_restarts(struct buf *out, const struct report_run *r)
{
	char word[REPORT_WORD];
	buf_puts(out, report_count(r->history.restarts, word));
}

static void put_wall(struct buf *out, const struct report_run *r)
{
	char word[REPORT_WORD];
	buf_puts(out, report_duration(r->history.end - r->history.begin, word));
}

static void put_hours(struct buf *out, const struct report_run *r)
{
	char word[REPORT_WORD];
	buf_puts(out, report_device_time(r->time.known ? r->time.sum : NAN, word));
}

static const struct {
	const char *name;
	void (*put)(struct buf *out, const struct report_run *r);
} rows[] = {
	{ "state", put_state },
	{ "last step", put_step },
	{ "loss", put_loss },
	{ "best validation loss", put_validation },
	{ "tokens per second", put_tokens },
	{ "share of the prediction", put_share },
	{ "goodput", put_goodput },
	{ "device time", put_hours },
	{ "restarts", put_restarts },
	{ "time", put_wall },
};

void report_differences(struct buf *out, const struct report_run *runs, int n)
{
	buf_puts(out, "<section id=\"differences\"><h2>Differences</h2><div class=\"wide\" "
		      "tabindex=\"0\"><table class=\"side\"><thead><tr><th></th>");
	for (int i = 0; i < n; i++) {
		buf_printf(out, "<th scope=\"col\"><i class=\"key line c%d\"></i><a href=\"#%s\">",
			   runs[i].number % CHART_COLOURS, runs[i].id);
		report_text(out, runs[i].name);
		buf_puts(out, "</a></th>");
	}
	buf_puts(out, "</tr></thead><tbody>\n");
	for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
		buf_printf(out, "<tr><th scope=\"row\">%s</th>", rows[k].name);
		for (int i = 0; i < n; i++) {
			buf_puts(out, "<td>");
			rows[k].put(out, &runs[i]);
			buf_puts(out, "</td>");
		}
		buf_puts(out, "</tr>\n");
	}
	buf_puts(out, "<tr><th scope=\"row\">other loss than the first run</th><td>–</td>");
	for (int i = 1; i < n; i++) {
		buf_puts(out, "<td>");
		put_parting(out, &runs[0], &runs[i]);
		buf_puts(out, "</td>");
	}
	buf_puts(out, "</tr></tbody><tbody>\n");
	report_job_differences(out, runs, n);
	buf_puts(out, "</tbody></table></div></section>\n");
}
