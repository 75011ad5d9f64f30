#include "agent/engine/ckpt/storage/io.h"

#include "agent/engine/ckpt/format/manifest.h"
#include "base/file.h"
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* On network file systems a signal can interrupt any call, which is then made again. */

static int create(const char *path)
{
	return (int)TEMP_FAILURE_RETRY(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

static int make(const char *path, mode_t mode)
{
	return (int)TEMP_FAILURE_RETRY(mkdir(path, mode));
}

static int sync_file(int fd)
{
	return (int)TEMP_FAILURE_RETRY(fsync(fd));
}

static int move(const char *from, const char *to)
{
	return (int)TEMP_FAILURE_RETRY(rename(from, to));
}

static int remove_file(const char *path)
{
	return (int)TEMP_FAILURE_RETRY(unlink(path));
}

static int remove_empty(const char *path)
{
	return (int)TEMP_FAILURE_RETRY(rmdir(path));
}

static int link_file(const char *from, const char *to)
{
	return (int)TEMP_FAILURE_RETRY(link(from, to));
}

static int allocate(int fd, int mode, off_t from, off_t bytes)
{
	return (int)TEMP_FAILURE_RETRY(fallocate(fd, mode, from, bytes));
}

static int truncate_file(int fd, off_t bytes)
{
	return (int)TEMP_FAILURE_RETRY(ftruncate(fd, bytes));
}

static int direct(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 ? -1 : fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
}

const struct ckpt_io ckpt_io_system = {
	.mkdir = make,
	.create = create,
	.write = write,
	.fsync = sync_file,
	.close = file_close,
	.rename = move,
	.unlink = remove_file,
	.rmdir = remove_empty,
	.link = link_file,
	.pwrite = pwrite,
	.direct = direct,
	.allocate = allocate,
	.truncate = truncate_file,
};

/* The user can fix a full disk or a file size limit at once, so the text explains how. */
int ckpt_io_fail(struct err *e, const char *path, const char *what)
{
	const char *remedy = process_write_remedy(errno);
	bool keep = errno == ENOSPC || errno == EDQUOT;
	err_errno(e, file_error_code(errno), "%s: cannot %s", path, what);
	if (e && *remedy) {
		size_t used = strlen(e->text);
		snprintf(e->text + used, sizeof e->text - used, "%s%s", remedy,
			 keep ? ", or lower checkpoint.keep" : "");
	}
	return -1;
}

int ckpt_io_write_full(const struct ckpt_io *io, int fd, const char *path, const void *data,
		       size_t n, struct err *e)
{
	const char *at = data;
	while (n) {
		ssize_t put = io->write(fd, at, n);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return ckpt_io_fail(e, path, "write");
		if (put == 0)
			return err_set(e, ERR_IO, "%s: cannot write: the system accepted no bytes",
				       path);
		at += put;
		n -= (size_t)put;
	}
	return 0;
}

int ckpt_io_finish(const struct ckpt_io *io, int fd, const char *path, struct err *e)
{
	int rc = 0;
	if (io->fsync(fd))
		rc = ckpt_io_fail(e, path, "sync");
	if (io->close(fd) && !rc)
		rc = ckpt_io_fail(e, path, "close");
	return rc;
}

int ckpt_io_write_file(const struct ckpt_io *io, const char *path, const void *data, size_t n,
		       struct err *e)
{
	int fd = io->create(path);
	if (fd < 0)
		return ckpt_io_fail(e, path, "create");
	if (ckpt_io_write_full(io, fd, path, data, n, e)) {
		io->close(fd);
		return -1;
	}
	return ckpt_io_finish(io, fd, path, e);
}

int ckpt_io_rename(const struct ckpt_io *io, const char *from, const char *to)
{
	struct stat st;
	if (!io->rename(from, to))
		return 0;
	int saved = errno;
	if (saved == ENOENT && lstat(from, &st) && !lstat(to, &st))
		return 0;
	errno = saved;
	return -1;
}

int ckpt_io_sync_dir(const struct ckpt_io *io, const char *path, struct err *e)
{
	int fd = (int)TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0)
		return err_errno(e, ERR_IO, "%s: cannot open the folder", path);
	return ckpt_io_finish(io, fd, path, e);
}

static int unlink_in(const struct ckpt_io *io, const char *folder, const char *name, struct err *e)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
		return err_set(e, ERR_IO, "%s: the path is too long", folder);
	if (io->unlink(path) && errno != ENOENT)
		return err_errno(e, ERR_IO, "%s: cannot remove", path);
	return 0;
}

int ckpt_io_remove_folder(const struct ckpt_io *io, const char *path, struct err *e)
{
	struct dirent *f;
	struct stat st;
	if (!lstat(path, &st) && !S_ISDIR(st.st_mode))
		return io->unlink(path) && errno != ENOENT
			       ? err_errno(e, ERR_IO, "%s: cannot remove", path)
			       : 0;
	if (unlink_in(io, path, MANIFEST_NAME, e))
		return -1;
	DIR *d = file_list_open(path);
	if (!d)
		return errno == ENOENT ? 0
				       : err_errno(e, ERR_IO, "%s: cannot open the folder", path);
	int rc = 0, more = 0;
	while (!rc && (more = file_list_next(d, &f)) > 0)
		rc = unlink_in(io, path, f->d_name, e);
	if (more < 0)
		rc = err_errno(e, ERR_IO, "%s: cannot list the folder", path);
	closedir(d);
	if (!rc && io->rmdir(path) && errno != ENOENT)
		rc = err_errno(e, ERR_IO, "%s: cannot remove the folder", path);
	return rc;
}
