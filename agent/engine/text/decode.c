#include "agent/engine/text/parts.h"
#include "agent/engine/text/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MAX = 3 }; /* the most bytes of an incomplete character */

struct decoder {
	const struct tokenizer *t;
	const struct added_token **added; /* [vocab] NULL: the id is not an added token */
	char wait[WAIT_MAX];
	size_t n_wait;
	bool begun; /* the first token of the text has been decoded */
};

int text_decoder_open(const struct tokenizer *t, struct decoder **out, struct err *e)
{
	struct decoder *d = calloc(1, sizeof *d);
	if (d)
		d->added = calloc((size_t)t->vocab.n + 1, sizeof *d->added);
	if (!d || !d->added) {
		text_decoder_close(d);
		return err_set(e, ERR_NOMEM, "no memory to decode text");
	}
	d->t = t;
	for (int32_t i = 0; i < t->n_added; i++)
		d->added[t->added[i].id] = &t->added[i];
	*out = d;
	return 0;
}

void text_decoder_close(struct decoder *d)
{
	if (!d)
		return;
	free(d->added);
	free(d);
}

/* Returns how many of the last bytes, at most WAIT_MAX, begin a character that is not complete. */
static size_t unfinished(const char *text, size_t n)
{
	for (size_t back = 1; back <= WAIT_MAX && back <= n; back++)
		if (text_utf8_begun(text + n - back, back))
			return back;
	return 0;
}

int text_decoder_put(struct decoder *d, int32_t id, struct buf *out, struct err *e)
{
	size_t len;
	if (!text_vocab_has(&d->t->vocab, id))
		return err_set(e, ERR_USAGE,
			       "id %" PRId32 " is not in the vocabulary of %" PRId32
			       " tokens; does the tokenizer belong to this "
			       "model?",
			       id, d->t->vocab.n);
	const struct added_token *added = d->added[id];
	if (added && added->special)
		return 0;
	const char *text = text_vocab_text(&d->t->vocab, id, &len);
	if (added && added->normalized && added->len) { /* the text by which it is found */
		text = added->text;
		len = added->len;
	}
	if (!d->begun && d->t->strip_lead && len && *text == ' ') {
		text++;
		len--;
	}
	d->begun = true;
	size_t before = out->len;
	buf_add(out, d->wait, d->n_wait);
	buf_add(out, text, len);
	if (buf_failed(out))
		return err_set(e, ERR_NOMEM, "no memory for the text");
	d->n_wait = unfinished(out->data + before, out->len - before);
	out->len -= d->n_wait;
	memcpy(d->wait, out->data + out->len, d->n_wait);
	return 0;
}

void text_decoder_end(struct decoder *d, struct buf *out)
{
	buf_add(out, d->wait, d->n_wait);
	d->n_wait = 0;
	d->begun = false;
}

int text_decoder_begin(struct decoder *d, const int32_t *ids, size_t n, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = 0;
	text_decoder_end(d, &text);
	for (size_t i = 0; i < n && !rc; i++) {
		buf_clear(&text);
		rc = text_decoder_put(d, ids[i], &text, e);
	}
	d->n_wait = 0; /* the first bytes of a character belong to the printed text, too */
	buf_fini(&text);
	return rc;
}
