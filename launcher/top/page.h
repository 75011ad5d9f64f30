/*
 * page — rows of characters with styles: what `muster top` puts on the screen, before any terminal.
 *
 * Texts are UTF-8 and may come from anywhere: from names, messages and logs. No control character
 * reaches a cell, so nothing on a page can control a terminal. A byte that is not UTF-8 becomes `?`.
 * On a page for a terminal that is not UTF-8, a character outside ASCII becomes one that looks like it,
 * or `?`.
 */
#ifndef MUSTER_LAUNCHER_TOP_PAGE_H
#define MUSTER_LAUNCHER_TOP_PAGE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

/* clang-format off */

/* id, and what the terminal shows: launcher/top/screen.c has the colours */
#define TOP_STYLES(X) \
	X(PLAIN)  /* text */ \
	X(DIM)    /* labels, and what matters less */ \
	X(STRONG) /* names and headings */ \
	X(GOOD)   /* it goes well */ \
	X(WARN)   /* worth a look */ \
	X(BAD)    /* it is wrong */ \
	X(CURVE)  /* bars and curves */ \
	X(HEAD)   /* the names of the columns */ \
	X(CHOSEN) /* the row under the cursor */

/* clang-format on */

enum top_style {
#define TOP_STYLE_ENUM(id) TOP_##id,
	TOP_STYLES(TOP_STYLE_ENUM)
#undef TOP_STYLE_ENUM
		TOP_STYLE_COUNT
};

/* ch: 0: the right half of the wide character before it. */
struct top_cell {
	wchar_t ch;
	unsigned char style;
};

struct top_page {
	int rows, cols;
	bool unicode;
	struct top_cell *cells; /* [rows * cols] */
};

/* An empty page. ERR_NOMEM. */
int top_page_init(struct top_page *p, int rows, int cols, bool unicode, struct err *e);
void top_page_fini(struct top_page *p);

/* Puts the text at a place, in at most `width` columns; a longer one ends in an ellipsis. What is
 * outside the page is not drawn. Returns the column after the text. */
int top_page_put(struct top_page *p, int row, int col, int width, enum top_style style,
		 const char *text);
/* The same, up to the end of the row. */
int top_page_print(struct top_page *p, int row, int col, enum top_style style, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* The same as top_page_put(), but the text ends at the right of the field. */
void top_page_put_right(struct top_page *p, int row, int col, int width, enum top_style style,
			const char *text);
/* Breaks the text between words into rows of `width` columns, at most `most`; the last one ends in an
 * ellipsis if there is more. Returns the rows that it took. */
int top_page_wrap(struct top_page *p, int row, int col, int width, int most, enum top_style style,
		  const char *text);
/* Gives all cells of a part of a row a style. */
void top_page_paint(struct top_page *p, int row, int col, int width, enum top_style style);
/* Sets one cell to a character of width 1. */
void top_page_set(struct top_page *p, int row, int col, enum top_style style, wchar_t ch);

/* The columns that the text takes. */
int top_page_width(const struct top_page *p, const char *text);

/* The row as UTF-8 without the spaces at its end, for tests. The caller frees it; NULL: no memory. */
char *top_page_text(const struct top_page *p, int row);

#endif
