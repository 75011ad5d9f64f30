#include "agent/tools/pack_tokens.h"

#include "agent/engine/data/tokens.h"
#include "agent/engine/text/locate.h"
#include "agent/engine/text/tokenizer.h"

#include <inttypes.h>

_Static_assert(sizeof((struct pack_report *)0)->note == ENCODER_NOTE, "a note fits");
enum { NONE = -1, TEXT_MAX = 1 << 30 };

struct packer {
	struct tokenizer *tokenizer;
	struct encoder *encoder;
	struct token_writer *writer;
	enum token_type type;
	int32_t begin, end; /* NONE: none */
	struct buf text;    /* the pieces of a document */
};

static int put_ids(void *arg, const int32_t *ids, size_t n, struct err *e)
{
	enum { CHUNK = 4096 };
	struct packer *p = arg;
	if (p->type == TOKEN_I32)
		return data_token_writer_add(p->writer, ids, n, e);
	for (size_t at = 0; at < n; at += CHUNK) {
		uint16_t words[CHUNK];
		size_t part = n - at < CHUNK ? n - at : CHUNK;
		for (size_t i = 0; i < part; i++)
			words[i] = (uint16_t)ids[at + i];
		if (data_token_writer_add(p->writer, words, part, e))
			return -1;
	}
	return 0;
}

static int put_whole(struct packer *p, const char *text, size_t n, struct err *e)
{
	if (!n)
		return 0;
	if ((p->begin != NONE && put_ids(p, &p->begin, 1, e)) ||
	    text_encoder_encode(p->encoder, text, n, put_ids, p, e) ||
	    (p->end != NONE && put_ids(p, &p->end, 1, e)) || data_token_writer_end(p->writer, e))
		return -1;
	return 0;
}

/* Joins the pieces of a document. A document of one piece is used without copying. */
static int put_text(void *arg, const char *text, size_t n, bool last, struct err *e)
{
	struct packer *p = arg;
	if (!p->text.len && last)
		return put_whole(p, text, n, e);
	if (p->text.len + n > TEXT_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "a text larger than %d MiB out of a pipe or a compressed file; "
			       "unpack it into a file, or "
			       "divide it",
			       TEXT_MAX >> 20);
	buf_add(&p->text, text, n);
	if (buf_failed(&p->text))
		return err_set(e, ERR_NOMEM, "no memory for a text of %zu bytes", p->text.len + n);
	int rc = last ? put_whole(p, buf_str(&p->text), p->text.len, e) : 0;
	if (last)
		buf_clear(&p->text);
	return rc;
}

static int find_token(const struct packer *p, const struct pack_tokens_options *opt,
		      const char *option, const char *text, int32_t *out, struct err *e)
{
	*out = text ? tokenizer_id(p->tokenizer, text) : NONE;
	if (text && *out < 0)
		return err_set(e, ERR_USAGE,
			       "%s %s: %s has no such token; its added_tokens list those for this",
			       option, text, opt->tokenizer);
	return 0;
}

static int packer_open(struct packer *p, const char *prefix, const struct pack_tokens_options *opt,
		       struct err *e)
{
	if (tokenizer_open_named(opt->tokenizer, &p->tokenizer, e) ||
	    text_encoder_open(p->tokenizer, &p->encoder, e) ||
	    find_token(p, opt, "--begin", opt->begin, &p->begin, e) ||
	    find_token(p, opt, "--end", opt->end, &p->end, e))
		return -1;
	p->type = tokenizer_vocab(p->tokenizer) <= UINT16_MAX + 1 ? TOKEN_U16 : TOKEN_I32;
	return data_token_writer_open(prefix, p->type, &p->writer, e);
}

static void packer_close(struct packer *p)
{
	data_token_writer_close(p->writer);
	text_encoder_close(p->encoder);
	tokenizer_close(p->tokenizer);
	buf_fini(&p->text);
}

static int pack_all(struct packer *p, const char *prefix, char *const *files, int64_t n,
		    const struct document_options *opt, struct pack_report *out, struct err *e)
{
	struct document_options whole = *opt;
	const struct document_sink sink = { put_text, p };
	struct pack_report report = { 0 };
	whole.whole = true;
	for (int64_t i = 0; i < n; i++)
		if (data_documents_read(files[i], &whole, &sink, &report.read, e))
			return -1;
	report.tokens = data_token_writer_tokens(p->writer);
	report.unassigned = text_encoder_unassigned(p->encoder, report.note);
	if (!report.tokens)
		return err_set(e, ERR_USAGE,
			       "%s: the %" PRId64 " files hold no byte; nothing was packed", prefix,
			       n);
	if (data_token_writer_commit(p->writer, e))
		return -1;
	*out = report;
	return 0;
}

int tool_pack_tokens(const char *prefix, char *const *files, int64_t n,
		     const struct document_options *read, const struct pack_tokens_options *opt,
		     struct pack_report *out, enum token_type *type, struct err *e)
{
	struct packer p = { 0 };
	int rc = packer_open(&p, prefix, opt, e) || pack_all(&p, prefix, files, n, read, out, e)
			 ? -1
			 : 0;
	if (!rc)
		*type = p.type;
	packer_close(&p);
	return rc;
}
