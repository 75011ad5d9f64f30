#include "agent/engine/text/normalize.h"

#include "agent/engine/text/split.h"
#include "agent/engine/text/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { SEGMENT = 256, DECOMPOSED_MAX = 32, SHORT_RUN = 24, GROWTH_MAX = 32, GROWTH_FREE = 1 << 16 };

struct normalize_step {
	const struct normalize_row *row;
	/* Replace: the String (NULL with a Regex) and its replacement; Prepend: `to` */
	char *from, *to;
	size_t n_from, n_to;
	struct split *regex;
	bool left, right; /* Strip */
	size_t room;      /* the most bytes that the result may have */
};

struct normalize_row {
	const char *type;
	/* Appends the text, as changed by the step, to `out`. */
	int (*run)(const struct normalize_step *s, struct normalize_work *w, const char *text,
		   size_t n, struct buf *out, struct err *e);
	/* NULL: the step has no fields to read */
	int (*read)(struct normalize_step *s, const json_t *o, struct err *e);
	int form;      /* utf8proc's options for the form */
	bool plain;    /* the step does not change ASCII */
	bool commutes; /* the step can change places with a Replace of " " by "▁" */
};

/* --- characters --- */

/* The marks, combining classes and decompositions that utf8proc's Unicode 15 has and Unicode 9 does
 * not. The ranges also contain characters that have none of these. tests/golden/make_tokenizers.py
 * compares the list with the library. */
/* clang-format off */
static const struct range {
	int32_t lo, hi;
} newer[] = {
	{ 0x7fd, 0x7fd }, { 0x898, 0x8d3 }, { 0x9fe, 0x9fe }, { 0xafa, 0xaff }, { 0xb55, 0xb55 }, { 0xc04, 0xc3c },
	{ 0xcf3, 0xd00 }, { 0xd3b, 0xd3c }, { 0xd81, 0xd81 }, { 0xeba, 0xeba }, { 0xece, 0xece }, { 0x1715, 0x1715 },
	{ 0x180f, 0x180f }, { 0x1abf, 0x1ace }, { 0x1cf7, 0x1cf7 }, { 0x1df6, 0x1dfa }, { 0x32ff, 0x32ff },
	{ 0xa7f2, 0xa7f4 }, { 0xa82c, 0xa82c }, { 0xa8ff, 0xa8ff }, { 0xab69, 0xab69 }, { 0x10781, 0x107ba },
	{ 0x10d24, 0x10f85 }, { 0x11070, 0x11074 }, { 0x110c2, 0x110c2 }, { 0x11145, 0x11146 }, { 0x111c9, 0x111c9 },
	{ 0x111ce, 0x111cf }, { 0x11241, 0x11241 }, { 0x1133b, 0x1133b }, { 0x1145e, 0x1145e }, { 0x1182c, 0x11a99 },
	{ 0x11d31, 0x11f42 }, { 0x13440, 0x13455 }, { 0x16f4f, 0x16f4f }, { 0x16f7f, 0x16f87 }, { 0x16fe4, 0x16ff1 },
	{ 0x1cf00, 0x1cf46 }, { 0x1e030, 0x1e2ef }, { 0x1e4ec, 0x1e4ef }, { 0x1f16c, 0x1f16c }, { 0x1fbf0, 0x1fbf9 },
};
/* clang-format on */

static bool is_newer(int32_t c)
{
	size_t lo = 0, hi = sizeof newer / sizeof *newer;
	while (lo < hi) {
		size_t middle = (lo + hi) / 2;
		if (c > newer[middle].hi)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo < sizeof newer / sizeof *newer && c >= newer[lo].lo;
}

static bool is_mark(int32_t c)
{
	enum { WERE_MARKS = 0x1cf2 }; /* this character and the next one are marks in Unicode 9 */
	int category = utf8proc_get_property(c)->category;
	if (c == WERE_MARKS || c == WERE_MARKS + 1)
		return true;
	return (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
		category == UTF8PROC_CATEGORY_ME) &&
	       !is_newer(c);
}

static int class_of(int32_t c)
{
	return utf8proc_get_property(c)->combining_class;
}

static void put_char(struct buf *out, int32_t c)
{
	utf8proc_uint8_t bytes[4];
	buf_add(out, bytes, (size_t)utf8proc_encode_char(c, bytes));
}

/* --- NFC, NFD, NFKC, NFKD --- */

static int grow_chars(struct normalize_work *w, struct err *e)
{
	if (w->n + DECOMPOSED_MAX <= w->cap)
		return 0;
	size_t cap = w->cap ? 2 * w->cap : 4 * SEGMENT;
	int32_t *chars = realloc(w->chars, cap * sizeof *chars);
	w->chars = chars ? chars : w->chars;
	int32_t *spare = chars ? realloc(w->spare, cap * sizeof *spare) : NULL;
	if (!spare)
		return err_set(e, ERR_NOMEM, "no memory to normalize text");
	w->spare = spare;
	w->cap = cap;
	return 0;
}

/* Sorts by combining class; stable. None of the n characters may be a starter. */
static void sort_marks(int32_t *chars, int32_t *spare, size_t n)
{
	if (n > SHORT_RUN) {
		size_t at[257] = { 0 };
		for (size_t i = 0; i < n; i++)
			at[class_of(chars[i]) + 1]++;
		for (int i = 0; i < 256; i++)
			at[i + 1] += at[i];
		for (size_t i = 0; i < n; i++)
			spare[at[class_of(chars[i])]++] = chars[i];
		memcpy(chars, spare, n * sizeof *chars);
		return;
	}
	for (size_t i = 1; i < n; i++) {
		int32_t c = chars[i];
		size_t to = i;
		for (; to && class_of(chars[to - 1]) > class_of(c); to--)
			chars[to] = chars[to - 1];
		chars[to] = c;
	}
}

/* Appends the pending decomposed characters in canonical order; composes them if the form requires
 * it. */
static void put_segment(const struct normalize_step *s, struct normalize_work *w, struct buf *out)
{
	for (size_t at = 0, end; at < w->n; at = end + 1) {
		for (end = at; end < w->n && class_of(w->chars[end]); end++)
			;
		sort_marks(w->chars + at, w->spare, end - at);
	}
	utf8proc_ssize_t n = (utf8proc_ssize_t)w->n;
	if (s->row->form & UTF8PROC_COMPOSE)
		n = utf8proc_normalize_utf32(w->chars, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	for (utf8proc_ssize_t i = 0; i < n; i++)
		put_char(out, w->chars[i]);
	w->n = 0;
}

/* Whether no earlier character can combine with this one, so that a segment may end before it. */
static bool begins_anew(int32_t c)
{
	return !class_of(c) && !is_mark(c) && !(c >= 0x1100 && c <= 0x11ff); /* conjoining Hangul */
}

/* U+11A7 is the base from which the final letters of Hangul syllables are counted. It is not a
 * final letter itself, but utf8proc 2.8 composes it and so removes it. */
enum { NO_FINAL = 0x11a7 };

static int add_char(const struct normalize_step *s, struct normalize_work *w, int32_t c,
		    struct buf *out, struct err *e)
{
	if (is_newer(c) || c == NO_FINAL) {
		put_segment(s, w, out);
		put_char(out, c);
		return 0;
	}
	if (grow_chars(w, e))
		return -1;
	utf8proc_option_t options = (utf8proc_option_t)((s->row->form & ~UTF8PROC_COMPOSE) |
							UTF8PROC_DECOMPOSE);
	utf8proc_ssize_t n = utf8proc_decompose_char(c, w->chars + w->n, DECOMPOSED_MAX, options,
						     NULL);
	if (n < 0 || n > DECOMPOSED_MAX)
		return err_set(e, ERR_INTERNAL, "U+%04X does not decompose", (unsigned)c);
	if (w->n >= SEGMENT && n && begins_anew(w->chars[w->n])) {
		int32_t whole[DECOMPOSED_MAX];
		memcpy(whole, w->chars + w->n, (size_t)n * sizeof *whole);
		put_segment(s, w, out);
		memcpy(w->chars, whole, (size_t)n * sizeof *whole);
	}
	w->n += (size_t)n;
	return 0;
}

static size_t ascii_run(const char *text, size_t n)
{
	size_t at = 0;
	uint64_t eight;
	for (; at + sizeof eight <= n; at += sizeof eight) {
		memcpy(&eight, text + at, sizeof eight);
		if (eight & UINT64_C(0x8080808080808080))
			break;
	}
	while (at < n && !((unsigned char)text[at] & 0x80))
		at++;
	return at;
}

/* An ASCII character does not combine with earlier characters, but the last one may combine with
 * what follows. */
static int run_form(const struct normalize_step *s, struct normalize_work *w, const char *text,
		    size_t n, struct buf *out, struct err *e)
{
	w->n = 0;
	for (size_t at = 0, bytes; at < n; at += bytes) {
		bytes = ascii_run(text + at, n - at);
		if (bytes) {
			put_segment(s, w, out);
			buf_add(out, text + at, bytes - 1);
			if (add_char(s, w, text[at + bytes - 1], out, e))
				return -1;
			continue;
		}
		bytes = text_utf8_char(text + at, n - at);
		if (!bytes) {
			put_segment(s, w, out);
			buf_add(out, text + at, bytes = 1);
		} else if (add_char(s, w, (int32_t)text_utf8_value(text + at, bytes), out, e)) {
			return -1;
		}
	}
	put_segment(s, w, out);
	return 0;
}

/* --- the others --- */

static int run_lowercase(const struct normalize_step *s, struct normalize_work *w, const char *text,
			 size_t n, struct buf *out, struct err *e)
{
	enum { I_WITH_DOT = 0x130 }; /* the only character whose lower case has two characters */
	(void)s, (void)w, (void)e;
	for (size_t at = 0, bytes; at < n; at += bytes) {
		bytes = text_utf8_char(text + at, n - at);
		int32_t c = bytes ? (int32_t)text_utf8_value(text + at, bytes) : 0;
		if (!bytes)
			buf_add(out, text + at, bytes = 1);
		else if (c == I_WITH_DOT)
			buf_puts(out, "i\xcc\x87");
		else
			put_char(out, utf8proc_tolower(c));
	}
	return 0;
}

static int run_strip_accents(const struct normalize_step *s, struct normalize_work *w,
			     const char *text, size_t n, struct buf *out, struct err *e)
{
	(void)s, (void)w, (void)e;
	for (size_t at = 0, bytes; at < n; at += bytes) {
		bytes = text_utf8_char(text + at, n - at);
		if (!bytes || !is_mark((int32_t)text_utf8_value(text + at, bytes)))
			buf_add(out, text + at, bytes ? bytes : (bytes = 1));
	}
	return 0;
}

static int run_strip(const struct normalize_step *s, struct normalize_work *w, const char *text,
		     size_t n, struct buf *out, struct err *e)
{
	size_t lo = s->left ? text_utf8_spaces_at_start(text, n) : 0,
	       hi = s->right ? text_utf8_spaces_at_end(text, lo, n) : n;
	(void)w, (void)e;
	buf_add(out, text + lo, hi - lo);
	return 0;
}

static int too_large(const struct normalize_step *s, const struct buf *out, struct err *e)
{
	return out->len <= s->room
		       ? 0
		       : err_set(e, ERR_UNSUPPORTED,
				 "normalizer %s makes a text more than %d times as long",
				 s->row->type, GROWTH_MAX);
}

static int replace_text(const struct normalize_step *s, const char *text, size_t n, struct buf *out,
			struct err *e)
{
	for (const char *at = text, *end = text + n; at < end;) {
		const char *next = memmem(at, (size_t)(end - at), s->from, s->n_from);
		buf_add(out, at, (size_t)((next ? next : end) - at));
		if (next)
			buf_add(out, s->to, s->n_to);
		if (too_large(s, out, e))
			return -1;
		at = next ? next + s->n_from : end;
	}
	return 0;
}

/* Replaces matches in a run of whole characters. */
static int replace_matches(const struct normalize_step *s, struct normalize_work *w,
			   const char *text, size_t n, struct buf *out, struct err *e)
{
	struct split_ahead ahead = { 0 };
	if (!w->matcher && text_split_matcher_open(&w->matcher, e))
		return -1;
	for (size_t at = 0, end; at < n; at = end) {
		bool between;
		if (text_split_next(s->regex, w->matcher, text, n, at, &ahead, &end, &between, e))
			return -1;
		buf_add(out, between ? text + at : s->to, between ? end - at : s->n_to);
		if (too_large(s, out, e))
			return -1;
	}
	return 0;
}

static int run_replace(const struct normalize_step *s, struct normalize_work *w, const char *text,
		       size_t n, struct buf *out, struct err *e)
{
	if (!s->regex)
		return replace_text(s, text, n, out, e);
	for (size_t at = 0; at < n;) {
		size_t run = text_utf8_run(text + at, n - at);
		if (run && replace_matches(s, w, text + at, run, out, e))
			return -1;
		at += run;
		if (at < n)
			buf_add(out, text + at++, 1);
	}
	return 0;
}

static int run_prepend(const struct normalize_step *s, struct normalize_work *w, const char *text,
		       size_t n, struct buf *out, struct err *e)
{
	(void)w;
	if (n)
		buf_add(out, s->to, s->n_to);
	buf_add(out, text, n);
	return too_large(s, out, e);
}

/* --- reading --- */

/* Keeps a copy of the string that is the member `key` of o. */
static int keep_text(const json_t *o, const char *key, char **text, size_t *n, struct err *e)
{
	const json_t *v = json_object_get(o, key);
	const char *value = json_string_value(v);
	*n = json_string_length(v);
	*text = value ? calloc(1, *n + 1) : NULL;
	if (!*text)
		return value ? err_set(e, ERR_NOMEM, "no memory for a normalizer")
			     : err_set(e, ERR_CORRUPT, "it has no string \"%s\"", key);
	memcpy(*text, value, *n);
	return 0;
}

static int read_replace(struct normalize_step *s, const json_t *o, struct err *e)
{
	const json_t *pattern = json_object_get(o, "pattern"),
		     *regex = json_object_get(pattern, "Regex");
	if (keep_text(o, "content", &s->to, &s->n_to, e))
		return -1;
	if (json_is_string(regex))
		return text_split_open(json_string_value(regex), json_string_length(regex), false,
				       true, &s->regex, e);
	if (keep_text(pattern, "String", &s->from, &s->n_from, e))
		return -1;
	return s->n_from ? 0 : err_set(e, ERR_UNSUPPORTED, "the pattern is empty");
}

static int read_prepend(struct normalize_step *s, const json_t *o, struct err *e)
{
	return keep_text(o, "prepend", &s->to, &s->n_to, e);
}

static int read_strip(struct normalize_step *s, const json_t *o, struct err *e)
{
	(void)e;
	s->left = !json_is_false(json_object_get(o, "strip_left"));
	s->right = !json_is_false(json_object_get(o, "strip_right"));
	return 0;
}

static const struct normalize_row rows[] = {
	{ "NFC", run_form, NULL, UTF8PROC_COMPOSE, true, true },
	{ "NFD", run_form, NULL, 0, true, true },
	{ "NFKC", run_form, NULL, UTF8PROC_COMPOSE | UTF8PROC_COMPAT, true, false },
	{ "NFKD", run_form, NULL, UTF8PROC_COMPAT, true, false },
	{ "Lowercase", run_lowercase, NULL, 0, false, true },
	{ "StripAccents", run_strip_accents, NULL, 0, true, true },
	{ "Strip", run_strip, read_strip, 0, false, false },
	{ "Replace", run_replace, read_replace, 0, false, false },
	{ "Prepend", run_prepend, read_prepend, 0, false, false },
};

static const struct normalize_row *row_of(const json_t *o)
{
	const char *type = json_string_value(json_object_get(o, "type"));
	for (size_t i = 0; type && i < sizeof rows / sizeof *rows; i++)
		if (!strcmp(rows[i].type, type))
			return &rows[i];
	return NULL;
}

bool text_normalizer_has(const json_t *o)
{
	return row_of(o) != NULL;
}

const char *text_normalizer_known(void)
{
	return "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, Sequence";
}

bool text_normalizer_commutes(const json_t *o)
{
	const struct normalize_row *row = row_of(o);
	return row && row->commutes;
}

static void close_step(struct normalize_step *s)
{
	if (!s)
		return;
	text_split_close(s->regex);
	free(s->from);
	free(s->to);
	free(s);
}

int text_normalizer_add(struct normalizer *z, const json_t *o, struct err *e)
{
	const struct normalize_row *row = row_of(o);
	if (z->n == NORMALIZE_STEPS)
		return err_set(e, ERR_UNSUPPORTED, "normalizer: has more than %d in a row",
			       NORMALIZE_STEPS);
	struct normalize_step *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "no memory for a normalizer");
	s->row = row;
	if (row->read && row->read(s, o, e)) {
		close_step(s);
		return err_prefix(e, "normalizer %s", row->type);
	}
	z->steps[z->n++] = s;
	return 0;
}

void text_normalizer_fini(struct normalizer *z)
{
	for (int i = 0; i < z->n; i++)
		close_step(z->steps[i]);
	z->n = 0;
}

/* --- use --- */

void text_normalize_work_fini(struct normalize_work *w)
{
	buf_fini(&w->text[0]);
	buf_fini(&w->text[1]);
	free(w->chars);
	free(w->spare);
	text_split_matcher_close(w->matcher);
	*w = (struct normalize_work){ 0 };
}

int text_normalize(const struct normalizer *z, struct normalize_work *w, const char **text,
		   size_t *n, struct err *e)
{
	size_t room = *n * GROWTH_MAX + GROWTH_FREE;
	for (int i = 0, side = 0; i < z->n; i++) {
		struct normalize_step s = *z->steps[i];
		struct buf *out = &w->text[side];
		if (s.row->plain && ascii_run(*text, *n) == *n)
			continue;
		side = 1 - side; /* the previous step's result is in the other buffer */
		s.room = room;
		buf_clear(out);
		if (s.row->run(&s, w, *text, *n, out, e) || too_large(&s, out, e))
			return -1;
		if (buf_failed(out))
			return err_set(e, ERR_NOMEM, "no memory to normalize a text of %zu bytes",
				       *n);
		*text = buf_str(out);
		*n = out->len;
	}
	return 0;
}
