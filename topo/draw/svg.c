#include "topo/draw/svg.h"

#include "base/human.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { KINDS = 6 /* drawn in full */, TITLE = 96, KEY = 56, GAP = 28, ODD = 8 /* nodes named */ };
/* A line of the body text, and a character of it at most. */
enum { LINE_H = 24, CHAR_W = 9 };
#define MICRO "\xc2\xb5"

/* A character with a meaning in XML becomes a character reference. A character that is not
 * printable ASCII becomes a question mark. */
static void put_char(struct buf *out, char c)
{
	if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'')
		buf_printf(out, "&#%d;", c);
	else
		buf_printf(out, "%c", c >= ' ' && c < 127 ? c : '?');
}

void topo_svg_text(struct svg *s, double x, double y, const char *class, int most, const char *text)
{
	size_t len = strlen(text);
	buf_printf(s->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
	for (size_t i = 0; i < len && i < (size_t)most; i++)
		put_char(s->out, text[i]);
	buf_puts(s->out, len > (size_t)most ? "…</text>\n" : "</text>\n");
}

/* Characters of `text` that fit on a line: all, or up to a blank, or as many as fit of one word. */
static size_t line_of(const char *text, size_t most)
{
	size_t seen = 0, bytes = 0, blank = 0;
	for (; text[bytes] && seen <= most; bytes++) {
		if (text[bytes] == ' ')
			blank = bytes;
		seen += ((unsigned char)text[bytes] & 0xc0) != 0x80;
	}
	return !text[bytes] && seen <= most ? bytes : blank ? blank : most;
}

double topo_svg_paragraph(struct svg *s, double x, double y, const char *class, double width,
			  const char *text)
{
	size_t most = (size_t)(width / CHAR_W);
	double height = 0;
	while (*text) {
		size_t n = line_of(text, most);
		buf_printf(s->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y + height,
			   class);
		for (size_t i = 0; i < n; i++)
			/* The other characters that muster itself uses are ASCII. */
			if (i + 1 < n && !memcmp(text + i, MICRO, 2))
				buf_add(s->out, text + i++, 2);
			else
				put_char(s->out, text[i]);
		buf_puts(s->out, "</text>\n");
		text += n + (text[n] == ' ');
		height += LINE_H;
	}
	return height;
}

void topo_svg_words(struct svg *s, double x, double y, const char *class, const char *fmt, ...)
{
	va_list ap;
	buf_printf(s->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
	va_start(ap, fmt);
	buf_vprintf(s->out, fmt, ap);
	va_end(ap);
	buf_puts(s->out, "</text>\n");
}

void topo_svg_title(struct svg *s, const char *text)
{
	buf_puts(s->out, "<title>");
	for (; *text; text++)
		put_char(s->out, *text);
	buf_puts(s->out, "</title>");
}

void topo_svg_rect(struct svg *s, struct svg_box b, double round, const char *fill,
		   const char *stroke)
{
	buf_printf(s->out,
		   "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\" "
		   "fill=\"%s\"",
		   b.x, b.y, b.w, b.h, round, fill);
	if (stroke)
		buf_printf(s->out, " stroke=\"%s\" stroke-width=\"1.5\"", stroke);
	buf_puts(s->out, "/>\n");
}

void topo_svg_stack(struct svg *s, struct svg_box b, double round, const char *fill,
		    const char *stroke)
{
	for (int i = 2; i > 0; i--)
		topo_svg_rect(s, (struct svg_box){ b.x + 6 * i, b.y - 6 * i, b.w, b.h }, round,
			      fill, stroke);
	topo_svg_rect(s, b, round, fill, stroke);
}

void topo_svg_line(struct svg *s, double x1, double y1, double x2, double y2, double width,
		   const char *stroke)
{
	buf_printf(s->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" ", x1, y1, x2,
		   y2);
	buf_printf(s->out, "stroke=\"%s\" stroke-width=\"%.1f\" stroke-linecap=\"round\"/>\n",
		   stroke, width);
}

static double put_key(struct svg *s, double x, double y, const char *fill, const char *meaning,
		      bool line)
{
	if (line)
		topo_svg_line(s, x, y + 9, x + 24, y + 9, 5, fill);
	else
		topo_svg_rect(s, (struct svg_box){ x, y, 24, 18 }, 4, fill, NULL);
	topo_svg_words(s, x + 34, y + 14, "key", "%s", meaning);
	return x + 60 + 8.2 * (double)strlen(meaning);
}

static void put_keys(struct svg *s, double y)
{
	double x = put_key(s, SVG_MARGIN, y, SVG_DEVICE, "device", false);
	if (s->hub)
		x = put_key(s, x, y, SVG_DIRECT, "NVSwitch", false);
	if (s->nvlink || s->xgmi)
		x = put_key(s, x, y, SVG_DIRECT,
			    s->xgmi ? "xGMI, wider: more lanes" : "NVLink, wider: more lanes",
			    true);
	if (s->nic)
		x = put_key(s, x, y, SVG_NIC, "network adapter", false);
	if (s->pcie)
		x = put_key(s, x, y, SVG_PCIE, "PCIe", true);
	if (s->fabric)
		put_key(s, x, y, SVG_SWITCH, "network switch", false);
}

static void put_begin(struct buf *out, double height)
{
	buf_printf(out,
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
		   "font-family=\"sans-serif\">\n",
		   SVG_WIDTH, height);
	buf_puts(out, "<style>text{font-size:15px;fill:#222}.title{font-size:30px}.head{font-size:"
		      "21px}.sub,.key{fill:#555}"
		      ".mid{text-anchor:middle}.small{font-size:13px;fill:#555;text-anchor:middle}."
		      "on{fill:#fff;text-anchor:middle}"
		      ".onsmall{fill:#fff;font-size:12px;text-anchor:middle}.odd{fill:#b0641a;font-"
		      "weight:bold}.tag{font-size:12px;fill:#2a7d3f;text-anchor:middle}</style>\n");
	buf_printf(out, "<rect width=\"%d\" height=\"%.0f\" fill=\"#fff\"/>\n", SVG_WIDTH, height);
}

static void put_title(struct svg *s)
{
	int devices = topo_cluster_devices(s->c);
	topo_svg_text(s, SVG_MARGIN, 52, "title", 80, s->c->name);
	topo_svg_words(s, SVG_MARGIN, 80, "sub", "%d node%s, %d device%s", s->c->n_nodes,
		       human_s(s->c->n_nodes), devices, human_s(devices));
}

/* Lists the first outliers. */
static double put_odd(struct svg *s, double y)
{
	struct buf odd = BUF_INIT;
	double height = 0;
	int lines = 0;
	topo_draw_outliers(s->c, &odd);
	for (const char *at = buf_str(&odd), *end; *at && lines < ODD; at = end + 1, lines++) {
		char line[256];
		end = strchr(at, '\n');
		snprintf(line, sizeof line, "%.*s", (int)(end - at), at);
		topo_svg_text(s, SVG_MARGIN, y + height + 14, "odd", 180, line);
		height += 24;
	}
	buf_fini(&odd);
	return height ? height + GAP / 2 : 0;
}

void topo_draw_cluster_svg(const struct cluster *c, struct buf *out)
{
	struct buf body = BUF_INIT;
	struct svg s = { .c = c, .out = &body };
	double y = TITLE;
	int shown = 0;
	put_title(&s);
	if (c->n_nodes > 1)
		y += topo_svg_fabric(&s, y) + GAP;
	y += put_odd(&s, y);
	for (int i = 0; i < c->n_kinds; i++) {
		int nodes = topo_nodes_of_kind(c, i);
		if (nodes && shown++ < KINDS)
			y += topo_svg_kind(&s, &c->kinds[i], nodes, y) + GAP;
	}
	if (shown > KINDS) {
		topo_svg_words(&s, SVG_MARGIN, y + 10, "sub", "%d more kind%s of node",
			       shown - KINDS, human_s(shown - KINDS));
		y += GAP;
	}
	put_keys(&s, y);
	put_begin(out, y + KEY);
	buf_add(out, buf_str(&body), body.len);
	buf_puts(out, "</svg>\n");
	out->failed |= buf_failed(&body);
	buf_fini(&body);
}
