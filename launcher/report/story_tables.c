/* story_tables: the losses, warnings and generations of the time line in words. */
#include "launcher/report/page.h"
#include "launcher/report/sections.h"

#include <math.h>
#include <string.h>

enum {
	ROWS = 200,     /* of a table; the last ones are shown */
	OPEN_ROWS = 12, /* a longer table is folded */
	FAULTS = 16,    /* that are counted apart */
	TEXT = 600      /* bytes of a text from the files */
};

static void put_text(struct buf *out, const char *text)
{
	report_text_cut(out, text, TEXT);
}

static void put_found(struct buf *out, const struct report_run *r, const struct rundir_loss *l)
{
	char word[REPORT_WORD];
	const struct rundir_generation *g = NULL;
	for (size_t i = r->history.n_generations; i-- > 0 && !g;)
		if (r->history.generations[i].number == l->generation)
			g = &r->history.generations[i];
	if (!isnan(l->still_s))
		buf_puts(out, report_seconds(l->still_s, word));
	else if (!strcmp(l->how ? l->how : "", "silent") && g && g->last_line <= l->time)
		buf_printf(out, "at most %s", report_seconds(l->time - g->last_line, word));
	else
		buf_puts(out, "at once");
}

static void put_loss(struct buf *out, const struct report_run *r, const struct rundir_loss *l)
{
	char word[REPORT_WORD];
	buf_printf(out,
		   "<tr><td data-h=\"After\">%s</td><td data-h=\"Generation\" "
		   "class=\"n\">%lld</td><td "
		   "data-h=\"What\" class=\"what\"><b>",
		   report_after(l->time - r->history.begin, word), (long long)l->generation);
	put_text(out, l->fault);
	buf_puts(out, "</b>");
	if (l->rank >= 0)
		buf_printf(out, ", rank %d", l->rank);
	if (l->node && *l->node) {
		buf_puts(out, " on ");
		put_text(out, l->node);
	}
	buf_puts(out, "<br>");
	put_text(out, l->text);
	if (l->remedy && *l->remedy) {
		buf_puts(out, "<br><small>");
		put_text(out, l->remedy);
		buf_puts(out, "</small>");
	}
	buf_puts(out, "</td><td data-h=\"Found after\" class=\"n\">");
	put_found(out, r, l);
	buf_puts(out, "</td><td data-h=\"Training again after\" class=\"n\">");
	if (isnan(l->restart_s))
		buf_puts(out, "not again");
	else
		report_data(out, "restart_s", l->restart_s, report_seconds(l->restart_s, word));
	buf_puts(out, "</td><td data-h=\"Steps repeated\" class=\"n\">");
	if (l->repeated < 0)
		buf_puts(out, "–");
	else
		report_data(out, "repeated", (double)l->repeated, report_count(l->repeated, word));
	buf_puts(out, "</td></tr>\n");
}

/* A sentence if a table is cut. */
static size_t first_row(struct buf *out, size_t n, const char *things)
{
	char all[REPORT_WORD];
	if (n <= ROWS)
		return 0;
	buf_printf(out, "<p class=\"note\">The last %d of %s %s.</p>\n", ROWS,
		   report_count((int64_t)n, all), things);
	return n - ROWS;
}

/* All losses with the same fault. */
struct fault {
	const char *name;
	int64_t losses, repeated, restarts;
	double restart_s; /* of `restarts` losses together */
};

/* Adds up the losses by fault; the last one of `most` takes what is left. Returns how many. */
static size_t count_faults(const struct rundir_history *h, struct fault *faults, size_t most)
{
	size_t n = 0;
	for (size_t i = 0; i < h->n_losses; i++) {
		const struct rundir_loss *l = &h->losses[i];
		size_t k = 0;
		while (k < n && k < most - 1 && strcmp(faults[k].name, l->fault ? l->fault : ""))
			k++;
		if (k == n)
			faults[n++] = (struct fault){ .name = k < most - 1
								      ? l->fault ? l->fault : ""
								      : "other faults" };
		faults[k].losses++;
		faults[k].repeated += l->repeated > 0 ? l->repeated : 0;
		faults[k].restarts += !isnan(l->restart_s);
		faults[k].restart_s += isnan(l->restart_s) ? 0 : l->restart_s;
	}
	return n;
}

static void put_faults(struct buf *out, const struct rundir_history *h)
{
	struct fault faults[FAULTS];
	size_t n = count_faults(h, faults, FAULTS);
	char a[REPORT_WORD], b[REPORT_WORD], c[REPORT_WORD];
	buf_puts(out,
		 "<div class=\"wide\"><table class=\"cards\"><thead><tr><th>Fault</th><th "
		 "class=\"n\">Losses</th><th class=\"n\">Training again after, in the mean</th><th "
		 "class=\"n\">Steps repeated</th></tr></thead><tbody>\n");
	for (size_t i = 0; i < n; i++) {
		const struct fault *f = &faults[i];
		double mean = f->restarts ? f->restart_s / (double)f->restarts : NAN;
		buf_puts(out, "<tr><td data-h=\"Fault\"><b>");
		put_text(out, f->name);
		buf_printf(
			out,
			"</b></td><td data-h=\"Losses\" class=\"n\">%s</td><td data-h=\"Training "
			"again after\" class=\"n\">%s</td><td data-h=\"Steps repeated\" "
			"class=\"n\">%s</td></tr>\n",
			report_count(f->losses, a), report_seconds(mean, b),
			report_count(f->repeated, c));
	}
	buf_puts(out, "</tbody></table></div>\n");
}

void report_losses(struct buf *out, const struct report_run *r)
{
	const struct rundir_history *h = &r->history;
	if (!h->n_losses) {
		buf_puts(out, "<p class=\"note\">No rank was lost.</p>\n");
		return;
	}
	buf_puts(out, "<h3>Losses</h3>\n");
	if (h->n_losses > OPEN_ROWS) {
		put_faults(out, h);
		buf_puts(out, "<details><summary>Each loss</summary>\n");
	}
	size_t i = first_row(out, h->n_losses, "losses");
	buf_puts(out, "<div class=\"wide\"><table class=\"cards\"><thead><tr><th>After</th><th "
		      "class=\"n\">"
		      "Generation</th><th>What</th><th class=\"n\">Found after</th><th class=\"n\">"
		      "Training again after</th><th class=\"n\">Steps "
		      "repeated</th></tr></thead><tbody>\n");
	for (; i < h->n_losses; i++)
		put_loss(out, r, &h->losses[i]);
	buf_puts(out, "</tbody></table></div>\n");
	buf_puts(out, h->n_losses > OPEN_ROWS ? "</details>\n" : "");
}

void report_warnings(struct buf *out, const struct report_run *r)
{
	const struct rundir_history *h = &r->history;
	char word[REPORT_WORD];
	if (!h->n_marks)
		return;
	buf_puts(out, "<h3>Warnings and decisions</h3>\n");
	size_t i = first_row(out, h->n_marks, "events");
	buf_puts(out,
		 "<div class=\"wide\"><table class=\"cards\"><thead><tr><th>After</th><th>Event"
		 "</th><th>What</th></tr></thead><tbody>\n");
	for (; i < h->n_marks; i++) {
		buf_printf(out,
			   "<tr><td data-h=\"After\">%s</td><td data-h=\"Event\">%s</td><td "
			   "data-h=\"What\" class=\"what\">",
			   report_after(h->marks[i].time - h->begin, word), h->marks[i].event);
		put_text(out, h->marks[i].text);
		buf_puts(out, "</td></tr>\n");
	}
	buf_puts(out, "</tbody></table></div>\n");
}

/* The degrees above 1. */
static void put_layout(struct buf *out, const struct rundir_generation *g)
{
	const struct {
		const char *name;
		int degree;
	} axes[] = {
		{ "tp", g->tp }, { "cp", g->cp }, { "ep", g->ep }, { "dp", g->dp }, { "pp", g->pp }
	};
	bool any = false;
	for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
		if (axes[i].degree > 1)
			buf_printf(out, "%s%s %d", any ? " · " : "", axes[i].name, axes[i].degree);
		any |= axes[i].degree > 1;
	}
	buf_puts(out, any ? "" : "–");
}

static void put_generation(struct buf *out, const struct report_run *r,
			   const struct rundir_generation *g)
{
	char word[REPORT_WORD];
	buf_printf(out,
		   "<tr><td data-h=\"Generation\">%lld</td><td "
		   "data-h=\"After\">%s</td><td "
		   "data-h=\"Ranks\" class=\"n\">%d</td><td data-h=\"Layout\">",
		   (long long)g->number, report_after(g->begin - r->history.begin, word), g->world);
	put_layout(out, g);
	buf_puts(out, "</td>");
	buf_puts(out, "<td data-h=\"Steps\" class=\"n\">");
	if (g->steps)
		buf_printf(out, "%s to %s", report_count(g->resumed < 0 ? 1 : g->resumed + 1, word),
			   report_count(g->last_step, (char[REPORT_WORD]){ 0 }));
	else
		buf_puts(out, "none");
	buf_printf(out, "</td><td data-h=\"Ready after\" class=\"n\">%s</td></tr>\n",
		   report_seconds(g->ready - g->begin, word));
}

void report_generations(struct buf *out, const struct report_run *r)
{
	const struct rundir_history *h = &r->history;
	char count[REPORT_WORD];
	buf_printf(out, "<details%s><summary>Generations: %s</summary>\n",
		   h->n_generations <= OPEN_ROWS ? " open" : "",
		   report_count((int64_t)h->n_generations, count));
	size_t i = first_row(out, h->n_generations, "generations");
	buf_puts(out,
		 "<div class=\"wide\"><table class=\"cards\"><thead><tr><th>Generation"
		 "</th><th>After</th><th class=\"n\">Ranks</th><th>Layout</th><th class=\"n\">Steps"
		 "</th><th class=\"n\">Ready after</th></tr></thead><tbody>\n");
	for (; i < h->n_generations; i++)
		put_generation(out, r, &h->generations[i]);
	buf_puts(out, "</tbody></table></div></details>\n");
}
