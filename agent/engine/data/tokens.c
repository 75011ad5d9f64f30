#include "agent/engine/data/tokens.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct token_writer {
	char bin[PATH_MAX], idx[PATH_MAX], bin_tmp[PATH_MAX], dir[PATH_MAX];
	enum token_type type;
	int fd;
	struct buf lengths; /* int32 per sequence */
	struct buf bounds;  /* int64 per document, after a leading 0 */
	int64_t tokens;
	int64_t open_tokens; /* tokens of the current sequence */
};

static int64_t sequences(const struct token_writer *w)
{
	return (int64_t)(w->lengths.len / sizeof(int32_t));
}

static int set_paths(struct token_writer *w, const char *prefix, struct err *e)
{
	long pid = (long)getpid();
	int n = snprintf(w->bin_tmp, PATH_MAX, "%s.bin.tmp.%ld", prefix, pid);
	if (n >= PATH_MAX)
		return err_set(e, ERR_USAGE, "%s: the path is too long; choose a shorter one",
			       prefix);
	snprintf(w->bin, PATH_MAX, "%s.bin", prefix);
	snprintf(w->idx, PATH_MAX, "%s.idx", prefix);
	snprintf(w->dir, PATH_MAX, "%s", prefix);
	char *slash = strrchr(w->dir, '/');
	if (!slash)
		strcpy(w->dir, ".");
	else
		slash[slash == w->dir] = '\0';
	return 0;
}

int data_token_writer_open(const char *prefix, enum token_type type, struct token_writer **out,
			   struct err *e)
{
	int64_t first = 0;
	struct token_writer *w = calloc(1, sizeof *w);
	if (!w)
		return err_set(e, ERR_NOMEM, "%s: no memory for a writer", prefix);
	w->type = type;
	w->fd = -1;
	if (set_paths(w, prefix, e))
		goto fail;
	/* The name can be guessed. If other users may write to the folder, one of them could have
	 * put a link there. */
	unlink(w->bin_tmp);
	w->fd = open(w->bin_tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (w->fd < 0) {
		err_errno(e, ERR_IO,
			  "%s: cannot create; -o needs a folder that exists and may be written to",
			  w->bin_tmp);
		goto fail;
	}
	buf_add(&w->bounds, &first, sizeof first);
	if (buf_failed(&w->bounds)) {
		err_set(e, ERR_NOMEM, "%s: no memory for the index", w->idx);
		goto fail;
	}
	*out = w;
	return 0;
fail:
	data_token_writer_close(w);
	return -1;
}

void data_token_writer_close(struct token_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0) {
		close(w->fd);
		unlink(w->bin_tmp);
	}
	buf_fini(&w->lengths);
	buf_fini(&w->bounds);
	free(w);
}

static void end_sequence(struct token_writer *w)
{
	int32_t length = (int32_t)w->open_tokens;
	if (length)
		buf_add(&w->lengths, &length, sizeof length);
	w->open_tokens = 0;
}

int data_token_writer_add(struct token_writer *w, const void *tokens, size_t count, struct err *e)
{
	if (file_write_full(w->fd, tokens, count * data_token_size(w->type)))
		return err_errno(e, ERR_IO, "%s: cannot write", w->bin_tmp);
	w->tokens += (int64_t)count;
	while (count) {
		size_t room = (size_t)(INT32_MAX - w->open_tokens),
		       part = count < room ? count : room;
		w->open_tokens += (int64_t)part;
		count -= part;
		if (w->open_tokens == INT32_MAX)
			end_sequence(w);
	}
	return 0;
}

int data_token_writer_end(struct token_writer *w, struct err *e)
{
	end_sequence(w);
	if (buf_failed(&w->lengths))
		return err_set(e, ERR_NOMEM, "%s: no memory for the index", w->idx);
	int64_t end = sequences(w), last;
	memcpy(&last, w->bounds.data + w->bounds.len - sizeof last, sizeof last);
	if (end > last)
		buf_add(&w->bounds, &end, sizeof end);
	if (buf_failed(&w->bounds))
		return err_set(e, ERR_NOMEM, "%s: no memory for the index", w->idx);
	return 0;
}

int64_t data_token_writer_tokens(const struct token_writer *w)
{
	return w->tokens;
}

int64_t data_token_writer_documents(const struct token_writer *w)
{
	return (int64_t)(w->bounds.len / sizeof(int64_t)) - 1;
}

static int write_idx(struct token_writer *w, struct err *e)
{
	struct buf text = BUF_INIT;
	data_idx_write(w->type, (const int32_t *)(const void *)w->lengths.data, sequences(w),
		       (const int64_t *)(const void *)w->bounds.data,
		       data_token_writer_documents(w), &text);
	int rc = -1;
	if (buf_failed(&text))
		err_set(e, ERR_NOMEM, "%s: no memory for the index", w->idx);
	else
		rc = file_replace(w->idx, text.data, text.len, e);
	buf_fini(&text);
	return rc;
}

int data_token_writer_commit(struct token_writer *w, struct err *e)
{
	if (fsync(w->fd))
		return err_errno(e, ERR_IO, "%s: cannot sync", w->bin_tmp);
	if (unlink(w->idx) && errno != ENOENT)
		return err_errno(e, ERR_IO, "%s: cannot take the old index away", w->idx);
	if (rename(w->bin_tmp, w->bin))
		return err_errno(e, ERR_IO, "%s: cannot rename to %s", w->bin_tmp, w->bin);
	int rc = close(w->fd);
	w->fd = -1;
	if (rc)
		return err_errno(e, ERR_IO, "%s: cannot close", w->bin);
	if (file_sync_dir(w->dir, e))
		return -1;
	return write_idx(w, e);
}
