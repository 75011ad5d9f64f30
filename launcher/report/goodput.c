/* goodput: the time of each generation, and what of it was training that counts. */
#include "launcher/report/page.h"
#include "launcher/report/plot.h"
#include "launcher/report/sections.h"

enum {
	ROWS = 200,    /* of the table; the last ones are shown */
	OPEN_ROWS = 12 /* a longer table is folded */
};

/* "GPU hours" of a run on GPUs. Short runs have seconds. */
static const char *device_word(const struct report_run *r)
{
	bool gpus = r->keys && r->keys->job.device == DEVICE_CUDA, hours = r->time.sum >= 3600;
	return gpus ? hours ? "GPU hours" : "GPU time" : hours ? "Device hours" : "Device time";
}

/* A cell with the exact seconds. */
static void put_time(struct buf *out, const char *head, const char *field, double seconds,
		     const char *(*format)(double s, char out[REPORT_WORD]))
{
	char word[REPORT_WORD];
	buf_printf(out, "<td data-h=\"%s\" class=\"n\">", head);
	report_data(out, field, seconds, format(seconds, word));
	buf_puts(out, "</td>");
}

static void put_sums(struct buf *out, const struct report_run *r,
		     const struct rundir_goodput_row *row)
{
	char word[REPORT_WORD];
	const char *(*format)(double s, char out[REPORT_WORD]) = r->time.sum >= 3600
									 ? report_hours
									 : report_duration;
	double goodput = rundir_goodput_share(row);
	put_time(out, "Duration", "generation-wall", 1e-6 * (double)row->wall, report_duration);
	buf_puts(out, "<td data-h=\"Goodput\" class=\"n\">");
	report_data(out, "generation-goodput", goodput, report_percent(goodput, word));
	buf_puts(out, "</td>");
	put_time(out, "Effective training", "generation-effective", 1e-6 * (double)row->effective,
		 report_duration);
	put_time(out, device_word(r), "generation-total", rundir_goodput_total_s(row), format);
	put_time(out, "Lost steps", "generation-lost", 1e-6 * (double)row->us[TIME_LOST], format);
}

static void put_generation(struct buf *out, const struct report_run *r,
			   const struct rundir_goodput_row *row)
{
	char since[REPORT_WORD], ranks[REPORT_WORD];
	buf_printf(out,
		   "<tr><td data-h=\"Generation\">%lld</td><td data-h=\"Since\">%s"
		   "</td><td data-h=\"Ranks\" class=\"n\">%s</td>",
		   (long long)row->generation, report_time(row->since, since),
		   report_count(row->ranks, ranks));
	put_sums(out, r, row);
	buf_puts(out, "</tr>\n");
}

static void put_rows(struct buf *out, const struct report_run *r)
{
	const struct rundir_goodput *g = &r->time.generations;
	buf_printf(
		out,
		"<div class=\"wide\"><table class=\"cards goodput\"><thead><tr><th scope=\"col\">"
		"Generation</th><th scope=\"col\">Since</th><th scope=\"col\" class=\"n\">Ranks"
		"</th><th scope=\"col\" class=\"n\">Duration</th><th scope=\"col\" class=\"n\">"
		"Goodput</th><th scope=\"col\" class=\"n\">Effective training</th><th "
		"scope=\"col\" class=\"n\">%s</th><th scope=\"col\" class=\"n\">Lost steps</th>"
		"</tr></thead><tbody>\n",
		device_word(r));
	for (size_t i = g->n > ROWS ? g->n - ROWS : 0; i < g->n; i++)
		put_generation(out, r, &g->rows[i]);
	buf_puts(out, "</tbody><tfoot><tr><td data-h=\"Generation\">all</td><td></td><td></td>");
	put_sums(out, r, &g->all);
	buf_puts(out, "</tr></tfoot></table></div>\n");
}

void report_goodput(struct buf *out, const struct report_run *r)
{
	const struct rundir_goodput *g = &r->time.generations;
	char count[REPORT_WORD];
	report_figure_open(out, r->id, "time-generations", "Goodput of each generation");
	buf_puts(out, "<p class=\"note\">Goodput is the share of the time of all devices that went "
		      "into steps that count. Effective training is that share of the duration. A "
		      "generation lasts until the next one starts.</p>\n");
	if (g->n > OPEN_ROWS)
		buf_printf(out, "<details><summary>Generations: %s</summary>\n",
			   report_count((int64_t)g->n, count));
	if (g->n > ROWS)
		buf_printf(out, "<p class=\"note\">The last %d of them.</p>\n", ROWS);
	put_rows(out, r);
	buf_puts(out, g->n > OPEN_ROWS ? "</details>\n" : "");
	report_figure_close(out);
}
