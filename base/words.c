#include "base/words.h"

#include "base/human.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\n\r\v\f";
static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

struct reader {
	const char *text, *at;
	char *to; /* the next byte of the current word */
	struct err *err;
};

static int column(const struct reader *r, const char *at)
{
	int n = 1;
	for (const char *c = r->text; c < at; c++)
		n += (*c & 0xc0) != 0x80;
	return n;
}

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef0123456789ABCDEF";
	const char *at = c ? strchr(digits, c) : NULL;
	return at ? (int)(at - digits) % 16 : -1;
}

/* Reads \xHH, of which r->at is the x. */
static int read_hex(struct reader *r)
{
	int high = hex_digit(r->at[1]);
	int low = high < 0 ? -1 : hex_digit(r->at[2]);
	if (low < 0 || high + low == 0)
		return err_set(r->err, ERR_USAGE,
			       "column %d: \\x needs two hexadecimal digits that are not 00; write "
			       "such as \\x1b, or \\\\x for a backslash and an x",
			       column(r, r->at - 1));
	*r->to++ = (char)(high * 16 + low);
	r->at += 3;
	return 0;
}

static int refuse_escape(const struct reader *r, bool quoted)
{
	int at = column(r, r->at - 1);
	if (!*r->at)
		return err_set(r->err, ERR_USAGE,
			       "column %d: a backslash ends the text; write \\\\ for a backslash",
			       at);
	return err_set(r->err, ERR_USAGE,
		       "column %d: \\%c is no escape %s; write \\\\%c for a backslash, or put the "
		       "word in '...'%s",
		       at, *r->at, quoted ? "in \"...\"" : "outside quotes", *r->at,
		       !quoted && strchr("ntx", *r->at) ? ", or in \"...\" for the escape" : "");
}

/* Reads the escape whose backslash is at r->at. */
static int read_escape(struct reader *r, bool quoted)
{
	char c = *++r->at;
	if (c && !strchr(letters, c)) {
		*r->to++ = c;
		r->at++;
		return 0;
	}
	if (quoted && c == 'x')
		return read_hex(r);
	if (!quoted || (c != 'n' && c != 't'))
		return refuse_escape(r, quoted);
	*r->to++ = c == 'n' ? '\n' : '\t';
	r->at++;
	return 0;
}

/* Reads a quoted piece, whose quote is at r->at. */
static int read_quoted(struct reader *r)
{
	const char *open = r->at++;
	while (*r->at && *r->at != *open) {
		if (*open == '"' && *r->at == '\\') {
			if (read_escape(r, true))
				return -1;
		} else {
			*r->to++ = *r->at++;
		}
	}
	if (!*r->at)
		return err_set(r->err, ERR_USAGE,
			       "column %d: the quote %c is not closed; add a %c where the word "
			       "ends, or write \\%c for the character",
			       column(r, open), *open, *open, *open);
	r->at++;
	return 0;
}

static int read_word(struct reader *r)
{
	while (*r->at && !strchr(blanks, *r->at)) {
		int rc = 0;
		if (*r->at == '\'' || *r->at == '"')
			rc = read_quoted(r);
		else if (*r->at == '\\')
			rc = read_escape(r, false);
		else
			*r->to++ = *r->at++;
		if (rc)
			return -1;
	}
	*r->to++ = '\0';
	return 0;
}

int words_parse(const char *text, char ***argv, struct err *e)
{
	/* A word and what separates it take at least 2 bytes; no word becomes longer than its text. */
	size_t len = strlen(text), most = len / 2 + 2, n = 0;
	char **words = malloc(most * sizeof *words + len + 1);
	if (!words)
		return err_set(e, ERR_NOMEM, "no memory for a command line of %zu bytes", len);
	struct reader r = { .text = text, .at = text, .to = (char *)(words + most), .err = e };
	while (r.at += strspn(r.at, blanks), *r.at) {
		words[n++] = r.to;
		if (read_word(&r)) {
			free(words);
			return -1;
		}
	}
	words[n] = NULL;
	*argv = words;
	return 0;
}

/* Whether the byte begins a comment in a job file, if `before` precedes it. */
static bool begins_comment(char before, char c)
{
	return before == ' ' && (c == '#' || c == ';');
}

/* How a word can be written, the plainest way first. */
enum form { PLAIN, LITERAL, ESCAPED };

static enum form choose_form(const char *word)
{
	enum form form = *word && !begins_comment(' ', *word) ? PLAIN : LITERAL;
	char before = '\'';
	for (size_t n; *word; before = *word, word += n) {
		n = human_printable(word);
		if (!n || *word == '\'' || begins_comment(before, *word))
			return ESCAPED;
		if (strchr(" \"\\", *word))
			form = LITERAL;
	}
	return form;
}

static void write_escaped(const char *word, struct buf *out)
{
	char before = '"';
	buf_puts(out, "\"");
	for (size_t n; *word; before = *word, word += n) {
		n = human_printable(word);
		if (strchr("\"\\", *word) || begins_comment(before, *word))
			buf_puts(out, "\\");
		if (n)
			buf_add(out, word, n);
		else if (*word == '\n' || *word == '\t')
			buf_puts(out, *word == '\n' ? "\\n" : "\\t");
		else
			buf_printf(out, "\\x%02x", (unsigned char)*word);
		n += !n;
	}
	buf_puts(out, "\"");
}

static void write_word(const char *word, struct buf *out)
{
	switch (choose_form(word)) {
	case PLAIN:
		buf_puts(out, word);
		break;
	case LITERAL:
		buf_printf(out, "'%s'", word);
		break;
	case ESCAPED:
		write_escaped(word, out);
		break;
	}
}

int words_write(char *const *argv, struct buf *out)
{
	size_t from = out->len;
	for (size_t i = 0; argv[i]; i++) {
		buf_puts(out, i ? " " : "");
		write_word(argv[i], out);
	}
	/* A job file refuses a value between two equal quotes; an empty piece of the other kind hides
	 * the last one. */
	if (!buf_failed(out) && out->len > from && strchr("'\"", out->data[from]) &&
	    out->data[out->len - 1] == out->data[from])
		buf_puts(out, out->data[from] == '\'' ? "\"\"" : "''");
	return buf_failed(out) ? -1 : 0;
}
