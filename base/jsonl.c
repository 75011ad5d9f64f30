#include "base/jsonl.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHORTEN_MAX = 64 << 20, LOOK_MS = 5 };

/* Whoever may read a file may lock it, also for ever. */
static const double patience_s = 5;

/* Whether the last line of the file is incomplete. */
static bool is_torn(int fd)
{
	struct stat st;
	char last = '\n';
	return !fstat(fd, &st) && st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1 &&
	       last != '\n';
}

/* Whether the descriptor's file has still this path: jsonl_shorten() replaces files. */
static bool is_current(const char *path, int fd)
{
	struct stat here, there;
	return !fstat(fd, &here) && !stat(path, &there) && here.st_dev == there.st_dev &&
	       here.st_ino == there.st_ino;
}

/* Without locks on its file system, an append that is small enough is whole as a rule. */
static int lock_file(const char *path, int fd, struct err *e)
{
	double until = clock_s() + patience_s;
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return 0;
		if (clock_s() >= until)
			return err_set(e, ERR_TIMEOUT,
				       "%s: another process has held its lock for %.0f s; lslocks "
				       "shows which",
				       path, patience_s);
		poll(NULL, 0, LOOK_MS);
	}
	return 0;
}

/* Opens and locks the file. */
static int open_locked(const char *path, int flags, mode_t mode, struct err *e)
{
	enum { TRIES = 100 };
	for (int i = 0; i < TRIES; i++) {
		bool created = (flags & O_CREAT) && access(path, F_OK);
		int fd = file_open(path, O_RDWR | O_APPEND | flags, FILE_OWN, e);
		if (fd < 0)
			return -1;
		if (created && fchmod(fd, mode)) {
			err_errno(e, ERR_IO, "%s: cannot set its mode", path);
			close(fd);
			return -1;
		}
		int rc = lock_file(path, fd, e);
		if (!rc && is_current(path, fd))
			return fd;
		close(fd);
		if (rc)
			return -1;
	}
	return err_set(e, ERR_IO, "%s: the file is replaced again and again", path);
}

static int append_text(const char *path, const char *text, mode_t mode, struct err *e)
{
	struct buf line = BUF_INIT;
	int fd = open_locked(path, O_CREAT, mode, e), rc = 0;
	if (fd < 0)
		return -1;
	buf_printf(&line, "%s%s\n", is_torn(fd) ? "\n" : "", text);
	if (buf_failed(&line))
		rc = err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
	else if (file_write_full(fd, line.data, line.len) || fsync(fd))
		rc = err_errno(e, ERR_IO, "%s: cannot write", path);
	buf_fini(&line);
	close(fd);
	return rc;
}

int jsonl_append(const char *path, const json_t *line, mode_t mode, struct err *e)
{
	char *text = line ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	int rc = text ? append_text(path, text, mode, e)
		      : err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
	free(text);
	return rc;
}

int jsonl_parse(const char *text, size_t len, int (*each)(json_t *line, void *arg), void *arg)
{
	int rc = 0;
	while (!rc && len > 0) {
		const char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) : len;
		json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
		if (json_is_object(o))
			rc = each(o, arg);
		json_decref(o);
		n += end != NULL;
		text += n;
		len -= n;
	}
	return rc;
}

struct shortening {
	bool (*keep)(json_t *line, void *arg);
	void *arg;
	struct buf out;
};

static int keep_line(json_t *line, void *arg)
{
	struct shortening *s = arg;
	char *text = s->keep(line, s->arg) ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER)
					   : NULL;
	if (text)
		buf_printf(&s->out, "%s\n", text);
	free(text);
	return 0;
}

static int replace_by_kept(const char *path, const struct stat *st, struct shortening *s,
			   struct err *e)
{
	struct buf all = BUF_INIT;
	int rc = file_slurp_own(path, SHORTEN_MAX, &all, e);
	if (!rc)
		jsonl_parse(buf_str(&all), all.len, keep_line, s);
	if (!rc && buf_failed(&s->out))
		rc = err_set(e, ERR_NOMEM, "%s: no memory to shorten it", path);
	if (!rc)
		rc = file_replace(path, buf_str(&s->out), s->out.len, e);
	if (!rc && chmod(path, st->st_mode & 0777))
		rc = err_errno(e, ERR_IO, "%s: cannot set its mode", path);
	buf_fini(&all);
	return rc;
}

int jsonl_shorten(const char *path, size_t most, bool (*keep)(json_t *line, void *arg), void *arg,
		  struct err *e)
{
	struct shortening s = { .keep = keep, .arg = arg, .out = BUF_INIT };
	struct stat st;
	if (stat(path, &st) || st.st_size <= (off_t)most)
		return 0;
	int fd = open_locked(path, 0, 0, e);
	if (fd < 0)
		return -1;
	int rc = fstat(fd, &st) || st.st_size <= (off_t)most ? 0
							     : replace_by_kept(path, &st, &s, e);
	buf_fini(&s.out);
	close(fd);
	return rc;
}
