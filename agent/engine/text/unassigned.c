#include "agent/engine/text/unassigned.h"

#include "agent/engine/text/split.h"
#include "agent/engine/text/utf8.h"
#include "base/buf.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, BLOCKS = 0x110000 / BLOCK, WORD = 64 };

struct unassigned_counter {
	struct split *unassigned;
	struct split_matcher *matcher;
	int64_t count;
	uint32_t first;
	bool known[BLOCKS];
	uint64_t bits[BLOCKS][BLOCK / WORD];
};

int text_unassigned_open(struct unassigned_counter **out, struct err *e)
{
	static const char pattern[] = "\\p{Cn}+";
	struct unassigned_counter *w = calloc(1, sizeof *w);
	if (!w)
		return err_set(e, ERR_NOMEM, "no memory to classify characters");
	if (text_split_open(pattern, sizeof pattern - 1, false, true, &w->unassigned, e) ||
	    text_split_matcher_open(&w->matcher, e)) {
		text_unassigned_close(w);
		return -1;
	}
	*out = w;
	return 0;
}

void text_unassigned_close(struct unassigned_counter *w)
{
	if (!w)
		return;
	text_split_close(w->unassigned);
	text_split_matcher_close(w->matcher);
	free(w);
}

static bool is_character(uint32_t c)
{
	return (c & 0xfffe) != 0xfffe && !(c >= 0xfdd0 && c <= 0xfdef);
}

static void append_char(struct buf *out, uint32_t c)
{
	char bytes[4] = { (char)(0xf0 | c >> 18), (char)(0x80 | (c >> 12 & 0x3f)),
			  (char)(0x80 | (c >> 6 & 0x3f)), (char)(0x80 | (c & 0x3f)) };
	if (c < 0x80)
		bytes[3] = (char)c;
	else if (c < 0x800)
		bytes[2] = (char)(0xc0 | c >> 6);
	else if (c < 0x10000)
		bytes[1] = (char)(0xe0 | c >> 12);
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	buf_add(out, bytes + 4 - n, n);
}

static void mark_unassigned(struct unassigned_counter *w, const char *text, size_t n)
{
	for (size_t at = 0, bytes; at < n; at += bytes) {
		bytes = text_utf8_char(text + at, n - at);
		uint32_t c = text_utf8_value(text + at, bytes);
		if (is_character(c))
			w->bits[c / BLOCK][c % BLOCK / WORD] |= UINT64_C(1) << c % WORD;
	}
}

/* Classifies all characters of a block with the expression. */
static int load_block(struct unassigned_counter *w, uint32_t block, struct err *e)
{
	struct buf all = BUF_INIT;
	struct split_ahead ahead = { 0 };
	int rc = 0;
	for (uint32_t c = block * BLOCK; c < (block + 1) * BLOCK; c++)
		if (c < 0xd800 || c > 0xdfff) /* c is not a surrogate */
			append_char(&all, c);
	if (buf_failed(&all))
		rc = err_set(e, ERR_NOMEM, "no memory to classify characters");
	for (size_t at = 0, end; !rc && at < all.len; at = end) {
		bool assigned;
		rc = text_split_next(w->unassigned, w->matcher, all.data, all.len, at, &ahead, &end,
				     &assigned, e);
		if (rc)
			break;
		if (!assigned)
			mark_unassigned(w, all.data + at, end - at);
	}
	w->known[block] = !rc;
	buf_fini(&all);
	return rc;
}

int text_unassigned_scan(struct unassigned_counter *w, const char *text, size_t n, struct err *e)
{
	for (size_t at = 0, bytes; at < n; at += bytes) {
		uint64_t eight;
		for (; at + sizeof eight <= n; at += sizeof eight) {
			memcpy(&eight, text + at, sizeof eight);
			if (eight & UINT64_C(0x8080808080808080))
				break;
		}
		bytes = text_utf8_char(text + at, n - at);
		if (!bytes) /* the text has ended */
			break;
		uint32_t c = text_utf8_value(text + at, bytes), block = c / BLOCK;
		if (!w->known[block] && load_block(w, block, e))
			return -1;
		if (w->bits[block][c % BLOCK / WORD] >> c % WORD & 1 && !w->count++)
			w->first = c;
	}
	return 0;
}

int64_t text_unassigned_count(const struct unassigned_counter *w, uint32_t *first)
{
	*first = w->first;
	return w->count;
}
