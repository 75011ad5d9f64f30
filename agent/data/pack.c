#include "agent/data/pack.h"

#include "agent/data/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 18 };

static int copy_tokens(int fd, const char *file, unsigned char *chunk, struct token_writer *w, struct err *e)
{
	for (;;) {
		ssize_t got = read(fd, chunk, CHUNK);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_errno(e, ERR_IO, "%s: cannot read", file);
		if (got == 0)
			return token_writer_end(w, e);
		if (token_writer_add(w, chunk, (size_t)got, e))
			return -1;
	}
}

static int pack_file(const char *file, unsigned char *chunk, struct token_writer *w, struct err *e)
{
	struct stat st;
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open", file);
	int rc;
	if (fstat(fd, &st))
		rc = err_errno(e, ERR_IO, "%s: cannot stat", file);
	else if (S_ISDIR(st.st_mode))
		rc = err_set(e, ERR_USAGE, "%s: is a folder; name files, for instance with `find %s -type f | "
			     "muster data pack - -o PREFIX`", file, file);
	else
		rc = copy_tokens(fd, file, chunk, w, e);
	close(fd);
	return rc;
}

int pack_files(const char *prefix, char *const *files, int64_t n, struct pack_report *out, struct err *e)
{
	struct token_writer *w = NULL;
	unsigned char *chunk = malloc(CHUNK);
	int rc = -1;
	if (!chunk) {
		err_set(e, ERR_NOMEM, "%s: no memory to pack", prefix);
		goto done;
	}
	if (token_writer_open(prefix, TOKEN_U8, &w, e))
		goto done;
	for (int64_t i = 0; i < n; i++)
		if (pack_file(files[i], chunk, w, e))
			goto done;
	if (token_writer_tokens(w) == 0) {
		err_set(e, ERR_USAGE, "%s: the %lld files hold no byte; nothing was packed", prefix, (long long)n);
		goto done;
	}
	int64_t documents = token_writer_documents(w), tokens = token_writer_tokens(w);
	if (token_writer_commit(w, e))
		goto done;
	*out = (struct pack_report){ .files = n, .empty = n - documents, .tokens = tokens };
	rc = 0;
done:
	token_writer_close(w);
	free(chunk);
	return rc;
}
