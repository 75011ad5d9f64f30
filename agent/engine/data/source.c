#include "agent/engine/data/source.h"

#include "agent/engine/data/idx.h"
#include "agent/engine/data/llmc.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct file { /* A mapped file; all ranks of a node share its memory. */
	char path[PATH_MAX];
	int fd;
	size_t bytes;
	unsigned char *map; /* read-only; NULL if the file is empty */
};

struct source {
	struct file bin, index; /* index: used by Megatron's format only */
	bool megatron;
	struct idx idx;
	struct llmc llmc;
	enum token_type type;
	int64_t tokens;
	const unsigned char *at; /* the first token */
};

/* Sets the path; sets the other fields if the file can be opened. */
static int map_file(struct file *f, const char *prefix, const char *suffix, struct err *e)
{
	struct stat st;
	if (snprintf(f->path, sizeof f->path, "%s%s", prefix, suffix) >= (int)sizeof f->path)
		return err_set(e, ERR_USAGE, "%s: the path is too long; choose a shorter one",
			       prefix);
	/* Opening a pipe must not block. */
	f->fd = open(f->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (f->fd < 0)
		return err_errno(e, errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open",
				 f->path);
	if (fstat(f->fd, &st))
		return err_errno(e, ERR_IO, "%s: cannot stat", f->path);
	if (!S_ISREG(st.st_mode))
		return err_set(
			e, ERR_USAGE,
			"%s: is not a regular file; data.path is the prefix of .bin and .idx, "
			"or a file of llm.c",
			f->path);
	f->bytes = (size_t)st.st_size;
	if (!st.st_size)
		return 0;
	void *at = mmap(NULL, f->bytes, PROT_READ, MAP_SHARED, f->fd, 0);
	if (at == MAP_FAILED)
		return err_errno(e, ERR_NOMEM, "%s: cannot map %zu bytes", f->path, f->bytes);
	f->map = at;
	return 0;
}

static void unmap_file(struct file *f)
{
	if (f->map)
		munmap(f->map, f->bytes);
	if (f->fd >= 0)
		close(f->fd);
	*f = (struct file){ .fd = -1 };
}

/* If the file was truncated, an access to the mapped bytes after its end would kill the process. */
static int check_whole(const struct file *f, struct err *e)
{
	struct stat st;
	if (fstat(f->fd, &st) || (size_t)st.st_size < f->bytes)
		return err_set(
			e, ERR_CORRUPT,
			"%s: the file shrank while it was read; it must stay as it is during a run",
			f->path);
	return 0;
}

static int open_megatron(struct source *s, const char *path, struct err *e)
{
	if (data_idx_parse(s->index.map, s->index.bytes, s->index.path, &s->idx, e) ||
	    map_file(&s->bin, path, ".bin", e))
		return -1;
	int64_t want = s->idx.tokens * (int64_t)data_token_size(s->idx.type);
	if ((int64_t)s->bin.bytes != want)
		return err_set(e, ERR_CORRUPT,
			       "%s: %lld bytes, its index describes %lld: the file was truncated "
			       "or belongs "
			       "to another index; pack the data again",
			       s->bin.path, (long long)s->bin.bytes, (long long)want);
	s->megatron = true;
	s->type = s->idx.type;
	s->tokens = s->idx.tokens;
	s->at = s->bin.map;
	return 0;
}

static int open_llmc(struct source *s, struct err *e)
{
	if (data_llmc_parse(s->bin.map, s->bin.bytes, s->bin.path, &s->llmc, e))
		return -1;
	s->type = s->llmc.type;
	s->tokens = s->llmc.tokens;
	s->at = s->bin.map + LLMC_HEADER;
	return 0;
}

static bool is_file(const char *path)
{
	struct stat st;
	return !stat(path, &st) && S_ISREG(st.st_mode);
}

static int open_files(struct source *s, const char *path, struct err *e)
{
	struct err none = ERR_INIT;
	if (!map_file(&s->index, path, ".idx", &none))
		return open_megatron(s, path, e);
	if (none.code != ERR_NOTFOUND) {
		if (e)
			*e = none;
		return -1;
	}
	if (is_file(path))
		return map_file(&s->bin, path, "", e) || open_llmc(s, e) ? -1 : 0;
	if (!map_file(&s->bin, path, ".bin", NULL) && data_llmc_is(s->bin.map, s->bin.bytes))
		return open_llmc(s, e);
	return err_set(e, ERR_NOTFOUND,
		       "%s: no such file; data.path is the prefix of .bin and .idx, made by "
		       "`muster data pack "
		       "FILES -o %s`, or a file of llm.c",
		       s->index.path, path);
}

int data_source_open(const char *path, struct source **out, struct err *e)
{
	struct source *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "%s: no memory for a dataset", path);
	s->bin.fd = s->index.fd = -1;
	if (open_files(s, path, e)) {
		data_source_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

void data_source_close(struct source *s)
{
	if (!s)
		return;
	unmap_file(&s->bin);
	unmap_file(&s->index);
	free(s);
}

const char *data_source_file(const struct source *s)
{
	return s->bin.path;
}

const char *data_source_format(const struct source *s)
{
	return s->megatron ? "Megatron" : "llm.c";
}

const char *data_source_type(const struct source *s)
{
	return s->megatron ? data_token_word(s->type) : s->llmc.word;
}

int64_t data_source_tokens(const struct source *s)
{
	return s->tokens;
}

static int64_t token_at(const struct source *s, int64_t i)
{
	const unsigned char *at = s->at + (size_t)i * data_token_size(s->type);
	uint64_t v64;
	uint32_t v32;
	uint16_t v16;
	switch (s->type) {
	case TOKEN_U8:
		return *at;
	case TOKEN_I8:
		return (int8_t)*at;
	case TOKEN_U16:
		memcpy(&v16, at, sizeof v16);
		return le16toh(v16);
	case TOKEN_I16:
		memcpy(&v16, at, sizeof v16);
		return (int16_t)le16toh(v16);
	case TOKEN_I32:
		memcpy(&v32, at, sizeof v32);
		return (int32_t)le32toh(v32);
	case TOKEN_I64:
		memcpy(&v64, at, sizeof v64);
		return (int64_t)le64toh(v64);
	}
	return -1;
}

int data_source_documents(const struct source *s, int64_t *out, struct err *e)
{
	int64_t n = s->megatron ? s->idx.documents : s->tokens > 0;
	if (check_whole(&s->bin, e))
		return -1;
	for (int64_t i = 1; !s->megatron && i < s->tokens; i++)
		n += token_at(s, i) == s->llmc.begin;
	*out = n;
	return 0;
}

int data_source_read(const struct source *s, int64_t first, int64_t n, int64_t vocab,
		     int32_t *tokens, struct err *e)
{
	if (check_whole(&s->bin, e))
		return -1;
	for (int64_t i = 0; i < n; i++) {
		int64_t t = token_at(s, first + i);
		if (t < 0 || t >= vocab)
			return err_set(
				e, ERR_CORRUPT,
				"%s: token %lld at byte %lld is outside the vocabulary of %lld; "
				"set model.vocab to what the data was packed with",
				s->bin.path, (long long)t,
				(long long)(s->at - s->bin.map +
					    (first + i) * (int64_t)data_token_size(s->type)),
				(long long)vocab);
		tokens[i] = (int32_t)t;
	}
	return 0;
}

/* Returns the first document that begins after `token`, or `documents` if there is none. */
static int64_t document_after(const struct source *s, int64_t token)
{
	int64_t lo = 0, hi = s->idx.documents;
	while (lo < hi) {
		int64_t mid = lo + (hi - lo) / 2;
		if (data_idx_document(&s->idx, s->index.map, mid) > token)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* Sets the starts from the index. An empty document begins where the next one does. */
static void starts_listed(const struct source *s, int64_t first, int64_t n, int32_t *starts)
{
	int64_t document = document_after(s, first), begin = 0;
	int64_t next = document < s->idx.documents
			       ? data_idx_document(&s->idx, s->index.map, document)
			       : s->tokens;
	for (int64_t i = 0; i < n; i++) {
		while (first + i >= next && document < s->idx.documents) {
			begin = i;
			document++;
			next = document < s->idx.documents
				       ? data_idx_document(&s->idx, s->index.map, document)
				       : s->tokens;
		}
		starts[i] = (int32_t)begin;
	}
}

int data_source_starts(const struct source *s, int64_t first, int64_t n, int32_t *starts,
		       struct err *e)
{
	int64_t begin = 0;
	if (check_whole(s->megatron ? &s->index : &s->bin, e))
		return -1;
	if (s->megatron) {
		starts_listed(s, first, n, starts);
		return 0;
	}
	for (int64_t i = 0; i < n; i++) {
		if (token_at(s, first + i) == s->llmc.begin)
			begin = i;
		starts[i] = (int32_t)begin;
	}
	return 0;
}
