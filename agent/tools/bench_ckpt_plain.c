/* bench_ckpt: plain files, as dd writes and reads them. */
#include "agent/tools/bench_ckpt.h"
#include "base/numbers.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static bool refuses(bool direct)
{
	return direct && errno == EINVAL;
}

static int write_all(int fd, const char *data, int64_t n)
{
	for (int64_t at = 0; at < n;) {
		ssize_t put = write(fd, data + at, (size_t)min_int64(BENCH_CKPT_PIECE, n - at));
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return -1;
		at += put;
	}
	return fsync(fd);
}

static int read_all(int fd, char *data, int64_t n)
{
	for (int64_t at = 0; at < n;) {
		ssize_t got = read(fd, data + at, (size_t)min_int64(BENCH_CKPT_PIECE, n - at));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return -1;
		at += got;
	}
	return 0;
}

int bench_ckpt_plain_write(const char *path, bool direct, const char *data, int64_t n,
			   struct err *e)
{
	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | (direct ? O_DIRECT : 0),
		      0600);
	if (fd < 0)
		return refuses(direct) ? 1 : err_errno(e, ERR_IO, "%s: cannot create it", path);
	int rc = write_all(fd, data, n);
	if (rc)
		rc = refuses(direct) ? 1 : err_errno(e, ERR_IO, "%s: cannot write", path);
	close(fd);
	return rc;
}

int bench_ckpt_plain_read(const char *path, bool direct, char *data, int64_t n, struct err *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
	if (fd < 0)
		return refuses(direct) ? 1 : err_errno(e, ERR_IO, "%s: cannot open it", path);
	int rc = read_all(fd, data, n);
	if (rc)
		rc = refuses(direct) ? 1 : err_errno(e, ERR_IO, "%s: cannot read", path);
	close(fd);
	return rc;
}

void bench_ckpt_plain_drop(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}
