/* report_svg: the picture of a report. */
#include "launcher/goodput/report_svg.h"

#include "base/human.h"
#include "plan/show/draw_timeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TOP = 124, GAP = 48, HEAD = 18, BAR = 26, BAR_GAP = 8, LINE = 28, SWATCH = 20 };
/* Characters of names that are shown, and bytes that they need. */
enum { NAME = 28, LABEL = 34, TEXT = 4 * GOODPUT_DOC };
/* The bars of the comparison leave room for their figures. */
enum { BARS = SVG_PLOT - 260 };
/* Colours that people with any colour vision can tell apart: those of Okabe and Ito, and three dark or light ones
 * besides. The legend has the order of the columns. */
static const char *const colours[GOODPUT_PART_COUNT] = {
	[GOODPUT_TRAINED] = "#0072b2", [GOODPUT_SAVING] = "#56b4e9", [GOODPUT_LOST] = "#d55e00",
	[GOODPUT_LOWER] = "#cc79a7",   [GOODPUT_SLOW] = "#f0e442",   [GOODPUT_DETECT] = "#e69f00",
	[GOODPUT_RESTART] = "#009e73", [GOODPUT_WAIT] = "#999999",   [GOODPUT_START] = "#5b2a86",
	[GOODPUT_PERSON] = "#111111",
};

const char *goodput_svg_colour(enum goodput_part p)
{
	return colours[p];
}

void goodput_svg_plain(struct buf *out, int most, const char *text)
{
	char some[TEXT];
	size_t len = 0, n;
	for (; *text && most > 0 && len + 4 < sizeof some; most--, text += n ? n : 1) {
		n = human_character(text);
		memcpy(some + len, n ? text : "?", n ? n : 1);
		len += n ? n : 1;
	}
	some[len] = '\0';
	show_svg_escape(out, some);
	buf_puts(out, *text ? "…" : "");
}

void goodput_svg_words(struct svg_sheet *h, double x, double y, const char *class, const char *fmt,
		       ...)
{
	va_list ap;
	buf_printf(h->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
	va_start(ap, fmt);
	buf_vprintf(h->out, fmt, ap);
	va_end(ap);
	buf_puts(h->out, "</text>\n");
}

/* --- The head ------------------------------------------------------------------------------- */

static void put_name(const struct svg_sheet *h)
{
	goodput_svg_plain(h->out, NAME, h->r->job);
	buf_puts(h->out, " on ");
	goodput_svg_plain(h->out, NAME, h->r->cluster);
	buf_printf(h->out, ": %.2f %% effective training time",
		   goodput_percent(h->r->sum.effective));
}

static void put_head(struct svg_sheet *h)
{
	const struct goodput_report *r = h->r;
	double rate = goodput_faults_rate(r->setup.faults) * r->setup.nodes;
	char span[HUMAN], between[HUMAN];
	buf_printf(h->out, "<text x=\"%d\" y=\"46\" class=\"title\">", SVG_LEFT);
	put_name(h);
	buf_printf(h->out, "</text>\n<text x=\"%d\" y=\"74\" class=\"note\">", SVG_LEFT);
	buf_printf(h->out, "%d devices on %d node%s, %d spare%s; faults as ", r->devices,
		   r->setup.nodes, human_s(r->setup.nodes), r->setup.spares,
		   human_s(r->setup.spares));
	goodput_svg_plain(h->out, NAME, r->setup.faults->name);
	buf_printf(h->out,
		   ": %s%s; one of %d simulated run%s (seed %" PRIu64 "), %s: %.2f %%</text>\n",
		   rate > 0 ? "one in " : "none", rate > 0 ? human_span(1 / rate, between) : "",
		   r->sum.runs, human_s(r->sum.runs), r->plan.seed, human_span(h->end, span),
		   goodput_percent(goodput_effective(&r->sum.first)));
}

/* --- The comparison ------------------------------------------------------------------------- */

static void put_bar(struct svg_sheet *h, double y, const char *name, const struct goodput_sum *s)
{
	double x = SVG_LEFT;
	buf_printf(h->out, "<g><text x=\"%d\" y=\"%.1f\" class=\"side\">", SVG_LEFT - 12,
		   y + BAR / 2 + 5);
	goodput_svg_plain(h->out, LABEL, name);
	buf_puts(h->out, "</text>\n");
	for (int p = 0; p < GOODPUT_PART_COUNT; p++) {
		double wide = BARS * goodput_share(s, p);
		if (wide >= 0.05)
			buf_printf(h->out,
				   "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" "
				   "fill=\"%s\"><title>%s %.2f %%</title></rect>\n",
				   x, y, wide, BAR, colours[p],
				   goodput_part_name((enum goodput_part)p),
				   goodput_percent(goodput_share(s, p)));
		x += wide;
	}
	buf_printf(h->out, "<text x=\"%d\" y=\"%.1f\" class=\"figure\">%.2f %%",
		   SVG_LEFT + BARS + 12, y + BAR / 2 + 5, goodput_percent(s->effective));
	if (s->people >= 0.5)
		buf_printf(h->out, ", by hand %.0f time%s", s->people, human_s(lround(s->people)));
	buf_printf(h->out, "%s</text></g>\n", s->endless ? ", without end" : "");
}

static double put_comparison(struct svg_sheet *h, double y)
{
	const struct goodput_lines *l = &h->r->launchers;
	char own[GOODPUT_LINE];
	double used = HEAD;
	goodput_svg_words(
		h, SVG_LEFT, y, "head",
		"muster with the job's settings; each other launcher with the interval of "
		"checkpoints that is best for it: 0 to 100 %% of the time");
	snprintf(own, sizeof own, "%s, every %" PRId64, goodput_launcher_name(0),
		 h->r->setup.rules.every);
	put_bar(h, y + used, own, &h->r->sum);
	for (int i = 0; i < l->n; i++) {
		used += BAR + BAR_GAP;
		put_bar(h, y + used, l->of[i].what, &l->of[i].sum);
	}
	return used + BAR;
}

/* --- The legend ----------------------------------------------------------------------------- */

/* Whether it can be seen anywhere in the picture. */
static bool is_shown(const struct svg_sheet *h, int part)
{
	const struct goodput_result *run = &h->r->sum.first;
	double most = fmax(goodput_share(&h->r->sum, part),
			   run->parts[part] / fmax(run->seconds, 1e-9));
	for (int i = 0; i < h->r->launchers.n; i++)
		most = fmax(most, goodput_share(&h->r->launchers.of[i].sum, part));
	return most >= GOODPUT_LEAST_SHARE;
}

static double put_legend(struct svg_sheet *h, double y)
{
	enum { PART_X = 34, RUN_X = 240, MEAN_X = 360, DOC_X = 400 };
	const struct goodput_result *run = &h->r->sum.first;
	double used = 0;
	goodput_svg_words(h, SVG_LEFT + RUN_X, y, "number head", "this run");
	goodput_svg_words(h, SVG_LEFT + MEAN_X, y, "number head", "all runs");
	for (int p = 0; p < GOODPUT_PART_COUNT; p++) {
		if (!is_shown(h, p))
			continue;
		used += LINE;
		buf_printf(h->out,
			   "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n",
			   SVG_LEFT, y + used - 15, SWATCH, SWATCH, colours[p]);
		goodput_svg_words(h, SVG_LEFT + PART_X, y + used, "key", "%s",
				  goodput_part_name((enum goodput_part)p));
		goodput_svg_words(h, SVG_LEFT + RUN_X, y + used, "number", "%.2f %%",
				  goodput_percent(run->parts[p] / run->seconds));
		goodput_svg_words(h, SVG_LEFT + MEAN_X, y + used, "number", "%.2f %%",
				  goodput_percent(goodput_share(&h->r->sum, p)));
		goodput_svg_words(h, SVG_LEFT + DOC_X, y + used, "note", "%s",
				  goodput_part_doc((enum goodput_part)p));
	}
	return used;
}

/* --- The document --------------------------------------------------------------------------- */

/* body: what has been drawn, on `height` pixels. */
static void put_document(struct svg_sheet *h, struct buf *body, double height, struct buf *out)
{
	h->out = out;
	buf_printf(out,
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
		   "font-family=\"sans-serif\">\n<title>",
		   SVG_WIDTH, height);
	put_name(h);
	buf_puts(out, "</title>\n<style>text{font-size:15px;fill:#222}.title{font-size:24px}"
		      ".head{font-size:17px;font-weight:bold}.note{fill:#444}"
		      ".tick{text-anchor:middle;fill:#444}.side{text-anchor:end;fill:#222}"
		      ".number{text-anchor:end}.figure{font-weight:bold}.count{fill:#444}"
		      ".grid{stroke:#ddd}.edge{stroke:#777}.row{fill:#f1f3f6}"
		      ".mark{stroke:#b3261e;stroke-width:2;fill:none}</style>\n");
	buf_printf(out, "<rect width=\"%d\" height=\"%.0f\" fill=\"#fff\"/>\n", SVG_WIDTH, height);
	buf_add(out, buf_str(body), body->len);
	buf_puts(out, "</svg>\n");
	out->failed |= buf_failed(body);
}

static void draw(struct svg_sheet *h, struct buf *out)
{
	struct buf body = BUF_INIT;
	double y = TOP;
	h->out = &body;
	put_head(h);
	y += goodput_svg_columns(h, y) + GAP / 2;
	y += goodput_svg_faults(h, y) + GAP;
	y += put_comparison(h, y) + GAP;
	y += put_legend(h, y) + GAP;
	put_document(h, &body, y, out);
	buf_fini(&body);
}

int goodput_report_svg(const struct goodput_report *r, struct buf *out, struct err *e)
{
	struct svg_sheet h = { .r = r, .end = r->sum.first.seconds };
	double each = goodput_svg_column(h.end);
	if (r->sum.endless || !(h.end > 0))
		return err_set(e, ERR_UNSUPPORTED,
			       "a run would not end, so there is nothing to draw; give --days, or "
			       "rarer faults");
	if (goodput_timeline_open(&h.run, &r->history, each, (int)ceil(h.end / each - 1e-9), e))
		return -1;
	draw(&h, out);
	goodput_timeline_close(&h.run);
	return buf_failed(out)
		       ? err_set(e, ERR_NOMEM, "no memory for the drawing; close other programs")
		       : 0;
}
