#include "plan/show/draw_timeline.h"

#include "base/human.h"

#include <math.h>
#include <stdlib.h>

/* Sizes in pixels, for a slide. A drawing with more than MOST cells is cut, because programs cannot
 * open so large a document. */
enum {
	WIDTH = 1600,
	LEFT = 110,
	RIGHT = 40,
	TOP = 70,
	ROW = 34,
	GAP = 6,
	HEAD = 44,
	AXIS = 46,
	LEGEND = 60,
	NUMBER = 15 /* narrower cells have no number */,
	MOST = 20000,
	TICKS = 8,
};

struct sheet {
	const struct drawing *d;
	struct buf *out;
	double scale; /* pixels per second */
	double end;   /* of the drawing */
};

void show_svg_escape(struct buf *out, const char *text)
{
	for (; *text; text++)
		if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
			buf_printf(out, "&#%d;", *text);
		else
			buf_add(out, text, 1);
}

static int part_height(const struct draw_part *part)
{
	return HEAD + part->timeline->ranks * (ROW + GAP) + AXIS;
}

static void put_cell(struct sheet *h, const struct timeline_event *v, int top)
{
	const struct draw_look *look = show_draw_look(v->op);
	bool odd = v->chunk > 0 && v->chunk % 2;
	double x = LEFT + v->begin * h->scale, end = fmin(v->end, h->end),
	       width = (end - v->begin) * h->scale;
	char from[HUMAN], to[HUMAN];
	int y = top + v->rank * (ROW + GAP);
	if (!look || v->begin >= h->end)
		return;
	buf_printf(h->out,
		   "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s",
		   x, y, width, ROW, look->shade[odd].svg, look->meaning);
	if (v->micro >= 0)
		buf_printf(h->out, ", chunk %d, micro-batch %d", v->chunk, v->micro);
	buf_printf(h->out, ": %s to %s</title></rect>\n", human_seconds(v->begin, from),
		   human_seconds(v->end, to));
	if (v->micro >= 0 && width >= NUMBER)
		buf_printf(h->out, "<text x=\"%.2f\" y=\"%d\" class=\"%s\">%d</text>\n",
			   x + width / 2, y + ROW / 2 + 5, odd ? "on-light" : "on-dark", v->micro);
}

/* The distance between the axis's marks: 1, 2 or 5 times a power of ten. */
static double tick_of(double end)
{
	double raw = end / TICKS, power = pow(10, floor(log10(raw)));
	return power * (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10);
}

static void put_axis(struct sheet *h, int top)
{
	char text[HUMAN];
	if (h->end <= 0)
		return;
	double tick = tick_of(h->end);
	for (int i = 0; i * tick <= h->end * 1.0001; i++) {
		double x = LEFT + i * tick * h->scale;
		buf_printf(h->out,
			   "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\" stroke=\"#999\"/>\n",
			   x, top, x, top + 6);
		buf_printf(h->out, "<text x=\"%.2f\" y=\"%d\" class=\"axis\">%s</text>\n", x,
			   top + 22, i ? human_seconds(i * tick, text) : "0");
	}
}

static void put_part(struct sheet *h, const struct draw_part *part, int top)
{
	const struct timeline *t = part->timeline;
	struct buf caption = BUF_INIT;
	show_draw_caption(part, &caption);
	buf_printf(h->out, "<text x=\"%d\" y=\"%d\" class=\"head\">", LEFT, top + HEAD - 16);
	show_svg_escape(h->out, buf_str(&caption));
	buf_puts(h->out, "</text>\n");
	buf_fini(&caption);
	top += HEAD;
	double end = fmin(timeline_end(t), h->end);
	for (int r = 0; r < t->ranks; r++) {
		int y = top + r * (ROW + GAP);
		buf_printf(h->out, "<text x=\"%d\" y=\"%d\" class=\"rank\">rank %d</text>\n",
			   LEFT - 12, y + ROW / 2 + 5, r);
		buf_printf(
			h->out,
			"<rect x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"#eeeeee\"/>\n",
			LEFT, y, end * h->scale, ROW);
	}
	for (int i = 0; i < t->n; i++)
		put_cell(h, &t->events[i], top);
	put_axis(h, top + t->ranks * (ROW + GAP));
}

static int put_key(struct sheet *h, int x, int y, const char *fill, const char *meaning)
{
	buf_printf(h->out, "<rect x=\"%d\" y=\"%d\" width=\"22\" height=\"22\" fill=\"%s\"/>\n", x,
		   y, fill);
	buf_printf(h->out, "<text x=\"%d\" y=\"%d\" class=\"key\">%s</text>\n", x + 30, y + 16,
		   meaning);
	return x + 200;
}

static void put_legend(struct sheet *h, int y)
{
	int x = LEFT, chunks = 1;
	for (int op = 0; op < SCHED_OPS; op++)
		if (show_draw_look((enum sched_op)op) && show_draw_has(h->d, (enum sched_op)op))
			x = put_key(h, x, y, show_draw_look((enum sched_op)op)->shade[0].svg,
				    show_draw_look((enum sched_op)op)->meaning);
	for (int p = 0; p < h->d->n_parts; p++)
		chunks = h->d->parts[p].timeline->chunks > chunks ? h->d->parts[p].timeline->chunks
								  : chunks;
	x = put_key(h, x, y, "#eeeeee", "waiting");
	if (chunks > 1)
		put_key(h, x, y, show_draw_look(SCHED_FORWARD)->shade[1].svg,
			"lighter: odd chunks");
}

void show_draw_svg(const struct drawing *d, struct buf *out)
{
	struct sheet h = { .d = d, .out = out, .end = show_draw_end(d) };
	int height = TOP + LEGEND, y = TOP, most = 0;
	char from[HUMAN], to[HUMAN];
	for (int p = 0; p < d->n_parts; p++) {
		height += part_height(&d->parts[p]);
		most = d->parts[p].timeline->n > most ? d->parts[p].timeline->n : most;
	}
	double whole = h.end;
	if (most > MOST)
		h.end *= (double)MOST / most;
	h.scale = h.end > 0 ? (WIDTH - LEFT - RIGHT) / h.end : 0;
	buf_printf(out,
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
		   "font-family=\"sans-serif\">\n",
		   WIDTH, height);
	buf_puts(out, "<style>text{font-size:16px;fill:#222}.title{font-size:26px}.head{font-size:"
		      "19px}.rank{text-anchor:end}"
		      ".axis{font-size:13px;text-anchor:middle;fill:#555}.on-dark,.on-light{font-"
		      "size:14px;text-anchor:middle}"
		      ".on-dark{fill:#fff}rect{stroke:#fff;stroke-width:1}</style>\n");
	buf_printf(out,
		   "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"44\" "
		   "class=\"title\">",
		   WIDTH, height, LEFT);
	show_svg_escape(out, d->title);
	if (most > MOST)
		buf_printf(out, ", cut at %s of %s", human_seconds(h.end, from),
			   human_seconds(whole, to));
	buf_puts(out, "</text>\n");
	for (int p = 0; p < d->n_parts; p++) {
		put_part(&h, &d->parts[p], y);
		y += part_height(&d->parts[p]);
	}
	put_legend(&h, y);
	buf_puts(out, "</svg>\n");
}
