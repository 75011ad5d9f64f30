#include "agent/engine/data/pack_documents.h"
#include "agent/engine/data/pack_format.h"
#include "agent/engine/data/pack_stream.h"
#include "base/buf.h"
#include "base/human.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 18, NAMES_MAX = 200 };

struct lines {
	const char *file, *field;
	const struct document_options *opt;
	const struct document_sink *sink;
	struct document_counts *counts;
	int64_t number;  /* number of the current line, from 1 */
	struct buf line; /* the start of the current line, if it comes in several pieces */
};

/* Returns the member of that name or, if there is none, the value at the end of the path of names.
 */
static const json_t *find_field(const json_t *o, const char *field)
{
	const json_t *v = json_object_get(o, field);
	for (const char *dot; !v && (dot = strchr(field, '.')); field = dot + 1) {
		o = json_object_getn(o, field, (size_t)(dot - field));
		v = json_object_get(o, dot + 1);
	}
	return v;
}

static int refuse_field(json_t *o, const json_t *v, const char *field, struct err *e)
{
	static const char *const words[] = { "an object", "a list", "a string", "a number",
					     "a number",  "true",   "false",    "null" };
	struct buf names = BUF_INIT;
	const char *key;
	const json_t *member;
	if (v)
		return err_set(e, ERR_CORRUPT,
			       "the field \"%s\" is %s, not a string; name another with --field, "
			       "or leave such lines out with "
			       "--skip-bad",
			       field, words[json_typeof(v)]);
	json_object_foreach(o, key, member)
	{
		if (names.len < NAMES_MAX)
			buf_printf(&names, "%s\"%.60s\"", names.len ? ", " : "", key);
	}
	err_set(e, ERR_CORRUPT,
		"there is no field \"%s\"; the object has %s: name the one to pack with --field, "
		"or leave such lines out with "
		"--skip-bad",
		field, names.len ? buf_str(&names) : "none");
	buf_fini(&names);
	return -1;
}

static int refuse_list(const struct lines *l, struct err *e)
{
	struct buf file = BUF_INIT;
	data_pack_format_quote_word(&file, l->file);
	err_set(e, ERR_UNSUPPORTED,
		"a list of JSON begins here, and each line must be one object; convert it: "
		"jq -c '.[]' %s >%s.jsonl",
		buf_str(&file), buf_str(&file));
	buf_fini(&file);
	return -1;
}

static int refuse_line(const struct lines *l, const char *text, size_t n, const json_error_t *where,
		       struct err *e)
{
	while (n && (*text == ' ' || *text == '\t' || *text == '\r')) {
		text++;
		n--;
	}
	if (l->number == 1 && n && *text == '[')
		return refuse_list(l, e);
	if (strstr(where->text, "Unicode"))
		return err_set(
			e, ERR_CORRUPT,
			"%s: half of a surrogate pair is not a character; write the line again "
			"without it, or leave such "
			"lines out with --skip-bad",
			where->text);
	struct buf file = BUF_INIT;
	data_pack_format_quote_word(&file, l->file);
	err_set(e, ERR_CORRUPT,
		"%s (column %d): each line must be one JSON object; `jq -c . %s` writes them so, "
		"--raw packs "
		"the file as plain text, --skip-bad leaves such lines out",
		where->text, where->column, buf_str(&file));
	buf_fini(&file);
	return -1;
}

/* *text points into *root, which the caller must release. */
static int parse_line(const struct lines *l, const char *line, size_t n, json_t **root,
		      const json_t **text, struct err *e)
{
	json_error_t where;
	json_t *o = json_loadb(line, n, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &where);
	if (o && !json_is_object(o)) {
		snprintf(where.text, sizeof where.text, "it is not an object");
		where.column = 1;
		json_decref(o);
		o = NULL;
	}
	if (!o)
		return refuse_line(l, line, n, &where, e);
	const json_t *v = find_field(o, l->field);
	if (!json_is_string(v)) {
		refuse_field(o, v, l->field, e);
		json_decref(o);
		return -1;
	}
	*root = o;
	*text = v;
	return 0;
}

static int skip_line(struct lines *l, const struct err *why)
{
	struct document_counts *c = l->counts;
	if (!c->skipped++)
		snprintf(c->first_skipped, sizeof c->first_skipped, "%s:%" PRId64 ": %s", l->file,
			 l->number, why->text);
	human_plain(c->first_skipped);
	return 0;
}

static bool blank(const char *line, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
			return false;
	return true;
}

static int take_line(struct lines *l, const char *line, size_t n, struct err *e)
{
	struct err why = ERR_INIT;
	json_t *root = NULL;
	const json_t *text = NULL;
	l->number++;
	if (l->number == 1 && n >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) { /* UTF-8's BOM */
		line += 3;
		n -= 3;
	}
	if (blank(line, n))
		return 0;
	if (parse_line(l, line, n, &root, &text, &why))
		return l->opt->skip_bad && why.code == ERR_CORRUPT
			       ? skip_line(l, &why)
			       : err_set(e, why.code, "%s:%" PRId64 ": %s", l->file, l->number,
					 why.text);
	size_t len = json_string_length(text);
	int rc = len ? l->sink->put(l->sink->arg, json_string_value(text), len, true, e) : 0;
	if (rc)
		err_prefix(e, "%s:%" PRId64, l->file, l->number);
	else if (len)
		l->counts->documents++;
	else
		l->counts->empty++;
	json_decref(root);
	return rc;
}

/* Keeps what follows the last newline for the next piece. */
static int take_piece(struct lines *l, const char *piece, size_t n, struct err *e)
{
	const char *newline;
	for (; (newline = memchr(piece, '\n', n));
	     n -= (size_t)(newline + 1 - piece), piece = newline + 1) {
		size_t len = (size_t)(newline - piece);
		if (!l->line.len) {
			if (take_line(l, piece, len, e))
				return -1;
			continue;
		}
		buf_add(&l->line, piece, len);
		if (buf_failed(&l->line) || take_line(l, l->line.data, l->line.len, e))
			return buf_failed(&l->line)
				       ? err_set(e, ERR_NOMEM, "%s: no memory for a line", l->file)
				       : -1;
		buf_clear(&l->line);
	}
	buf_add(&l->line, piece, n);
	if (buf_failed(&l->line))
		return err_set(e, ERR_NOMEM, "%s: no memory for a line of %zu bytes", l->file,
			       l->line.len);
	if (l->line.len > DOCUMENT_LINE_MAX)
		return err_set(
			e, ERR_UNSUPPORTED,
			"%s:%" PRId64
			": the line is longer than %d MiB; divide its document, or pack plain text",
			l->file, l->number + 1, DOCUMENT_LINE_MAX >> 20);
	return 0;
}

int data_lines_read(struct stream *s, const char *file, const struct document_options *opt,
		    const struct document_sink *sink, struct document_counts *counts, struct err *e)
{
	struct lines l = { .file = file,
			   .field = opt->field ? opt->field : "text",
			   .opt = opt,
			   .sink = sink,
			   .counts = counts };
	char *chunk = malloc(CHUNK);
	int rc = chunk ? 0 : err_set(e, ERR_NOMEM, "%s: no memory to read it", file);
	for (size_t got = 1; !rc && got;) {
		rc = data_stream_read(s, chunk, CHUNK, &got, e);
		if (!rc && got)
			rc = take_piece(&l, chunk, got, e);
	}
	if (!rc && l.line.len)
		rc = take_line(&l, l.line.data, l.line.len, e);
	free(chunk);
	buf_fini(&l.line);
	return rc;
}
