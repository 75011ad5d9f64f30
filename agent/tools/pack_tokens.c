#include "agent/tools/pack_tokens.h"

#include "agent/data/tokens.h"
#include "agent/text/locate.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONE = -1, PIPE_MOST = 1 << 30 };

struct packer {
	struct tokenizer *tokenizer;
	struct encoder *encoder;
	struct token_writer *writer;
	enum token_type type;
	int32_t begin, end; /* NONE: none */
};

static int put_ids(void *arg, const int32_t *ids, size_t n, struct err *e)
{
	enum { CHUNK = 4096 };
	struct packer *p = arg;
	if (p->type == TOKEN_I32)
		return token_writer_add(p->writer, ids, n, e);
	for (size_t at = 0; at < n; at += CHUNK) {
		uint16_t narrow[CHUNK];
		size_t part = n - at < CHUNK ? n - at : CHUNK;
		for (size_t i = 0; i < part; i++)
			narrow[i] = (uint16_t)ids[at + i];
		if (token_writer_add(p->writer, narrow, part, e))
			return -1;
	}
	return 0;
}

/* An empty text is no document: its tokens would stand for nothing. */
static int put_document(struct packer *p, const char *file, const char *text, size_t n, struct err *e)
{
	if (!n)
		return 0;
	if ((p->begin != NONE && put_ids(p, &p->begin, 1, e)) ||
	    encoder_encode(p->encoder, text, n, put_ids, p, e) ||
	    (p->end != NONE && put_ids(p, &p->end, 1, e)) || token_writer_end(p->writer, e))
		return err_prefix(e, "%s", file);
	return 0;
}

static int pack_pipe(struct packer *p, const char *file, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = file_slurp(file, PIPE_MOST, &text, e);
	if (!rc)
		rc = put_document(p, file, buf_str(&text), text.len, e);
	buf_fini(&text);
	return rc;
}

static int pack_mapped(struct packer *p, const char *file, int fd, size_t n, struct err *e)
{
	void *text = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
	if (text == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "%s: cannot map %zu bytes", file, n);
	madvise(text, n, MADV_SEQUENTIAL);
	int rc = put_document(p, file, text, n, e);
	munmap(text, n);
	return rc;
}

static int pack_file(struct packer *p, const char *file, struct err *e)
{
	struct stat st;
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open", file);
	int rc = 0;
	if (fstat(fd, &st))
		rc = err_errno(e, ERR_IO, "%s: cannot stat", file);
	else if (S_ISDIR(st.st_mode))
		rc = err_set(e, ERR_USAGE, "%s: is a folder; name files, for instance with `find %s -type f | "
			     "muster data pack - -o PREFIX`", file, file);
	else if (!S_ISREG(st.st_mode) || !st.st_size)
		rc = pack_pipe(p, file, e); /* files under /proc have no size either */
	else
		rc = pack_mapped(p, file, fd, (size_t)st.st_size, e);
	close(fd);
	return rc;
}

static int find_token(const struct packer *p, const struct pack_tokens_options *opt, const char *option, const char *text,
		      int32_t *out, struct err *e)
{
	*out = text ? tokenizer_id(p->tokenizer, text) : NONE;
	if (text && *out < 0)
		return err_set(e, ERR_USAGE, "%s %s: %s has no such token; its added_tokens list those for this", option, text, opt->tokenizer);
	return 0;
}

static int packer_open(struct packer *p, const char *prefix, const struct pack_tokens_options *opt, struct err *e)
{
	if (tokenizer_open_named(opt->tokenizer, &p->tokenizer, e) || encoder_open(p->tokenizer, &p->encoder, e) ||
	    find_token(p, opt, "--begin", opt->begin, &p->begin, e) || find_token(p, opt, "--end", opt->end, &p->end, e))
		return -1;
	p->type = tokenizer_vocab(p->tokenizer) <= UINT16_MAX + 1 ? TOKEN_U16 : TOKEN_I32;
	return token_writer_open(prefix, p->type, &p->writer, e);
}

static void packer_close(struct packer *p)
{
	token_writer_close(p->writer);
	encoder_close(p->encoder);
	tokenizer_close(p->tokenizer);
}

static int pack_all(struct packer *p, const char *prefix, char *const *files, int64_t n, struct pack_report *out, struct err *e)
{
	for (int64_t i = 0; i < n; i++)
		if (pack_file(p, files[i], e))
			return -1;
	int64_t documents = token_writer_documents(p->writer), tokens = token_writer_tokens(p->writer);
	if (!tokens)
		return err_set(e, ERR_USAGE, "%s: the %" PRId64 " files hold no byte; nothing was packed", prefix, n);
	if (token_writer_commit(p->writer, e))
		return -1;
	*out = (struct pack_report){ .files = n, .empty = n - documents, .tokens = tokens };
	return 0;
}

int pack_tokens(const char *prefix, char *const *files, int64_t n, const struct pack_tokens_options *opt,
		struct pack_report *out, enum token_type *type, struct err *e)
{
	struct packer p = { 0 };
	int rc = packer_open(&p, prefix, opt, e) || pack_all(&p, prefix, files, n, out, e) ? -1 : 0;
	if (!rc)
		*type = p.type;
	packer_close(&p);
	return rc;
}
