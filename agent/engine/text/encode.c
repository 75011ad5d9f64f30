/*
 * Converts text to ids. It splits the text at added tokens, normalizes blanks, splits the remaining
 * text into words, and merges each word's symbols.
 */
#include "agent/engine/text/unassigned.h"
#include "agent/engine/text/parts.h"
#include "agent/engine/text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_IDS = 4096, CACHE_SLOTS = 1 << 16, CACHE_TEXT = 30, CACHE_IDS = 8 };

/* A word with its ids; it fits one cache line. */
struct cached {
	unsigned char len, n; /* len 0: the slot is empty */
	char text[CACHE_TEXT];
	int32_t ids[CACHE_IDS];
};

struct encoder {
	const struct tokenizer *t;
	struct split_matcher *matcher;
	struct merges_work work;
	struct cached *cache;
	int32_t *symbols; /* of one word */
	size_t cap;
	struct normalize_work normal;
	struct unassigned_counter *unassigned; /* NULL: words do not depend on classes */
	struct buf blanks;                     /* the piece with blanks and lead */
	int32_t out[OUT_IDS];
	size_t n_out;
	tokenizer_put *put;
	void *arg;
};

int text_encoder_open(const struct tokenizer *t, struct encoder **out, struct err *e)
{
	struct encoder *c = calloc(1, sizeof *c);
	if (c)
		c->cache = calloc(CACHE_SLOTS, sizeof *c->cache);
	if (!c || !c->cache) {
		text_encoder_close(c);
		return err_set(e, ERR_NOMEM, "no memory to encode text");
	}
	c->t = t;
	if (text_split_matcher_open(&c->matcher, e) ||
	    (t->classes && text_unassigned_open(&c->unassigned, e))) {
		text_encoder_close(c);
		return -1;
	}
	*out = c;
	return 0;
}

void text_encoder_close(struct encoder *c)
{
	if (!c)
		return;
	text_split_matcher_close(c->matcher);
	text_unassigned_close(c->unassigned);
	text_merges_work_fini(&c->work);
	text_normalize_work_fini(&c->normal);
	buf_fini(&c->blanks);
	free(c->cache);
	free(c->symbols);
	free(c);
}

static int flush_ids(struct encoder *c, struct err *e)
{
	size_t n = c->n_out;
	c->n_out = 0;
	return n ? c->put(c->arg, c->out, n, e) : 0;
}

static int emit(struct encoder *c, const int32_t *ids, size_t n, struct err *e)
{
	while (n) {
		size_t room = OUT_IDS - c->n_out, part = n < room ? n : room;
		memcpy(c->out + c->n_out, ids, part * sizeof *ids);
		c->n_out += part;
		ids += part;
		n -= part;
		if (c->n_out == OUT_IDS && flush_ids(c, e))
			return -1;
	}
	return 0;
}

/* --- one word --- */

/* The symbols of a word: characters, or bytes. A character without a symbol becomes unk_token. With
 * fuse_unk, several such characters in a row become one unk_token. */
struct symbols {
	int32_t *ids;
	size_t n;
	bool unknown; /* an unk_token must be added next */
};

static void add_unknown(const struct tokenizer *t, struct symbols *s)
{
	if (s->unknown)
		s->ids[s->n++] = t->unk;
	s->unknown = false;
}

static void add_symbol(const struct tokenizer *t, struct symbols *s, int32_t id)
{
	add_unknown(t, s);
	s->ids[s->n++] = id;
}

static int meet_unknown(const struct tokenizer *t, struct symbols *s, const char *at, size_t len,
			struct err *e)
{
	if (t->unk < 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "\"%.*s\" in the text (first byte 0x%02x) has no token, and the "
			       "vocabulary has no unk_token",
			       text_utf8_char(at, len) ? (int)len : 0, at, (unsigned char)*at);
	if (!t->fuse_unk)
		add_unknown(t, s);
	s->unknown = true;
	return 0;
}

static bool fallback(const struct tokenizer *t, struct symbols *s, const char *at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!t->byte_fallback || t->byte_ids[(unsigned char)at[i]] < 0)
			return false;
	for (size_t i = 0; i < len; i++)
		s->ids[s->n++] = t->byte_ids[(unsigned char)at[i]];
	return true;
}

/* s->ids must have room for one symbol per byte. */
static int take_symbols(const struct tokenizer *t, const char *word, size_t n, struct symbols *s,
			struct err *e)
{
	for (size_t at = 0, len; at < n; at += len) {
		int32_t id;
		len = 1;
		if (t->byte_level) {
			id = t->byte_ids[(unsigned char)word[at]];
		} else {
			len = text_utf8_char(word + at, n - at);
			id = len ? text_vocab_find(&t->vocab, word + at, len) : -1;
			len = len ? len : 1;
		}
		if (id >= 0)
			add_symbol(t, s, id);
		else if (!fallback(t, s, word + at, len) && meet_unknown(t, s, word + at, len, e))
			return -1;
	}
	add_unknown(t, s);
	return 0;
}

static int grow_symbols(struct encoder *c, size_t n, struct err *e)
{
	if (n <= c->cap)
		return 0;
	size_t cap = n < 1024 ? 1024 : 2 * n;
	int32_t *symbols = realloc(c->symbols, cap * sizeof *symbols);
	if (!symbols)
		return err_set(e, ERR_NOMEM, "no memory for a word of %zu bytes", n);
	c->symbols = symbols;
	c->cap = cap;
	return 0;
}

/* Sets c->symbols to the word's ids. */
static int merge_word(struct encoder *c, const char *word, size_t n, size_t *n_ids, struct err *e)
{
	const struct tokenizer *t = c->t;
	if (grow_symbols(c, n, e))
		return -1;
	int32_t whole = t->ignore_merges ? text_vocab_find(&t->vocab, word, n) : -1;
	if (whole >= 0) {
		c->symbols[0] = whole;
		*n_ids = 1;
		return 0;
	}
	struct symbols s = { .ids = c->symbols };
	if (take_symbols(t, word, n, &s, e))
		return -1;
	return text_merges_apply(&t->merges, &c->work, c->symbols, s.n, n_ids, e);
}

static int encode_word(struct encoder *c, const char *word, size_t n, struct err *e)
{
	struct cached *known = NULL;
	if (n <= CACHE_TEXT) {
		known = &c->cache[text_hash(word, n) % CACHE_SLOTS];
		if (known->len == n && !memcmp(known->text, word, n))
			return emit(c, known->ids, known->n, e);
	}
	size_t n_ids;
	if (merge_word(c, word, n, &n_ids, e))
		return -1;
	if (known && n_ids <= CACHE_IDS) {
		known->len = (unsigned char)n;
		known->n = (unsigned char)n_ids;
		memcpy(known->text, word, n);
		memcpy(known->ids, c->symbols, n_ids * sizeof *known->ids);
	}
	return emit(c, c->symbols, n_ids, e);
}

/* --- words --- */

/* Splits a text, which must be UTF-8, by the splits from number i on. */
static int encode_splits(struct encoder *c, int i, const char *text, size_t n, struct err *e)
{
	if (i == c->t->n_splits)
		return encode_word(c, text, n, e);
	struct split_ahead ahead = { 0 };
	for (size_t at = 0, end; at < n; at = end) {
		bool left_out;
		if (text_split_next(c->t->splits[i], c->matcher, text, n, at, &ahead, &end,
				    &left_out, e) ||
		    (!left_out && encode_splits(c, i + 1, text + at, end - at, e)))
			return -1;
	}
	return 0;
}

/* Splits the text before blanks if no merge crosses such a position (cut_blanks). Each word then
 * starts with its blanks. */
static int encode_blanks(struct encoder *c, const char *text, size_t n, struct err *e)
{
	for (size_t at = 0, end; at < n; at = end) {
		end = at;
		while (end < n && text[end] == ' ')
			end++;
		const char *blank = c->t->cut_blanks ? memchr(text + end, ' ', n - end) : NULL;
		end = blank ? (size_t)(blank - text) : n;
		if (encode_word(c, text + at, end - at, e))
			return -1;
	}
	return 0;
}

/* Each byte that is not UTF-8 is a word by itself. */
static int encode_words(struct encoder *c, const char *text, size_t n, struct err *e)
{
	if (!c->t->byte_level && !c->t->n_splits)
		return encode_blanks(c, text, n, e);
	for (size_t at = 0; at < n;) {
		size_t run = text_utf8_run(text + at, n - at);
		if (run &&
		    ((c->unassigned && text_unassigned_scan(c->unassigned, text + at, run, e)) ||
		     encode_splits(c, 0, text + at, run, e)))
			return -1;
		at += run;
		if (at < n && encode_word(c, text + at++, 1, e))
			return -1;
	}
	return 0;
}

/* --- pieces --- */

/* Receives the text between two added tokens. first: the piece is at the start of the text. */
typedef int piece_fn(struct encoder *c, const char *text, size_t n, bool first, struct err *e);

static int cut_added(struct encoder *c, const struct added_set *set, const char *text, size_t n,
		     bool first, piece_fn *piece, struct err *e)
{
	size_t done = 0;
	struct added_match m = { 0 };
	while (text_added_find(set, text, n, m.hi, &m)) {
		const struct added_token *a = &c->t->added[m.index];
		size_t lo = m.lo, hi = m.hi;
		if (a->lstrip && lo > done)
			lo = text_utf8_spaces_at_end(text, done, lo);
		if (a->rstrip)
			hi += text_utf8_spaces_at_start(text + hi, n - hi);
		if ((lo > done && piece(c, text + done, lo - done, first && !done, e)) ||
		    emit(c, &a->id, 1, e))
			return -1;
		done = hi;
	}
	return done < n ? piece(c, text + done, n - done, first && !done, e) : 0;
}

/* Replaces "▁" by blanks and adds the lead, in c->blanks. If neither applies, the piece is
 * unchanged. */
static int put_blanks(struct encoder *c, const char **text, size_t *n, bool first, struct err *e)
{
	const struct tokenizer *t = c->t;
	const size_t mark = sizeof BLANK_MARK - 1;
	const char *at = *text, *end = at + *n;
	bool begins = *at == ' ' || (t->blanks && *n >= mark && !memcmp(at, BLANK_MARK, mark));
	bool lead = t->lead == LEAD_ALWAYS || (t->lead == LEAD_MISSING && !begins) ||
		    (t->lead == LEAD_FIRST && first && !begins);
	if (!lead && !t->blanks)
		return 0;
	buf_clear(&c->blanks);
	if (lead)
		buf_add(&c->blanks, " ", 1);
	while (at < end) {
		const char *next = t->blanks ? memmem(at, (size_t)(end - at), BLANK_MARK, mark)
					     : NULL;
		buf_add(&c->blanks, at, (size_t)((next ? next : end) - at));
		if (next)
			buf_add(&c->blanks, " ", 1);
		at = next ? next + mark : end;
	}
	if (buf_failed(&c->blanks))
		return err_set(e, ERR_NOMEM, "no memory for a piece of text of %zu bytes", *n);
	*text = c->blanks.data;
	*n = c->blanks.len;
	return 0;
}

static int encode_normalized(struct encoder *c, const char *text, size_t n, bool first,
			     struct err *e)
{
	if (!c->t->normalizes && put_blanks(c, &text, &n, first, e))
		return -1;
	return encode_words(c, text, n, e);
}

static int encode_raw(struct encoder *c, const char *text, size_t n, bool first, struct err *e)
{
	if (text_normalize(&c->t->normalizer, &c->normal, &text, &n, e))
		return -1;
	if (!n) /* Strip has removed everything */
		return 0;
	if (c->t->normalizes && put_blanks(c, &text, &n, first, e))
		return -1;
	return cut_added(c, &c->t->normalized, text, n, first, encode_normalized, e);
}

int text_encoder_encode(struct encoder *c, const char *text, size_t n, tokenizer_put *put,
			void *arg, struct err *e)
{
	c->put = put;
	c->arg = arg;
	c->n_out = 0;
	return cut_added(c, &c->t->raw, text, n, true, encode_raw, e) || flush_ids(c, e) ? -1 : 0;
}

int64_t text_encoder_unassigned(const struct encoder *c, char note[ENCODER_NOTE])
{
	uint32_t first = 0;
	int64_t n = c->unassigned ? text_unassigned_count(c->unassigned, &first) : 0;
	*note = '\0';
	if (n)
		snprintf(note, ENCODER_NOTE,
			 "%" PRId64 " character%s newer than Unicode %s, whose classes cut the "
			 "text into words (the first: "
			 "U+%04" PRIX32
			 "); Hugging Face's library may know %s, and its ids differ there",
			 n, n == 1 ? " is" : "s are", text_split_unicode(), first,
			 n == 1 ? "it" : "them");
	return n;
}
