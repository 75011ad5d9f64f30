#include "plan/show/draw_timeline.h"

#include "base/human.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes in pixels, for a slide. Passes are merged into columns if most are narrower than NARROW, or
 * if there are more than MOST, because programs cannot open so large a document. */
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
	NOTE = 24,
	DIGIT = 9, /* cells that are narrower than their number have none */
	BORDER = 6 /* narrower cells have no border, which would cover them */,
	NARROW = 2,
	COLUMN = 5,
	COLUMN_PASSES = 4 /* fewer in a column would be a pattern of their own */,
	MOST = 20000,
	TICKS = 8,
};
/* No pass is narrower, so that it can be found when the picture is enlarged. */
#define LEAST 0.4

struct sheet {
	const struct drawing *d;
	struct buf *out;
	double scale; /* pixels per second */
	double end;   /* of the drawing */
	int columns;  /* 0: passes are drawn one by one */
};

/* XML lacks U+FFFE and U+FFFF, which are not characters. */
static bool is_xml(const char *character)
{
	return memcmp(character, "\xef\xbf", 2) ||
	       ((unsigned char)character[2] != 0xbe && (unsigned char)character[2] != 0xbf);
}

void show_svg_escape(struct buf *out, const char *text)
{
	size_t n;
	for (; *text; text += n ? n : 1) {
		n = human_printable(text);
		if (n == 1 && strchr("<>&\"", *text))
			buf_printf(out, "&#%d;", *text);
		else if (n && (n != 3 || is_xml(text)))
			buf_add(out, text, n);
		else
			buf_puts(out, "?");
	}
}

static int part_height(const struct draw_part *part)
{
	return HEAD + part->timeline->ranks * (ROW + GAP) + AXIS;
}

static void put_cell(struct sheet *h, const struct timeline_event *v, int top)
{
	const struct draw_look *look = show_draw_look(v->op);
	bool odd = v->chunk > 0 && v->chunk % 2;
	double x = LEFT + v->begin * h->scale, width = fmax(LEAST, (v->end - v->begin) * h->scale);
	char from[HUMAN], to[HUMAN];
	int y = top + v->rank * (ROW + GAP);
	if (!look)
		return;
	buf_printf(h->out,
		   "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"%s>"
		   "<title>%s",
		   x, y, width, ROW, look->shade[odd].svg, width >= BORDER ? " class=\"cell\"" : "",
		   look->meaning);
	if (v->micro >= 0)
		buf_printf(h->out, ", chunk %d, micro-batch %d", v->chunk, v->micro);
	buf_printf(h->out, ": %s to %s</title></rect>\n", human_seconds(v->begin, from),
		   human_seconds(v->end, to));
	if (v->micro >= 0 && width >= DIGIT / 2 + DIGIT * snprintf(NULL, 0, "%d", v->micro))
		buf_printf(h->out, "<text x=\"%.2f\" y=\"%d\" class=\"%s\">%d</text>\n",
			   x + width / 2, y + ROW / 2 + 5, odd ? "on-light" : "on-dark", v->micro);
}

/* The height at which a colour of a column begins, counted from the top: the shares before it. */
static double share_before(const struct draw_column *c, int op, int odd)
{
	double sum = 0;
	for (int i = 0; i < 2 * op + odd; i++)
		sum += c->share[i / 2][i % 2];
	return fmin(1, sum);
}

/* One path holds a row's columns of one colour. */
static void put_colour(struct sheet *h, const struct draw_column *row, int op, int odd, int y)
{
	const struct draw_look *look = show_draw_look((enum sched_op)op);
	bool begun = false;
	for (int c = 0; look && c < h->columns; c++) {
		double top = share_before(&row[c], op, odd),
		       height = fmin(1 - top, row[c].share[op][odd]),
		       each = (double)(WIDTH - LEFT - RIGHT) / h->columns;
		if (ROW * height < 0.05)
			continue;
		if (!begun)
			buf_printf(h->out, "<path fill=\"%s\" class=\"sum\" d=\"",
				   look->shade[odd].svg);
		begun = true;
		buf_printf(h->out, "M%.4g %.5gh%.4gv%.3gh-%.4gz", LEFT + c * each, y + ROW * top,
			   each, ROW * height, each);
	}
	buf_puts(h->out, begun ? "\"/>\n" : "");
}

/* Says how many passes of each kind a row has; a pointer shows it. */
static void put_row_title(struct sheet *h, int rank, const int *passes)
{
	buf_printf(h->out, "<title>rank %d:", rank);
	for (int op = 0, said = 0; op < SCHED_OPS; op++)
		if (passes[op] && show_draw_look((enum sched_op)op))
			buf_printf(h->out, "%s %d %s", said++ ? "," : "", passes[op],
				   show_draw_look((enum sched_op)op)->meaning);
	buf_puts(h->out, "</title>\n");
}

static void put_columns(struct sheet *h, const struct timeline *t, int top)
{
	size_t columns = (size_t)h->columns, ranks = (size_t)t->ranks;
	struct draw_column *all = calloc(ranks * columns, sizeof *all);
	int *passes = calloc(ranks * SCHED_OPS, sizeof *passes); /* [ranks][ops] */
	if (all && passes) {
		show_draw_merge(t, h->end, h->columns, all);
		for (int i = 0; i < t->n; i++)
			passes[t->events[i].rank * SCHED_OPS + (int)t->events[i].op]++;
	} else {
		h->out->failed = true;
	}
	for (int r = 0; all && passes && r < t->ranks; r++) {
		buf_puts(h->out, "<g>");
		put_row_title(h, r, passes + (size_t)r * SCHED_OPS);
		for (int colour = 0; colour < 2 * SCHED_OPS; colour++)
			put_colour(h, all + (size_t)r * columns, colour / 2, colour % 2,
				   top + r * (ROW + GAP));
		buf_puts(h->out, "</g>\n");
	}
	free(passes);
	free(all);
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
	int n = (int)(h->end / tick * 1.0001);
	/* The last mark is at the end, in place of a round one that is close. */
	n -= h->end - n * tick < 0.6 * tick && n > 0;
	for (int i = 0; i <= n + 1; i++) {
		double at = i <= n ? i * tick : h->end, x = LEFT + at * h->scale;
		buf_printf(h->out,
			   "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\" stroke=\"#999\"/>\n",
			   x, top, x, top + 6);
		buf_printf(h->out, "<text x=\"%.2f\" y=\"%d\" class=\"axis\">%s</text>\n", x,
			   top + 22, i ? human_seconds(at, text) : "0");
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
	double end = timeline_end(t);
	for (int r = 0; r < t->ranks; r++) {
		int y = top + r * (ROW + GAP);
		buf_printf(h->out, "<text x=\"%d\" y=\"%d\" class=\"rank\">rank %d</text>\n",
			   LEFT - 12, y + ROW / 2 + 5, r);
		buf_printf(
			h->out,
			"<rect x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"#eeeeee\"/>\n",
			LEFT, y, end * h->scale, ROW);
	}
	if (h->columns)
		put_columns(h, t, top);
	for (int i = 0; !h->columns && i < t->n; i++)
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

/* The number of columns of a row; 0: the passes are wide enough, and few enough, to be drawn one by
 * one. */
static int columns_of(const struct drawing *d, double scale)
{
	int passes = 0, ranks = 1, plot = WIDTH - LEFT - RIGHT;
	for (int p = 0; p < d->n_parts; p++) {
		passes += d->parts[p].timeline->n;
		ranks += d->parts[p].timeline->ranks;
	}
	double typical = show_draw_typical(d) * scale;
	if (passes <= MOST && typical >= NARROW)
		return 0;
	/* A whole number of pixels, so that no seam shows between columns. */
	int wide = (int)fmin(plot, fmax(COLUMN, COLUMN_PASSES * typical));
	while (wide < plot && plot / wide > MOST / ranks)
		wide++;
	while (plot % wide)
		wide++;
	return plot / wide;
}

static void put_heading(struct sheet *h, int height)
{
	char each[HUMAN];
	buf_puts(h->out,
		 "<style>text{font-size:16px;fill:#222}.title{font-size:26px}.head{font-size:"
		 "19px}.rank{text-anchor:end}"
		 ".note{fill:#555}.axis{font-size:13px;text-anchor:middle;fill:#555}.on-dark,.on-"
		 "light{font-"
		 "size:14px;text-anchor:middle}"
		 ".on-dark{fill:#fff}.cell{stroke:#fff;stroke-width:1}.sum{shape-rendering:"
		 "crispEdges}</style>\n");
	buf_printf(h->out,
		   "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"44\" "
		   "class=\"title\">",
		   WIDTH, height, LEFT);
	show_svg_escape(h->out, h->d->title);
	buf_puts(h->out, "</text>\n");
	if (h->columns)
		buf_printf(h->out,
			   "<text x=\"%d\" y=\"72\" class=\"note\">each column: the shares of %s "
			   "that the rank "
			   "spends in passes of each colour; single passes would be too narrow"
			   "</text>\n",
			   LEFT, human_seconds(h->end / h->columns, each));
}

/* The end of all that is drawn: a reduction can end after the last pass. */
static double end_of(const struct drawing *d)
{
	double end = 0;
	for (int p = 0; p < d->n_parts; p++)
		for (int i = 0; i < d->parts[p].timeline->n; i++)
			if (show_draw_look(d->parts[p].timeline->events[i].op))
				end = fmax(end, d->parts[p].timeline->events[i].end);
	return end;
}

void show_draw_svg(const struct drawing *d, struct buf *out)
{
	struct sheet h = { .d = d, .out = out, .end = end_of(d) };
	h.scale = h.end > 0 ? (WIDTH - LEFT - RIGHT) / h.end : 0;
	h.columns = columns_of(d, h.scale);
	int y = TOP + (h.columns ? NOTE : 0), height = y + LEGEND;
	for (int p = 0; p < d->n_parts; p++)
		height += part_height(&d->parts[p]);
	buf_printf(out,
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
		   "font-family=\"sans-serif\">\n",
		   WIDTH, height);
	put_heading(&h, height);
	for (int p = 0; p < d->n_parts; p++) {
		put_part(&h, &d->parts[p], y);
		y += part_height(&d->parts[p]);
	}
	put_legend(&h, y);
	buf_puts(out, "</svg>\n");
}
