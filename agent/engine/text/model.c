/* Reads the model of a tokenizer.json (BPE) and its added tokens. */
#include "agent/engine/text/parts.h"
#include "agent/engine/text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A byte-level vocabulary writes each byte as a printable character (GPT-2's table). The printable
 * characters of ASCII and Latin-1 stand for themselves. The other bytes are U+0100, U+0101 … in
 * order.
 */
static bool stands_for_itself(uint32_t c)
{
	return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xff && c != 0xad);
}

/* Returns the byte that a character stands for; -1: none. */
static int byte_of(uint32_t c)
{
	if (c < 0x100)
		return stands_for_itself(c) ? (int)c : -1;
	uint32_t n = c - 0x100;
	for (int byte = 0; byte < 256; byte++)
		if (!stands_for_itself((uint32_t)byte) && n-- == 0)
			return byte;
	return -1;
}

static bool bytes_text(const char *written, size_t len, struct buf *out)
{
	for (size_t at = 0, bytes; at < len; at += bytes) {
		bytes = text_utf8_char(written + at, len - at);
		int byte = bytes ? byte_of(text_utf8_value(written + at, bytes)) : -1;
		if (byte < 0)
			return false;
		buf_add(out, &(char){ (char)byte }, 1);
	}
	return true;
}

static bool blanks_text(const char *written, size_t len, struct buf *out)
{
	const size_t mark = sizeof BLANK_MARK - 1;
	for (size_t at = 0; at < len;) {
		bool blank = len - at >= mark && !memcmp(written + at, BLANK_MARK, mark);
		if (written[at] == ' ')
			return false;
		buf_add(out, blank ? " " : written + at, 1);
		at += blank ? mark : 1;
	}
	return true;
}

/* Returns the byte of a token such as "<0x0A>"; -1: it is not such a token. */
static int fallback_byte(const char *written, size_t len)
{
	char want[8];
	for (int byte = 0; byte < 256 && len == 6 && written[0] == '<'; byte++)
		if (snprintf(want, sizeof want, "<0x%02X>", byte) == 6 && !memcmp(want, written, 6))
			return byte;
	return -1;
}

bool text_token_text(const struct tokenizer *t, const char *written, size_t len, struct buf *out)
{
	size_t before = out->len;
	int byte = t->byte_fallback ? fallback_byte(written, len) : -1;
	if (byte >= 0) {
		buf_add(out, &(char){ (char)byte }, 1);
		return false;
	}
	if (t->byte_level ? bytes_text(written, len, out)
			  : !t->blanks || blanks_text(written, len, out)) {
		if (!t->byte_level && !t->blanks)
			buf_add(out, written, len);
		return len > 0;
	}
	out->len = before;
	buf_add(out, written, len);
	return false;
}

static int read_vocab(struct tokenizer *t, json_t *vocab, struct err *e)
{
	struct buf text = BUF_INIT;
	const char *key;
	json_t *id;
	int rc = 0;
	if (!json_object_size(vocab))
		return err_set(e, ERR_CORRUPT, "model.vocab: is missing or empty");
	json_object_foreach(vocab, key, id)
	{
		if (!json_is_integer(id)) {
			rc = err_set(e, ERR_CORRUPT,
				     "model.vocab: the id of \"%.60s\" is not an integer", key);
			break;
		}
		buf_clear(&text);
		bool found = text_token_text(t, key, strlen(key), &text);
		int byte = t->byte_fallback ? fallback_byte(key, strlen(key)) : -1;
		rc = text_vocab_put(&t->vocab, json_integer_value(id), buf_str(&text), text.len,
				    !found, e);
		if (rc || buf_failed(&text))
			break;
		if (byte >= 0)
			t->byte_ids[byte] = (int32_t)json_integer_value(id);
	}
	if (!rc && buf_failed(&text))
		rc = err_set(e, ERR_NOMEM, "no memory for the vocabulary");
	buf_fini(&text);
	for (int byte = 0; byte < 256 && t->byte_level; byte++)
		t->byte_ids[byte] = text_vocab_find(&t->vocab, &(char){ (char)byte }, 1);
	return rc;
}

/* Returns the id of a token as the file writes it; -1: the vocabulary does not have it. */
static int32_t id_of(const json_t *vocab, const char *written, size_t len, size_t rank,
		     struct err *e)
{
	const json_t *id = json_object_getn(vocab, written, len);
	if (id)
		return (int32_t)json_integer_value(id);
	return err_set(e, ERR_CORRUPT,
		       "model.merges: number %zu needs the token \"%.*s\", which model.vocab lacks",
		       rank, (int)(len < 60 ? len : 60), written);
}

/* Sets the two halves of a merge, which is written "a b" or ["a", "b"]. */
static int halves_of(const json_t *merge, size_t rank, const char *half[2], size_t len[2],
		     struct err *e)
{
	const char *text = json_string_value(merge), *blank = text ? strchr(text, ' ') : NULL;
	if (blank && !strchr(blank + 1, ' ')) {
		half[0] = text;
		len[0] = (size_t)(blank - text);
		half[1] = blank + 1;
		len[1] = json_string_length(merge) - len[0] - 1;
		return 0;
	}
	for (size_t i = 0; i < 2; i++) {
		const json_t *part = json_array_get(merge, i);
		half[i] = json_string_value(part);
		len[i] = json_string_length(part);
	}
	if (json_array_size(merge) != 2 || !half[0] || !half[1])
		return err_set(e, ERR_CORRUPT,
			       "model.merges: number %zu is neither \"a b\" nor [\"a\", \"b\"]",
			       rank);
	return 0;
}

/* Whether the token has another character before a blank. Such a token crosses a position at which
 * texts could be split. */
static bool crosses_blank(const struct tokenizer *t, int32_t id)
{
	size_t len;
	const char *text = text_vocab_text(&t->vocab, id, &len);
	for (size_t i = 1; i < len; i++)
		if (text[i] == ' ' && text[i - 1] != ' ')
			return true;
	return false;
}

static int read_merge(struct tokenizer *t, const json_t *vocab, const json_t *merge, size_t rank,
		      struct buf *joined, struct err *e)
{
	const char *half[2] = { NULL, NULL };
	size_t len[2];
	if (halves_of(merge, rank, half, len, e))
		return -1;
	if (!len[0] || !len[1])
		return err_set(e, ERR_CORRUPT, "model.merges: number %zu has an empty half", rank);
	buf_clear(joined);
	buf_add(joined, half[0], len[0]);
	buf_add(joined, half[1], len[1]);
	if (buf_failed(joined))
		return err_set(e, ERR_NOMEM, "no memory for the merges");
	int32_t left = id_of(vocab, half[0], len[0], rank, e),
		right = left < 0 ? -1 : id_of(vocab, half[1], len[1], rank, e);
	int32_t becomes = right < 0 ? -1 : id_of(vocab, joined->data, joined->len, rank, e);
	if (becomes < 0)
		return -1;
	t->cut_blanks = t->cut_blanks && !crosses_blank(t, becomes);
	text_merges_put(&t->merges, left, right, (uint32_t)rank, becomes);
	return 0;
}

static int read_merges(struct tokenizer *t, const json_t *vocab, const json_t *merges,
		       struct err *e)
{
	struct buf joined = BUF_INIT;
	int rc = 0;
	if (!json_is_array(merges))
		return err_set(e, ERR_CORRUPT, "model.merges: is not a list");
	if (text_merges_init(&t->merges, json_array_size(merges), e))
		return -1;
	t->cut_blanks = t->blanks && !t->ignore_merges && text_vocab_find(&t->vocab, " ", 1) >= 0;
	for (size_t i = 0; i < json_array_size(merges) && !rc; i++)
		rc = read_merge(t, vocab, json_array_get(merges, i), i, &joined, e);
	buf_fini(&joined);
	return rc;
}

static int check_model(const struct tokenizer *t, const json_t *o, struct err *e)
{
	if (!text_part_is(o, "BPE"))
		return text_refuse_part("model", o, "BPE", e);
	if (json_number_value(json_object_get(o, "dropout")) != 0)
		return err_set(e, ERR_UNSUPPORTED,
			       "model.dropout: merges that are left out at random are not "
			       "supported; set it to null");
	if (*text_part_text(o, "continuing_subword_prefix") ||
	    *text_part_text(o, "end_of_word_suffix"))
		return err_set(e, ERR_UNSUPPORTED, "model.%s: is not supported; remove it",
			       *text_part_text(o, "end_of_word_suffix")
				       ? "end_of_word_suffix"
				       : "continuing_subword_prefix");
	if (t->byte_level && text_part_flag(o, "byte_fallback", false))
		return err_set(
			e, ERR_UNSUPPORTED,
			"model.byte_fallback: is not supported with the pre_tokenizer ByteLevel");
	return 0;
}

int text_read_model(struct tokenizer *t, const json_t *o, struct err *e)
{
	json_t *vocab = json_object_get(o, "vocab");
	if (check_model(t, o, e))
		return -1;
	t->byte_fallback = text_part_flag(o, "byte_fallback", false);
	t->fuse_unk = text_part_flag(o, "fuse_unk", false);
	t->ignore_merges = text_part_flag(o, "ignore_merges", false);
	if (read_vocab(t, vocab, e) || read_merges(t, vocab, json_object_get(o, "merges"), e))
		return -1;
	const json_t *unk = json_object_get(vocab, text_part_text(o, "unk_token"));
	t->unk = json_is_integer(unk) ? (int32_t)json_integer_value(unk) : -1;
	return 0;
}

/* --- added_tokens --- */

/* A token that is searched for in normalized text is itself normalized. */
static char *text_of(const struct tokenizer *t, const struct added_token *a, const char *content,
		     size_t *len, struct err *e)
{
	struct buf text = BUF_INIT;
	struct normalize_work work = { 0 };
	size_t n = strlen(content);
	if (a->normalized && text_normalize(&t->normalizer, &work, &content, &n, e)) {
		text_normalize_work_fini(&work);
		return NULL;
	}
	bool blanks = a->normalized && t->normalizes;
	if (blanks && n && t->lead == LEAD_ALWAYS)
		buf_add(&text, " ", 1);
	for (const char *at = content, *end = content + n; at < end;) {
		bool blank = blanks && !strncmp(at, BLANK_MARK, sizeof BLANK_MARK - 1);
		buf_add(&text, blank ? " " : at, 1);
		at += blank ? sizeof BLANK_MARK - 1 : 1;
	}
	text_normalize_work_fini(&work);
	*len = text.len;
	buf_str(&text);
	char *out = buf_failed(&text) ? NULL : strdup(buf_str(&text));
	if (!out)
		err_set(e, ERR_NOMEM, "no memory for the added tokens");
	buf_fini(&text);
	return out;
}

static int read_added(struct tokenizer *t, const json_t *o, const json_t *vocab, struct err *e)
{
	struct added_token *a = &t->added[t->n_added];
	const char *content = text_part_text(o, "content");
	const json_t *id = json_object_get(o, "id"), *other = json_object_get(vocab, content);
	if (!*content || !json_is_integer(id))
		return err_set(e, ERR_CORRUPT,
			       "added_tokens: number %" PRId32 " has no content or no id",
			       t->n_added);
	if (text_part_flag(o, "single_word", false))
		return err_set(e, ERR_UNSUPPORTED,
			       "added_tokens: \"%.60s\" is single_word, which is not supported",
			       content);
	if (other && !json_equal(other, id))
		return err_set(e, ERR_CORRUPT,
			       "added_tokens: \"%.60s\" has the id %" JSON_INTEGER_FORMAT
			       ", but another one in model.vocab",
			       content, json_integer_value(id));
	if (!other &&
	    text_vocab_put(&t->vocab, json_integer_value(id), content, strlen(content), true, e))
		return err_prefix(e, "added_tokens");
	*a = (struct added_token){ .id = (int32_t)json_integer_value(id),
				   .special = text_part_flag(o, "special", false),
				   .lstrip = text_part_flag(o, "lstrip", false),
				   .rstrip = text_part_flag(o, "rstrip", false),
				   .normalized = text_part_flag(
					   o, "normalized", !text_part_flag(o, "special", false)) };
	a->text = text_of(t, a, content, &a->len, e);
	t->n_added++; /* from here on, its text is freed with the other tokens' texts */
	if (!a->text)
		return -1;
	return !a->len ? 0
		       : text_added_set_put(a->normalized ? &t->normalized : &t->raw, a,
					    t->n_added - 1, e);
}

int text_read_added_tokens(struct tokenizer *t, const json_t *list, const json_t *vocab,
			   struct err *e)
{
	size_t n = json_array_size(list);
	if (!n)
		return 0;
	if (n > VOCAB_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "added_tokens: has %zu tokens; at most %d are supported", n,
			       VOCAB_MAX);
	t->added = calloc(n, sizeof *t->added);
	if (!t->added)
		return err_set(e, ERR_NOMEM, "no memory for %zu added tokens", n);
	for (size_t i = 0; i < n; i++)
		if (read_added(t, json_array_get(list, i), vocab, e))
			return -1;
	return 0;
}
