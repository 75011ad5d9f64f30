#include "agent/engine/data/pack_stream.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IN_BYTES = 1 << 17 };

struct stream {
	const struct stream_container *container; /* NULL: the bytes are passed on as they are */
	void *state;
	const char *file; /* borrowed */
	int fd;
	off_t size; /* of a regular file; otherwise 0 */
	struct stream_in in;
	long long taken; /* bytes that were read from the file */
	size_t head, head_at;
	char first[STREAM_HEAD], bytes[IN_BYTES];
};

static const struct stream_container *const containers[] = { &data_stream_gzip, &data_stream_zstd };

static const struct stream_container *container_of(const unsigned char *head, size_t n)
{
	for (size_t i = 0; i < sizeof containers / sizeof *containers; i++)
		if (containers[i]->is(head, n))
			return containers[i];
	return NULL;
}

static int read_some(struct stream *s, char *to, size_t most, size_t *got, struct err *e)
{
	ssize_t n;
	do
		n = read(s->fd, to, most);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_errno(e, ERR_IO, "%s: cannot read", s->file);
	*got = (size_t)n;
	s->taken += n;
	return 0;
}

const char *data_stream_file(const struct stream *s)
{
	return s->file;
}

struct stream_in *data_stream_in(struct stream *s)
{
	return &s->in;
}

int data_stream_fill(struct stream *s, struct err *e)
{
	if (s->in.n || s->in.end)
		return 0;
	s->in.at = s->bytes;
	if (read_some(s, s->bytes, IN_BYTES, &s->in.n, e))
		return -1;
	s->in.end = s->in.n == 0;
	return 0;
}

int data_stream_cut(const struct stream *s, struct err *e)
{
	return err_set(
		e, ERR_CORRUPT,
		"%s: the %s file ends too early, at byte %lld: it was truncated; copy or download "
		"it again",
		s->file, s->container->word, s->taken);
}

int data_stream_damaged(const struct stream *s, const char *why, struct err *e)
{
	return err_set(e, ERR_CORRUPT,
		       "%s: not sound %s before byte %lld: %s; the file was changed or has other "
		       "bytes behind its end; "
		       "copy or download it again",
		       s->file, s->container->word, s->taken, why);
}

int data_stream_read(struct stream *s, char *to, size_t most, size_t *got, struct err *e)
{
	*got = 0;
	if (s->head_at < s->head) {
		*got = s->head - s->head_at < most ? s->head - s->head_at : most;
		memcpy(to, s->first + s->head_at, *got);
		s->head_at += *got;
		return 0;
	}
	if (s->container)
		return s->container->read(s->state, s, to, most, got, e);
	if (s->in.n) { /* bytes that were read to recognize the file */
		*got = s->in.n < most ? s->in.n : most;
		memcpy(to, s->in.at, *got);
		s->in.at += *got;
		s->in.n -= *got;
		return 0;
	}
	return s->in.end ? 0 : read_some(s, to, most, got, e);
}

static int open_file(struct stream *s, const char *file, struct err *e)
{
	struct stat st;
	if (!stat(file, &st) && S_ISDIR(st.st_mode))
		return err_set(e, ERR_USAGE,
			       "%s: is a folder; name files, for instance with `find %s -type f | "
			       "muster data pack - -o PREFIX`",
			       file, file);
	s->fd = file_open(file, O_RDONLY, FILE_TEXT, e);
	if (s->fd < 0)
		return -1;
	if (fstat(s->fd, &st))
		return err_errno(e, ERR_IO, "%s: cannot stat", file);
	s->size = S_ISREG(st.st_mode) ? st.st_size : 0;
	return 0;
}

/* Reads until the first bytes are complete, because a pipe may return them in several pieces. */
static int read_magic(struct stream *s, struct err *e)
{
	enum { MAGIC = 16 };
	s->in.at = s->bytes;
	while (s->in.n < MAGIC && !s->in.end) {
		size_t got;
		if (read_some(s, s->bytes + s->in.n, IN_BYTES - s->in.n, &got, e))
			return -1;
		s->in.n += got;
		s->in.end = got == 0;
	}
	return 0;
}

static int read_head(struct stream *s, struct err *e)
{
	size_t n = 0;
	for (size_t got = 1; n < STREAM_HEAD && got; n += got)
		if (data_stream_read(s, s->first + n, STREAM_HEAD - n, &got, e))
			return -1;
	s->head = n;
	return 0;
}

int data_stream_open(const char *file, bool raw, struct stream **out, struct err *e)
{
	struct stream *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", file);
	s->file = file;
	s->fd = -1;
	if (open_file(s, file, e) || read_magic(s, e))
		goto fail;
	s->container = raw ? NULL : container_of((const unsigned char *)s->bytes, s->in.n);
	if (s->container && !(s->state = s->container->open())) {
		err_set(e, ERR_NOMEM, "%s: no memory to unpack it", file);
		goto fail;
	}
	if (read_head(s, e))
		goto fail;
	*out = s;
	return 0;
fail:
	data_stream_close(s);
	return -1;
}

void data_stream_close(struct stream *s)
{
	if (!s)
		return;
	if (s->state)
		s->container->close(s->state);
	if (s->fd >= 0)
		close(s->fd);
	free(s);
}

const char *data_stream_head(const struct stream *s, size_t *n)
{
	*n = s->head;
	return s->first;
}

const char *data_stream_packed(const struct stream *s)
{
	return s->container ? s->container->word : NULL;
}

size_t data_stream_plain(const struct stream *s, int *fd)
{
	*fd = s->fd;
	return s->container ? 0 : (size_t)s->size;
}
