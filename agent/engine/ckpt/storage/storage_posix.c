/* The POSIX storage: a DIR and its entries are folders, and `commit` renames the attempt. */
#include "agent/engine/ckpt/storage/storage.h"

#include "agent/engine/ckpt/storage/behind.h"
#include "agent/engine/ckpt/format/manifest.h"
#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct posix_file {
	struct ckpt_file file;
	int fd;                     /* of a file that is read */
	struct ckpt_behind *writes; /* NULL: the file is read */
	char path[];
};

static const struct ckpt_io *io_of(const struct ckpt_storage *s)
{
	return s->arg;
}

/* --- reading ------------------------------------------------------------------- */

static int posix_list(const struct ckpt_storage *s, const char *path, ckpt_storage_visit *visit,
		      void *arg, struct err *e)
{
	struct dirent *f;
	int rc = 0, more = 0;
	(void)s;
	DIR *d = file_list_open(path);
	if (!d)
		return err_errno(e, errno == ENOENT ? ERR_NOTFOUND : ERR_IO,
				 "%s: cannot open the folder", path);
	while (!rc && (more = file_list_next(d, &f)) > 0)
		rc = visit(arg, f->d_name, e);
	if (more < 0) /* a list with a gap would pass for a run without its last checkpoint */
		rc = err_errno(e, ERR_IO, "%s: cannot list the folder", path);
	closedir(d);
	return rc;
}

static int posix_size(const struct ckpt_storage *s, const char *path, int64_t *size, struct err *e)
{
	struct stat st;
	(void)s;
	if (lstat(path, &st))
		return err_errno(e, errno == ENOENT ? ERR_NOTFOUND : ERR_IO,
				 "%s: cannot look at it", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_CORRUPT,
			       "%s: is %s, but a checkpoint holds regular files only; copy the "
			       "file itself there",
			       path,
			       S_ISLNK(st.st_mode) ? "a symbolic link" : "not a regular file");
	*size = st.st_size;
	return 0;
}

static int new_file(const struct ckpt_storage *s, const char *path, int fd, int64_t size,
		    struct ckpt_file **out, struct err *e)
{
	size_t n = strlen(path) + 1;
	struct posix_file *f = malloc(sizeof *f + n);
	if (!f)
		return err_set(e, ERR_NOMEM, "%s: no memory to open it", path);
	f->file = (struct ckpt_file){ s, size };
	f->fd = fd;
	f->writes = NULL;
	memcpy(f->path, path, n);
	*out = &f->file;
	return 0;
}

static int posix_open(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
		      struct err *e)
{
	struct stat st;
	int fd = file_open(path, O_RDONLY, FILE_OWN, e);
	if (fd < 0)
		return -1;
	int rc = fstat(fd, &st) ? err_errno(e, ERR_IO, "%s: cannot look at it", path)
				: new_file(s, path, fd, st.st_size, out, e);
	if (rc)
		close(fd);
	return rc;
}

static int posix_read(struct ckpt_file *file, int64_t at, void *data, size_t n, struct err *e)
{
	struct posix_file *f = (struct posix_file *)file;
	return file_pread_full(f->fd, data, n, at)
		       ? err_errno(e, ERR_IO, "%s: cannot read", f->path)
		       : 0;
}

/* --- writing ------------------------------------------------------------------- */

static int posix_prepare(const struct ckpt_storage *s, const char *dir, struct err *e)
{
	(void)s;
	if (file_make_dirs(dir, e))
		return -1;
	if (access(dir, R_OK | W_OK | X_OK))
		return err_errno(e, file_error_code(errno),
				 "%s: checkpoints cannot be written here; correct its owner and "
				 "permissions, or set checkpoint.dir to another folder",
				 dir);
	return 0;
}

/* Makes a DIR again that was deleted while the job runs, but not the folders above it: they may
 * belong to a file system that is no longer mounted. */
static int make_dir_again(const struct ckpt_io *io, const char *attempt)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(attempt, '/');
	snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - attempt) : 0, attempt);
	if (io->mkdir(dir, 0700))
		return -1;
	log_warn("%s: the folder was deleted, with the checkpoints in it; it is made again", dir);
	return 0;
}

static int posix_begin(const struct ckpt_storage *s, const char *attempt, bool create,
		       struct err *e)
{
	const struct ckpt_io *io = io_of(s);
	int rc = io->mkdir(attempt, 0700);
	if (rc && create && errno == ENOENT && !make_dir_again(io, attempt))
		rc = io->mkdir(attempt, 0700);
	if (rc && (create || errno != EEXIST))
		return ckpt_io_fail(e, attempt, "make the folder");
	return 0;
}

static int posix_create(const struct ckpt_storage *s, const char *path, struct ckpt_file **out,
			struct err *e)
{
	int fd = io_of(s)->create(path);
	if (fd < 0)
		return ckpt_io_fail(e, path, "create");
	if (new_file(s, path, -1, 0, out, e)) {
		io_of(s)->close(fd);
		return -1;
	}
	if (ckpt_behind_open(io_of(s), fd, path, &((struct posix_file *)*out)->writes, e)) {
		free(*out);
		return -1;
	}
	return 0;
}

static int posix_write(struct ckpt_file *file, const void *data, size_t n, struct err *e)
{
	return ckpt_behind_write(((struct posix_file *)file)->writes, data, n, e);
}

static int posix_finish(struct ckpt_file *file, struct err *e)
{
	struct posix_file *f = (struct posix_file *)file;
	int rc = ckpt_behind_finish(f->writes, e);
	free(f);
	return rc;
}

static void posix_close(struct ckpt_file *file)
{
	struct posix_file *f = (struct posix_file *)file;
	if (f->writes)
		ckpt_behind_abandon(f->writes);
	else
		close(f->fd);
	free(f);
}

static int posix_stamp(const struct ckpt_storage *s, const char *path, struct ckpt_stamp *out,
		       struct err *e)
{
	struct stat st;
	(void)s;
	if (lstat(path, &st))
		return err_errno(e, ERR_IO, "%s: cannot look at it", path);
	*out = (struct ckpt_stamp){ .device = st.st_dev,
				    .inode = st.st_ino,
				    .size = st.st_size,
				    .seconds = st.st_mtim.tv_sec,
				    .nanoseconds = st.st_mtim.tv_nsec };
	return 0;
}

/* The stamp is that of the new name: nobody can exchange that file. */
static int posix_link(const struct ckpt_storage *s, const char *from, const char *to,
		      const struct ckpt_stamp *stamp, struct err *e)
{
	struct ckpt_stamp now = { 0 };
	if (io_of(s)->link(from, to))
		return ckpt_io_fail(e, to, "link");
	if (posix_stamp(s, to, &now, e))
		return -1;
	return now.device == stamp->device && now.inode == stamp->inode &&
			       now.size == stamp->size && now.seconds == stamp->seconds &&
			       now.nanoseconds == stamp->nanoseconds
		       ? 0
		       : err_set(e, ERR_STALE, "%s: the file has changed since it was written",
				 from);
}

static int posix_discard(const struct ckpt_storage *s, const char *path, struct err *e)
{
	if (io_of(s)->unlink(path) && errno != ENOENT)
		return ckpt_io_fail(e, path, "remove");
	return 0;
}

static int posix_settle(const struct ckpt_storage *s, const char *path, struct err *e)
{
	int fd = file_open(path, O_RDONLY, FILE_OWN, e);
	return fd < 0 ? -1 : ckpt_io_finish(io_of(s), fd, path, e);
}

static int posix_sync(const struct ckpt_storage *s, const char *attempt, struct err *e)
{
	return ckpt_io_sync_dir(io_of(s), attempt, e);
}

/* Writes the manifest under a temporary name first, so that MANIFEST.json is complete or does not
 * exist. */
static int write_manifest(const struct ckpt_io *io, const char *attempt, const void *text, size_t n,
			  struct err *e)
{
	char path[PATH_MAX], tmp[PATH_MAX];
	if (ckpt_storage_join(path, sizeof path, attempt, MANIFEST_NAME, e) ||
	    ckpt_storage_join(tmp, sizeof tmp, attempt, MANIFEST_NAME ".tmp", e))
		return -1;
	/* Left by a copy that died here, and is continued (copy.h). */
	if (!access(tmp, F_OK) && io->unlink(tmp))
		return ckpt_io_fail(e, tmp, "remove");
	if (ckpt_io_write_file(io, tmp, text, n, e))
		return -1;
	if (ckpt_io_rename(io, tmp, path))
		return err_errno(e, file_error_code(errno), "%s: cannot rename to %s", tmp, path);
	return ckpt_io_sync_dir(io, attempt, e);
}

static int posix_commit(const struct ckpt_storage *s, const char *attempt, const char *path,
			const char *aside, const void *manifest, size_t n, struct err *e)
{
	const struct ckpt_io *io = io_of(s);
	char dir[PATH_MAX];
	if (write_manifest(io, attempt, manifest, n, e))
		return -1;
	int rc = ckpt_io_rename(io, attempt, path);
	if (rc && (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)) {
		if (ckpt_io_rename(io, path, aside))
			return err_errno(e, file_error_code(errno), "%s: cannot rename to %s", path,
					 aside);
		rc = ckpt_io_rename(io, attempt, path);
		if (rc) {
			err_errno(e, ERR_IO, "%s: cannot rename to %s", attempt, path);
			ckpt_io_rename(io, aside, path);
			return -1;
		}
	}
	if (rc)
		return err_errno(e, file_error_code(errno), "%s: cannot rename to %s", attempt,
				 path);
	snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
	return ckpt_io_sync_dir(io, dir, e);
}

/* --- entries and small files --------------------------------------------------- */

static int posix_put(const struct ckpt_storage *s, const char *path, const void *data, size_t n,
		     struct err *e)
{
	(void)s;
	return file_replace(path, data, n, e);
}

/* Where the entry is renamed to before it is removed, as an attempt whose writer is dead. False: it is an
 * attempt already. */
static bool name_aside(const char *path, char out[PATH_MAX])
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	return strncmp(name, ATTEMPT_PREFIX, strlen(ATTEMPT_PREFIX)) != 0 &&
	       snprintf(out, PATH_MAX, "%.*s" ATTEMPT_PREFIX "removed-%s", (int)(name - path), path,
			name) < PATH_MAX;
}

/* A removal that is interrupted leaves no entry that looks damaged, but an attempt, which the next commit
 * removes. */
static int posix_remove(const struct ckpt_storage *s, const char *path, struct err *e)
{
	const struct ckpt_io *io = io_of(s);
	char aside[PATH_MAX];
	if (!name_aside(path, aside))
		return ckpt_io_remove_folder(io, path, e);
	if (io->rename(path, aside) && errno != ENOENT &&
	    (ckpt_io_remove_folder(io, aside, e) || (io->rename(path, aside) && errno != ENOENT)))
		return err_errno(e, ERR_IO, "%s: cannot remove: it cannot be renamed to %s", path,
				 aside);
	return ckpt_io_remove_folder(io, aside, e);
}

static int posix_rename(const struct ckpt_storage *s, const char *path, const char *to,
			struct err *e)
{
	if (!io_of(s)->rename(path, to))
		return 0;
	if (errno == ENOTEMPTY || errno == EEXIST)
		return 1;
	return err_errno(e, file_error_code(errno), "%s: cannot rename to %s", path, to);
}

/* Paths are also the same if they differ in symbolic links or "..". */
static bool posix_same(const struct ckpt_storage *s, const char *a, const char *b)
{
	struct stat x, y;
	(void)s;
	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static const struct ckpt_storage_ops posix_ops = {
	.name = "posix",
	.scheme = "",
	.list = posix_list,
	.size = posix_size,
	.open = posix_open,
	.read = posix_read,
	.prepare = posix_prepare,
	.begin = posix_begin,
	.create = posix_create,
	.write = posix_write,
	.finish = posix_finish,
	.close = posix_close,
	.link = posix_link,
	.stamp = posix_stamp,
	.discard = posix_discard,
	.settle = posix_settle,
	.sync = posix_sync,
	.commit = posix_commit,
	.put = posix_put,
	.remove = posix_remove,
	.rename = posix_rename,
	.same = posix_same,
};

const struct ckpt_storage ckpt_storage_posix = { &posix_ops, &ckpt_io_system };
