/* summary: how the run stands, in one look. */
#include "launcher/report/page.h"
#include "launcher/report/sections.h"

#include <math.h>
#include <stdio.h>

static const char *state_look(const struct report_run *r)
{
	switch (r->state) {
	case RUNDIR_STATE_DONE:
		return "good";
	case RUNDIR_STATE_STOPPED:
		return "warn";
	case RUNDIR_STATE_FAILED:
	case RUNDIR_STATE_GAVE_UP:
	case RUNDIR_STATE_LOST:
		return "bad";
	default:
		return rundir_state_active(r->state) ? "busy" : "plain";
	}
}

static void open_tile(struct buf *out, const char *name)
{
	buf_printf(out, "<div class=\"tile\"><dt>%s</dt><dd>", name);
}

static void close_tile(struct buf *out)
{
	buf_puts(out, "</dd></div>\n");
}

static void put_steps(struct buf *out, const struct report_run *r)
{
	char a[REPORT_WORD], b[REPORT_WORD];
	double last = report_last(r, COLUMN_STEP);
	int64_t all = r->keys ? job_steps(r->keys) : 0, done = isnan(last) ? 0 : (int64_t)last;
	open_tile(out, "Step");
	if (report_is_opaque(r))
		report_data(out, "step", NAN, "–");
	else
		report_data(out, "step", (double)done, report_count(done, a));
	if (all > 0) {
		double share = fmin((double)done / (double)all, 1);
		buf_printf(out,
			   "<small>of %s</small><svg class=\"progress\" viewBox=\"0 0 1000 10\" "
			   "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%s\"><rect "
			   "width=\"%.1f\" height=\"10\"/></svg>",
			   report_count(all, a), report_percent(share, b), 1000 * share);
	}
	close_tile(out);
}

static void put_loss(struct buf *out, const struct report_run *r)
{
	char a[REPORT_WORD];
	const struct rundir_history *h = &r->history;
	open_tile(out, "Loss");
	report_data(out, "last-loss", report_last(r, COLUMN_LOSS),
		    report_value(report_last(r, COLUMN_LOSS), a));
	if (h->n_evaluations)
		buf_printf(out, "<small>validation %s</small>",
			   report_value(h->evaluations[h->n_evaluations - 1].loss, a));
	close_tile(out);
}

static void put_speed(struct buf *out, const struct report_run *r)
{
	char a[REPORT_WORD];
	open_tile(out, "Tokens per second");
	double tokens = report_last(r, COLUMN_TOKENS) / r->step_s;
	if (report_has_program(r) && !(tokens > 0))
		tokens = NAN; /* it reports none */
	report_data(out, "speed", tokens, report_rate(tokens, a));
	if (r->predicted_s > 0 && r->step_s > 0)
		buf_printf(out, "<small>%s of the prediction</small>",
			   report_percent(r->predicted_s / r->step_s, a));
	else
		buf_puts(out, "<small>last 100 steps</small>");
	close_tile(out);
}

static void put_goodput(struct buf *out, const struct report_run *r)
{
	char a[REPORT_WORD];
	open_tile(out, "Goodput");
	bool told = r->time.known && !report_is_opaque(r);
	double goodput = told ? r->time.goodput : NAN;
	report_data(out, "goodput", goodput, report_percent(goodput, a));
	if (told)
		buf_printf(out, "<small>of %s device time</small>",
			   report_device_time(r->time.sum, a));
	else
		buf_puts(out, "<small>not measured</small>");
	close_tile(out);
}

static void put_restarts(struct buf *out, const struct report_run *r)
{
	char a[REPORT_WORD];
	int64_t repeated = r->history.steps.lines - (int64_t)r->history.steps.n;
	open_tile(out, "Restarts");
	report_data(out, "restarts", (double)r->history.restarts,
		    report_count(r->history.restarts, a));
	buf_printf(out, "<small>%s step%s repeated</small>", report_count(repeated, a),
		   repeated == 1 ? "" : "s");
	close_tile(out);
}

static void put_time(struct buf *out, const struct report_run *r)
{
	char a[REPORT_WORD];
	double left = ((r->keys ? (double)job_steps(r->keys) : NAN) - report_last(r, COLUMN_STEP)) *
		      r->step_s;
	double wall = r->history.end - r->history.begin;
	open_tile(out, "Time");
	report_data(out, "wall", wall, report_duration(wall, a));
	if (r->state == RUNDIR_STATE_TRAINING && left >= 0 && !report_has_program(r))
		buf_printf(out, "<small>%s left</small>", report_duration(left, a));
	close_tile(out);
}

/* "8 ranks on 2 nodes · tp 4 · dp 2 · started 2026-11-20 10:00:05 UTC" */
static void put_facts(struct buf *out, const struct report_run *r)
{
	const struct rundir_generation *g = report_last_generation(r);
	char word[REPORT_WORD];
	buf_puts(out, "<p class=\"facts\">");
	if (g && g->world > 0) {
		const struct {
			const char *name;
			int degree;
		} axes[] = { { "tp", g->tp },
			     { "cp", g->cp },
			     { "ep", g->ep },
			     { "dp", g->dp },
			     { "pp", g->pp } };
		size_t nodes = json_array_size(json_object_get(r->plan, "nodes"));
		buf_printf(out, "%s rank%s", report_count(g->world, word),
			   g->world == 1 ? "" : "s");
		if (nodes)
			buf_printf(out, " on %zu node%s", nodes, nodes == 1 ? "" : "s");
		for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
			if (axes[i].degree > 1)
				buf_printf(out, " · %s %d", axes[i].name, axes[i].degree);
		buf_puts(out, " · ");
	}
	if (isfinite(r->history.begin))
		buf_printf(out, "%s to ", report_time(r->history.begin, word));
	if (isfinite(r->history.end))
		buf_printf(out, "%s UTC", report_time(r->history.end, word));
	buf_puts(out, "</p>\n");
}

void report_summary(struct buf *out, const struct report_run *r)
{
	buf_printf(out, "<header id=\"%s\" class=\"run\"><h1>", r->id);
	report_text(out, r->name);
	buf_printf(out, " <span class=\"state %s\">%s</span></h1>\n", state_look(r),
		   report_state_word(r));
	put_facts(out, r);
	if (r->history.reason && *r->history.reason) {
		buf_puts(out, "<p class=\"reason\">");
		report_text_cut(out, r->history.reason, 1000);
		buf_puts(out, "</p>\n");
	}
	buf_puts(out, "<dl class=\"tiles\">\n");
	put_steps(out, r);
	put_loss(out, r);
	put_speed(out, r);
	put_goodput(out, r);
	put_restarts(out, r);
	put_time(out, r);
	buf_puts(out, "</dl>\n");
	buf_add(out, r->notes.data, r->notes.len);
	buf_puts(out, "</header>\n");
}
