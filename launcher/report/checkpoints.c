/* checkpoints: when they were committed, and what they cost. */
#include "launcher/report/page.h"
#include "launcher/report/sections.h"

#include <math.h>

enum { ROWS = 20 };

static void put_summary(struct buf *out, const struct rundir_history *h)
{
	char a[REPORT_WORD], b[REPORT_WORD], c[REPORT_WORD];
	double stall = 0, seconds = 0, longest = 0;
	for (size_t i = 0; i < h->n_checkpoints; i++) {
		const struct rundir_checkpoint *k = &h->checkpoints[i];
		stall += k->stall_s > 0 ? k->stall_s : 0;
		seconds += k->seconds > 0 ? k->seconds : 0;
		longest = fmax(longest, k->seconds);
	}
	buf_printf(out,
		   "<p class=\"note\">%s committed; %s each in the mean, %s at most. Training was "
		   "held "
		   "up for %s in all.</p>\n",
		   report_count((int64_t)h->n_checkpoints, a),
		   report_seconds(seconds / (double)h->n_checkpoints, b),
		   report_seconds(longest, c), report_seconds(stall, (char[REPORT_WORD]){ 0 }));
}

static void put_row(struct buf *out, const struct rundir_history *h,
		    const struct rundir_checkpoint *k)
{
	char word[REPORT_WORD];
	buf_printf(out, "<tr><td data-h=\"Step\">%s</td>", report_count(k->step, word));
	buf_printf(out, "<td data-h=\"After\">%s</td>", report_after(k->time - h->begin, word));
	buf_printf(out, "<td data-h=\"Size\" class=\"n\">%s</td>",
		   report_bytes((double)k->bytes, word));
	buf_printf(out, "<td data-h=\"Written in\" class=\"n\">%s</td>",
		   report_seconds(k->seconds, word));
	buf_printf(out,
		   "<td data-h=\"Held up\" class=\"n\">%s</td><td data-h=\"Where\" class=\"path\">",
		   report_seconds(k->stall_s, word));
	report_text_cut(out, k->path, 300);
	buf_printf(out, "%s</td></tr>\n", k->local ? " (on the nodes)" : "");
}

void report_checkpoints(struct buf *out, const struct report_run *r)
{
	const struct rundir_history *h = &r->history;
	report_section_open(out, r, "checkpoints", "Checkpoints");
	if (h->n_checkpoints) {
		put_summary(out, h);
		if (h->n_checkpoints > ROWS)
			buf_printf(out, "<p class=\"note\">The last %d:</p>\n", ROWS);
		buf_puts(out, "<div class=\"wide\"><table class=\"cards\"><thead><tr><th>Step"
			      "</th><th>After</th><th class=\"n\">Size</th><th class=\"n\">Written "
			      "in</th>"
			      "<th class=\"n\">Held up</th><th>Where</th></tr></thead><tbody>\n");
		for (size_t i = h->n_checkpoints > ROWS ? h->n_checkpoints - ROWS : 0;
		     i < h->n_checkpoints; i++)
			put_row(out, h, &h->checkpoints[i]);
		buf_puts(out, "</tbody></table></div>\n");
	} else {
		buf_puts(out, "<p class=\"note\">None was committed.</p>\n");
	}
	report_section_close(out);
}
