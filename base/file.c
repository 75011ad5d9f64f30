#include "base/file.h"

#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* at < 0: reads from the current file position. */
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

static const char *word_of(mode_t mode)
{
	static const struct {
		mode_t type;
		const char *word;
	} types[] = {
		{ S_IFLNK, "symbolic link" }, { S_IFDIR, "folder" }, { S_IFIFO, "pipe (FIFO)" },
		{ S_IFSOCK, "socket" },       { S_IFCHR, "device" }, { S_IFBLK, "device" },
	};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if ((mode & S_IFMT) == types[i].type)
			return types[i].word;
	return "file of an unknown type";
}

static int refuse(const char *path, const struct stat *st, enum file_kind kind, struct err *e)
{
	const char *is = word_of(st->st_mode);
	if (kind == FILE_OWN)
		return err_set(
			e, ERR_CORRUPT,
			"%s: is a %s, and muster's own files are regular files; move it away", path,
			is);
	return err_set(e, ERR_USAGE, "%s: is a %s; name a %s", path, is,
		       kind == FILE_REGULAR ? "regular file" : "file");
}

/* fd < 0: the file is not open yet; whether a device is a terminal is checked after it is
 * opened. */
static bool may_be(int fd, const struct stat *st, enum file_kind kind)
{
	if (S_ISREG(st->st_mode) || (kind == FILE_TEXT && S_ISFIFO(st->st_mode)))
		return true;
	if (kind != FILE_TEXT || !S_ISCHR(st->st_mode))
		return false;
	/* /dev/null has device number 1:3 (Documentation/admin-guide/devices.txt in the kernel) */
	return fd < 0 || isatty(fd) || st->st_rdev == makedev(1, 3);
}

/* clang-format off */

static const struct known_error {
	int error;
	enum err_code code;
	const char *remedy;
} known_errors[] = {
	{ ENOENT, ERR_NOTFOUND, "" },
	{ EACCES, ERR_DENIED, "; check its permissions and those of its folder (ls -ld)" },
	{ EPERM, ERR_DENIED, "; check its attributes and those of its folder (lsattr)" },
	{ EROFS, ERR_DENIED, "; choose a writable folder" },
	{ ENOSPC, ERR_FULL, "" },
	{ EDQUOT, ERR_FULL, "" },
	{ EFBIG, ERR_FULL, "" },
	{ ENOMEM, ERR_NOMEM, "" },
	{ EMFILE, ERR_NOMEM, "" },
	{ ENFILE, ERR_NOMEM, "" },
};

/* clang-format on */

static const struct known_error *look_up_error(int error)
{
	static const struct known_error other = { 0, ERR_IO, "" };
	for (size_t i = 0; i < sizeof known_errors / sizeof *known_errors; i++)
		if (known_errors[i].error == error)
			return &known_errors[i];
	return &other;
}

enum err_code file_error_code(int error)
{
	return look_up_error(error)->code;
}

static int cannot_open(const char *path, struct err *e)
{
	const struct known_error *known = look_up_error(errno);
	char text[128];
	return err_set(e, known->code, "%s: cannot open: %s%s", path,
		       strerror_r(errno, text, sizeof text), known->remedy);
}

int file_open(const char *path, int flags, enum file_kind kind, struct err *e)
{
	struct stat st;
	int own = kind == FILE_OWN;
	if (!fstatat(AT_FDCWD, path, &st, own ? AT_SYMLINK_NOFOLLOW : 0) && !may_be(-1, &st, kind))
		return refuse(path, &st, kind, e);
	flags |= O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (own ? O_NOFOLLOW : 0);
	int fd = (int)TEMP_FAILURE_RETRY(open(path, flags, 0600));
	if (fd < 0)
		return cannot_open(path, e);
	int rc;
	if (fstat(fd, &st))
		rc = err_errno(e, ERR_IO, "%s: cannot stat", path);
	else if (!may_be(fd, &st, kind))
		rc = refuse(path, &st, kind, e);
	else
		rc = fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK)
			     ? err_errno(e, ERR_IO, "%s: cannot open", path)
			     : 0;
	if (!rc)
		return fd;
	close(fd);
	return -1;
}

bool file_exists(const char *path)
{
	struct stat st;
	int saved = errno;
	bool exists = !lstat(path, &st);
	errno = saved;
	return exists;
}

static int too_large(const char *path, size_t most, struct err *e)
{
	return err_set(e, ERR_CORRUPT, "%s: larger than the %zu bytes such a file may have", path,
		       most);
}

/* Reads up to the end of the file. The file may grow meanwhile. */
static int read_all(int fd, const char *path, size_t most, struct buf *out, struct err *e)
{
	for (size_t total = 0;;) {
		char *to = buf_room(out, 65536);
		if (!to)
			return err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
		ssize_t got = read(fd, to, 65536);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_errno(e, ERR_IO, "%s: cannot read", path);
		out->len += (size_t)got;
		out->data[out->len] = '\0';
		total += (size_t)got;
		if (total > most)
			return too_large(path, most, e);
		if (got == 0)
			return 0;
	}
}

static int slurp(const char *path, enum file_kind kind, size_t most, struct buf *out, struct err *e)
{
	struct stat st;
	size_t before = out->len;
	int fd = file_open(path, O_RDONLY, kind, e);
	if (fd < 0)
		return -1;
	bool large = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0 &&
		     (uintmax_t)st.st_size > most;
	int rc = large ? too_large(path, most, e) : read_all(fd, path, most, out, e);
	if (rc && out->data)
		out->data[out->len = before] = '\0';
	close(fd);
	return rc;
}

int file_slurp(const char *path, size_t most, struct buf *out, struct err *e)
{
	return slurp(path, FILE_TEXT, most, out, e);
}

int file_slurp_own(const char *path, size_t most, struct buf *out, struct err *e)
{
	return slurp(path, FILE_OWN, most, out, e);
}

/* Removes the blanks at both ends of text[0, n), and puts a NUL behind it. */
static void trim(char *text, size_t n)
{
	text[n] = '\0';
	size_t before = strspn(text, " \t\r\n"), end = strlen(text);
	while (end > before && strchr(" \t\r\n", text[end - 1]))
		end--;
	memmove(text, text + before, end - before);
	text[end - before] = '\0';
}

int file_read_secret(const char *path, char *out, size_t size, struct err *e)
{
	struct stat st;
	*out = '\0';
	int fd = file_open(path, O_RDONLY, FILE_REGULAR, e), rc = 0;
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) || st.st_uid != geteuid() || (st.st_mode & 077))
		rc = err_set(e, ERR_DENIED,
			     "%.200s: the secret in it is yours alone, but the file is not: chown "
			     "it to you, and chmod 600 it",
			     path);
	else if ((size_t)st.st_size >= size)
		rc = err_set(e, ERR_USAGE,
			     "%.200s: it has more than the %zu bytes of a secret; is it the right "
			     "file?",
			     path, size - 1);
	else if (file_read_full(fd, out, (size_t)st.st_size))
		rc = err_errno(e, ERR_IO, "%.200s: cannot read", path);
	else
		trim(out, (size_t)st.st_size);
	close(fd);
	return rc;
}

int file_close(int fd)
{
	return close(fd) && errno != EINTR ? -1 : 0;
}

DIR *file_list_open(const char *path)
{
	DIR *d;
	do
		d = opendir(path);
	while (!d && errno == EINTR);
	return d;
}

int file_list_next(DIR *d, struct dirent **out)
{
	do {
		errno = 0;
		*out = readdir(d);
	} while (*out ? !strcmp((*out)->d_name, ".") || !strcmp((*out)->d_name, "..")
		      : errno == EINTR);
	return *out ? 1 : errno ? -1 : 0;
}

int file_sync_dir(const char *path, struct err *e)
{
	int fd = (int)TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0)
		return err_errno(e, ERR_IO, "%s: cannot open the folder", path);
	int rc = (int)TEMP_FAILURE_RETRY(fsync(fd));
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

static void cannot_write(const char *path, struct err *e)
{
	const char *remedy = process_write_remedy(errno);
	char text[128];
	err_set(e, file_error_code(errno), "%s: cannot write: %s%s", path,
		strerror_r(errno, text, sizeof text), remedy);
}

/* Sets `tmp` to the name of the temporary file. Fails if `path` must not, or cannot, be replaced. */
static int name_temporary(const char *path, char tmp[PATH_MAX], struct err *e)
{
	struct stat st;
	if (!*path)
		return err_set(e, ERR_IO, "the name of the file to write is empty; name one");
	if (!stat(path, &st) && !S_ISREG(st.st_mode))
		return err_set(e, ERR_IO,
			       "%s: is a %s, which must not be replaced by a file; name a file",
			       path, S_ISDIR(st.st_mode) ? "folder" : "device or pipe");
	if (snprintf(tmp, PATH_MAX, "%s.tmp.%ld", path, (long)getpid()) >= PATH_MAX)
		return err_set(e, ERR_IO, "%s: the path is too long; choose a shorter one", path);
	return 0;
}

static int cannot_create(const char *path, struct err *e)
{
	return err_errno(e, file_error_code(errno), "%s: cannot create a file in its folder", path);
}

int file_replace_check(const char *path, struct err *e)
{
	char folder[PATH_MAX];
	if (name_temporary(path, folder, e))
		return -1;
	char *slash = strrchr(folder, '/');
	if (slash)
		slash[1] = '\0';
	if (faccessat(AT_FDCWD, slash ? folder : ".", W_OK | X_OK, AT_EACCESS))
		return cannot_create(path, e);
	return 0;
}

static int replace(const char *path, const void *data, size_t n, mode_t mode, struct err *e)
{
	char tmp[PATH_MAX];
	if (name_temporary(path, tmp, e))
		return -1;
	/* It belongs to a dead process with the same number, or it is a link that somebody placed
	 * so that we write through it. */
	unlink(tmp);
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
	int fd = (int)TEMP_FAILURE_RETRY(open(tmp, flags, 0600));
	if (fd < 0)
		return cannot_create(path, e);
	int bad = file_write_full(fd, data, n) || (mode != 0600 && fchmod(fd, mode)) ||
		  TEMP_FAILURE_RETRY(fsync(fd));
	if (bad)
		cannot_write(tmp, e);
	if (file_close(fd) && !bad)
		bad = err_errno(e, ERR_IO, "%s: cannot close", tmp);
	if (!bad && TEMP_FAILURE_RETRY(rename(tmp, path)))
		bad = err_errno(e, ERR_IO, "%s: cannot rename to %s", tmp, path);
	if (bad) {
		unlink(tmp);
		return -1;
	}
	return sync_parent(path, e);
}

int file_replace(const char *path, const void *data, size_t n, struct err *e)
{
	return replace(path, data, n, 0600, e);
}

int file_publish(const char *path, const void *data, size_t n, struct err *e)
{
	return replace(path, data, n, process_public_mode(), e);
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
		if (TEMP_FAILURE_RETRY(mkdir(dir, 0700)) && errno != EEXIST)
			return err_errno(e, file_error_code(errno), "%s: cannot make the folder",
					 dir);
		*at = was;
	}
	if (stat(path, &st) < 0)
		return err_errno(e, file_error_code(errno), "%s: cannot make the folder", path);
	return S_ISDIR(st.st_mode) ? 0
				   : err_set(e, ERR_IO, "%s: is not a folder; move it away", path);
}

int file_make_own_dir(const char *path, struct err *e)
{
	struct stat st;
	if (mkdir(path, 0700) && errno != EEXIST)
		return err_errno(e, file_error_code(errno), "%s: cannot make the folder", path);
	if (lstat(path, &st))
		return err_errno(e, ERR_IO, "%s: cannot stat the folder", path);
	return S_ISDIR(st.st_mode)
		       ? 0
		       : err_set(e, ERR_CORRUPT,
				 "%s: is a %s, and muster keeps a folder of its own there; move it "
				 "away",
				 path, S_ISREG(st.st_mode) ? "file" : word_of(st.st_mode));
}

int file_check_private_dir(const char *path, struct err *e)
{
	struct stat st;
	if (lstat(path, &st))
		return err_errno(e, file_error_code(errno), "%s: cannot stat the folder", path);
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022))
		return 0;
	return err_set(e, ERR_DENIED,
		       "%s: belongs to user %u with mode %04o; it must be a folder of yours to "
		       "which nobody else may write",
		       path, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777);
}

int file_make_private_dir(const char *path, struct err *e)
{
	return file_make_own_dir(path, e) || file_check_private_dir(path, e) ? -1 : 0;
}

static void remove_tree_at(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	for (struct dirent *at; d && (at = readdir(d));) {
		if (!strcmp(at->d_name, ".") || !strcmp(at->d_name, ".."))
			continue;
		if (unlinkat(fd, at->d_name, 0) && (errno == EISDIR || errno == EPERM))
			remove_tree_at(fd, at->d_name);
	}
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	unlinkat(parent, name, AT_REMOVEDIR);
}

void file_remove_tree(const char *path)
{
	remove_tree_at(AT_FDCWD, path);
}
