#include "agent/engine/text/parts.h"

#include "base/json_member.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

static int check_root(const json_t *root, struct err *e)
{
	static const char *const absent[] = { "truncation", "padding" };
	for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
		const json_t *o = json_object_get(root, absent[i]);
		if (json_member_given(o))
			return err_set(e, ERR_UNSUPPORTED, "%s: is not supported; set it to null",
				       absent[i]);
	}
	return 0;
}

static int read_parts(struct tokenizer *t, const json_t *root, struct err *e)
{
	const json_t *model = json_object_get(root, "model");
	if (check_root(root, e) ||
	    text_read_normalizer(t, json_object_get(root, "normalizer"), e) ||
	    text_read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), e) ||
	    text_read_model(t, model, e) ||
	    text_read_added_tokens(t, json_object_get(root, "added_tokens"),
				   json_object_get(model, "vocab"), e) ||
	    text_read_post_processor(t, json_object_get(root, "post_processor"), e) ||
	    text_read_decoder(t, json_object_get(root, "decoder"), e))
		return -1;
	return 0;
}

int tokenizer_parse(const char *text, size_t n, const char *name, struct tokenizer **out,
		    struct err *e)
{
	json_error_t where;
	struct tokenizer *t = calloc(1, sizeof *t);
	if (!t)
		return err_set(e, ERR_NOMEM, "%s: no memory for a tokenizer", name);
	t->unk = -1;
	memset(t->byte_ids, 0xff, sizeof t->byte_ids);
	json_t *root = json_loadb(text, n, JSON_ALLOW_NUL, &where);
	int rc = 0;
	if (!root)
		rc = err_set(e, ERR_CORRUPT,
			     "%s: line %d: %s; the file must be a Hugging Face tokenizer.json",
			     name, where.line, where.text);
	else if (read_parts(t, root, e))
		rc = err_prefix(e, "%s", name);
	json_decref(root);
	if (rc) {
		tokenizer_close(t);
		return -1;
	}
	*out = t;
	return 0;
}

int tokenizer_open(const char *path, struct tokenizer **out, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = file_slurp(path, TOKENIZER_FILE_MAX, &text, e);
	if (!rc)
		rc = tokenizer_parse(buf_str(&text), text.len, path, out, e);
	buf_fini(&text);
	return rc;
}

void tokenizer_close(struct tokenizer *t)
{
	if (!t)
		return;
	text_vocab_fini(&t->vocab);
	text_normalizer_fini(&t->normalizer);
	text_merges_fini(&t->merges);
	for (int i = 0; i < t->n_splits; i++)
		text_split_close(t->splits[i]);
	for (int32_t i = 0; i < t->n_added; i++)
		free(t->added[i].text);
	free(t->added);
	text_added_set_fini(&t->raw);
	text_added_set_fini(&t->normalized);
	free(t);
}

int32_t tokenizer_vocab(const struct tokenizer *t)
{
	return t->vocab.n;
}

static bool has_text(const struct tokenizer *t, int32_t id, const char *text, size_t len)
{
	size_t n;
	const char *own = text_vocab_text(&t->vocab, id, &n);
	return n == len && !memcmp(own, text, len);
}

/* Compares with both texts of an added token: the one in the file, and the normalized one. */
int32_t tokenizer_id(const struct tokenizer *t, const char *text)
{
	size_t len = strlen(text);
	for (int32_t i = 0; i < t->n_added; i++)
		if ((t->added[i].len == len && !memcmp(t->added[i].text, text, len)) ||
		    has_text(t, t->added[i].id, text, len))
			return t->added[i].id;
	return text_vocab_find(&t->vocab, text, len);
}

const int32_t *tokenizer_before(const struct tokenizer *t, size_t *n)
{
	*n = t->n_before;
	return t->before;
}
