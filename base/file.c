#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* at < 0: from where the descriptor stands. */
static int read_full(int fd, char *to, size_t n, off_t at)
{
	while (n) {
		ssize_t got = at < 0 ? read(fd, to, n) : pread(fd, to, n, at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -1;
		if (got == 0) {
			errno = EPIPE;
			return -1;
		}
		to += got;
		n -= (size_t)got;
		if (at >= 0)
			at += got;
	}
	return 0;
}

int file_read_full(int fd, void *data, size_t n)
{
	return read_full(fd, data, n, -1);
}

int file_pread_full(int fd, void *data, size_t n, off_t at)
{
	if (at >= 0)
		return read_full(fd, data, n, at);
	errno = EINVAL;
	return -1;
}

int file_write_full(int fd, const void *data, size_t n)
{
	const char *at = data;
	while (n) {
		ssize_t put = write(fd, at, n);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -1;
		at += put;
		n -= (size_t)put;
	}
	return 0;
}

int file_slurp(const char *path, size_t most, struct buf *out, struct err *e)
{
	/* Not to wait for somebody who writes into a pipe; once there is one, reads wait for what is written. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return err_errno(e, errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s: cannot open", path);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	int rc = -1;
	size_t before = out->len;
	for (size_t total = 0;;) {
		char *to = buf_room(out, 65536);
		if (!to) {
			err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
			break;
		}
		ssize_t got = read(fd, to, 65536);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			err_errno(e, ERR_IO, "%s: cannot read", path);
			break;
		}
		out->len += (size_t)got;
		out->data[out->len] = '\0';
		total += (size_t)got;
		if (total > most) {
			err_set(e, ERR_CORRUPT, "%s: larger than the %zu bytes such a file may have", path, most);
			break;
		}
		if (got == 0) {
			rc = 0;
			break;
		}
	}
	if (rc && out->data)
		out->data[out->len = before] = '\0';
	close(fd);
	return rc;
}

int file_sync_dir(const char *path, struct err *e)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, ERR_IO, "%s: cannot open the folder", path);
	int rc = fsync(fd);
	if (rc)
		err_errno(e, ERR_IO, "%s: cannot sync the folder", path);
	close(fd);
	return rc;
}

static int sync_parent(const char *path, struct err *e)
{
	char dir[PATH_MAX];
	snprintf(dir, sizeof dir, "%s", path);
	char *slash = strrchr(dir, '/');
	if (!slash)
		return file_sync_dir(".", e);
	slash[slash == dir] = '\0';
	return file_sync_dir(dir, e);
}

int file_replace(const char *path, const void *data, size_t n, struct err *e)
{
	char tmp[PATH_MAX];
	struct stat st;
	if (!*path)
		return err_set(e, ERR_IO, "the name of the file to write is empty; name one");
	if (!stat(path, &st) && !S_ISREG(st.st_mode))
		return err_set(e, ERR_IO, "%s: it is a %s, which a file would take the place of; name a file", path,
			       S_ISDIR(st.st_mode) ? "folder" : "device or pipe");
	int len = snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, (long)getpid());
	if (len >= (int)sizeof tmp)
		return err_set(e, ERR_IO, "%s: the path is too long; choose a shorter one", path);
	unlink(tmp); /* a dead process' of the same number; or a link that somebody laid for us to write through */
	int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(e, ERR_IO, "%s: cannot create", tmp);
	int bad = file_write_full(fd, data, n) || fsync(fd);
	if (bad)
		err_errno(e, ERR_IO, "%s: cannot write", tmp);
	if (close(fd) && !bad)
		bad = err_errno(e, ERR_IO, "%s: cannot close", tmp);
	if (!bad && rename(tmp, path))
		bad = err_errno(e, ERR_IO, "%s: cannot rename to %s", tmp, path);
	if (bad) {
		unlink(tmp);
		return -1;
	}
	return sync_parent(path, e);
}

int file_make_dirs(const char *path, struct err *e)
{
	char dir[PATH_MAX];
	struct stat st;
	if (snprintf(dir, sizeof dir, "%s", path) >= (int)sizeof dir)
		return err_set(e, ERR_IO, "%s: the path is too long; choose a shorter one", path);
	for (char *at = dir; *at;) {
		at += 1 + strcspn(at + 1, "/");
		char was = *at;
		*at = '\0';
		if (mkdir(dir, 0700) && errno != EEXIST)
			return err_errno(e, ERR_IO, "%s: cannot make the folder", dir);
		*at = was;
	}
	if (stat(path, &st) < 0)
		return err_errno(e, ERR_IO, "%s: cannot make the folder", path);
	return S_ISDIR(st.st_mode) ? 0 : err_set(e, ERR_IO, "%s: is no folder; move it out of the way", path);
}
