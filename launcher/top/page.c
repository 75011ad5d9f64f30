#include "launcher/top/page.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PRINT_MAX = 2048, UTF8_MAX = 4 };

/* --- characters ------------------------------------------------------------------------ */

/* The next character of the text, U+FFFF for a byte that is not UTF-8. *s is not at the end. */
static uint32_t next_code(const char **s)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *at = (const unsigned char *)*s;
	int n = *at < 0x80   ? 1
		: *at < 0xc2 ? 0
		: *at < 0xe0 ? 2
		: *at < 0xf0 ? 3
		: *at < 0xf5 ? 4
			     : 0;
	uint32_t code = n < 2 ? *at : *at & (0x7fu >> n);
	for (int i = 1; i < n; i++) {
		if ((at[i] & 0xc0) != 0x80) {
			n = 0;
			break;
		}
		code = code << 6 | (at[i] & 0x3f);
	}
	if (n && (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)))
		n = 0;
	*s += n ? n : 1;
	return n ? code : 0xffff;
}

/* What stands for a character outside ASCII where only ASCII can be shown. */
static wchar_t ascii_of(uint32_t code)
{
	static const struct {
		uint32_t code;
		char ascii;
	} like[] = { { 0xd7, 'x' },   { 0xb7, '.' },   { 0xb5, 'u' },   { 0x2026, '~' },
		     { 0x2013, '-' }, { 0x2014, '-' }, { 0x25b2, '^' }, { 0x25bc, 'v' } };
	for (size_t i = 0; i < sizeof like / sizeof *like; i++)
		if (like[i].code == code)
			return (wchar_t)like[i].ascii;
	return L'?';
}

/* The next character as it is shown, and its width: 0: it is not shown. */
static wchar_t next_shown(const struct top_page *p, const char **s, int *width)
{
	uint32_t code = next_code(s);
	bool control = code < ' ' || (code >= 0x7f && code < 0xa0);
	*width = 1;
	if (control)
		return L' ';
	if (code < 0x7f)
		return (wchar_t)code;
	if (code == 0xffff)
		return L'?';
	if (!p->unicode)
		return ascii_of(code);
	int w = wcwidth((wchar_t)code);
	*width = w < 0 ? 1 : w;
	/* Marks that turn the direction of a text have no width, and are left out as accents are. */
	return w < 0 ? L'?' : (wchar_t)code;
}

int top_page_width(const struct top_page *p, const char *text)
{
	int all = 0, width;
	while (*text) {
		next_shown(p, &text, &width);
		all += width;
	}
	return all;
}

/* --- pages ------------------------------------------------------------------------------ */

int top_page_init(struct top_page *p, int rows, int cols, bool unicode, struct err *e)
{
	rows = rows > 0 ? rows : 1;
	cols = cols > 0 ? cols : 1;
	*p = (struct top_page){ .rows = rows, .cols = cols, .unicode = unicode };
	p->cells = calloc((size_t)rows * (size_t)cols, sizeof *p->cells);
	if (!p->cells)
		return err_set(e, ERR_NOMEM, "no memory for a screen of %d x %d", cols, rows);
	for (int i = 0; i < rows * cols; i++)
		p->cells[i].ch = L' ';
	return 0;
}

void top_page_fini(struct top_page *p)
{
	free(p->cells);
	p->cells = NULL;
}

static struct top_cell *cell(struct top_page *p, int row, int col)
{
	bool inside = row >= 0 && row < p->rows && col >= 0 && col < p->cols;
	return inside ? &p->cells[row * p->cols + col] : NULL;
}

void top_page_set(struct top_page *p, int row, int col, enum top_style style, wchar_t ch)
{
	struct top_cell *c = cell(p, row, col);
	if (c)
		*c = (struct top_cell){ ch, (unsigned char)style };
}

int top_page_put(struct top_page *p, int row, int col, int width, enum top_style style,
		 const char *text)
{
	int end = col + width < p->cols ? col + width : p->cols, w;
	bool cut = top_page_width(p, text) > end - col;
	if (row < 0 || row >= p->rows || col < 0 || end <= col)
		return col;
	while (*text) {
		wchar_t ch = next_shown(p, &text, &w);
		if (col + w > end - cut)
			break;
		if (!w)
			continue;
		top_page_set(p, row, col, style, ch);
		if (w == 2)
			top_page_set(p, row, col + 1, style, 0);
		col += w;
	}
	if (cut && col < end)
		top_page_set(p, row, col++, style, p->unicode ? L'…' : L'~');
	return col;
}

int top_page_print(struct top_page *p, int row, int col, enum top_style style, const char *fmt, ...)
{
	char text[PRINT_MAX];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return top_page_put(p, row, col, p->cols, style, text);
}

void top_page_put_right(struct top_page *p, int row, int col, int width, enum top_style style,
			const char *text)
{
	int w = top_page_width(p, text);
	int shift = w < width ? width - w : 0;
	top_page_put(p, row, col + shift, width - shift, style, text);
}

void top_page_paint(struct top_page *p, int row, int col, int width, enum top_style style)
{
	for (int i = col; i < col + width; i++) {
		struct top_cell *c = cell(p, row, i);
		if (c)
			c->style = (unsigned char)style;
	}
}

/* The bytes of the text that fit into the width, cut after a word where there is one. */
static size_t fitting(const struct top_page *p, const char *text, int width)
{
	const char *at = text, *space = NULL;
	int used = 0, w;
	while (*at) {
		const char *before = at;
		next_shown(p, &at, &w);
		if (used + w > width)
			return (size_t)((space ? space : before > text ? before : at) - text);
		used += w;
		space = *before == ' ' ? before : space;
	}
	return (size_t)(at - text);
}

int top_page_wrap(struct top_page *p, int row, int col, int width, int most, enum top_style style,
		  const char *text)
{
	char line[PRINT_MAX];
	int used = 0;
	while (*text && used < most && width > 0) {
		size_t n = fitting(p, text, width);
		if (used + 1 == most) {
			top_page_put(p, row + used++, col, width, style, text);
			break;
		}
		snprintf(line, sizeof line, "%.*s", (int)n, text);
		top_page_put(p, row + used++, col, width, style, line);
		text += n;
		text += strspn(text, " ");
	}
	return used;
}

static size_t encode(wchar_t ch, char *out)
{
	uint32_t c = (uint32_t)ch;
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	if (n == 1) {
		*out = (char)c;
		return 1;
	}
	for (size_t i = n - 1; i > 0; i--, c >>= 6)
		out[i] = (char)(0x80 | (c & 0x3f));
	out[0] = (char)(0xf00 >> n | c);
	return n;
}

char *top_page_text(const struct top_page *p, int row)
{
	char *text = calloc((size_t)p->cols * UTF8_MAX + 1, 1);
	size_t n = 0, end = 0;
	for (int i = 0; text && i < p->cols; i++) {
		wchar_t ch = p->cells[row * p->cols + i].ch;
		if (!ch)
			continue;
		n += encode(ch, text + n);
		end = ch != L' ' ? n : end;
	}
	if (text)
		text[end] = 0;
	return text;
}
