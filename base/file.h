/*
 * file — opens files safely, reads and writes them whole, and replaces them atomically.
 *
 * Everything muster creates is private to its user: files 0600, folders 0700. Pictures alone, which
 * are made to be shown, get the mode that the user's umask gives (file_publish).
 *
 * A path can lead to a symbolic link to somebody's file, to a FIFO that blocks open(2) for ever, to
 * a device, or to a sparse file of 100 GB. Files are therefore opened here. What is accepted depends
 * on who chose the name (enum file_kind):
 *   - muster's own files (in a run folder, its logs/ and trace/, a checkpoint) must be regular
 *     files, and the last component of their path must not be a symbolic link. The folders logs/
 *     and trace/ must be real folders too (file_make_own_dir). The folders above may be links:
 *     people link runs/ or ckpt/ to a scratch disk, or move a checkpoint and leave a link. This is
 *     safe because a run folder belongs to its user and nobody else may write to it
 *     (launcher/rundir/rundir.h).
 *   - A file that a person names may be reached through links, because the folders of the Hugging
 *     Face cache consist of links, but it must be a regular file.
 *   - Text that a person names may also come through a pipe: /dev/stdin, or <(command).
 */
#ifndef MUSTER_BASE_FILE_H
#define MUSTER_BASE_FILE_H

#include "base/buf.h"
#include "base/err.h"

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Reads or writes exactly n bytes; retries after EINTR and short counts. Returns 0, or -1 with errno
 * set; file_read_full fails with EPIPE when the input ends early. */
int file_read_full(int fd, void *data, size_t n);
int file_write_full(int fd, const void *data, size_t n);
int file_pread_full(int fd, void *data, size_t n, off_t at);

enum file_kind {
	FILE_OWN, /* a regular file, no symbolic link; anything else is ERR_CORRUPT */
	/* a regular file, perhaps behind symbolic links; anything else is ERR_USAGE */
	FILE_REGULAR,
	FILE_TEXT, /* also a pipe, a terminal or /dev/null; anything else is ERR_USAGE */
};

/* open(2) with O_CLOEXEC; a new file gets mode 0600. It never blocks: a file that the kind does not
 * allow is refused before it is opened, and checked again afterwards. Returns a blocking
 * descriptor, or -1: ERR_NOTFOUND, ERR_DENIED when permissions or a read-only file
 * system forbid it, ERR_IO, or the kind's code. */
int file_open(const char *path, int flags, enum file_kind kind, struct err *e);

/* Whether a file, a folder or a link has this name. A link counts even if its target is missing.
 * The function does not change errno. */
bool file_exists(const char *path);

/* Appends the file to `out`. A file larger than `most` bytes is refused; if it is a regular file,
 * before memory is allocated. file_slurp reads a FILE_TEXT; a pipe without a writer is empty.
 * file_slurp_own reads a FILE_OWN. */
int file_slurp(const char *path, size_t most, struct buf *out, struct err *e);
int file_slurp_own(const char *path, size_t most, struct buf *out, struct err *e);

/* Reads a file that holds a secret: a FILE_REGULAR of this user that nobody else may read; otherwise
 * ERR_DENIED. `out` gets its text without the blanks around it, perhaps ""; ERR_USAGE if `size` bytes
 * cannot hold the file. The caller wipes `out`. */
int file_read_secret(const char *path, char *out, size_t size, struct err *e);

/* Writes to a temporary file in the same folder, fsyncs it, renames it to `path` and fsyncs the
 * folder. After a crash `path` holds either the old content or the new content. When `path` is a
 * folder, a device or a pipe, the call fails and leaves it unchanged. */
int file_replace(const char *path, const void *data, size_t n, struct err *e);
/* As file_replace, for what others may read: the mode is process_public_mode's. */
int file_publish(const char *path, const void *data, size_t n, struct err *e);
/* Writes nothing, and fails as file_replace and file_publish would, as far as that can be known before:
 * for callers whose data takes long to compute. They must expect errors of the write all the same. */
int file_replace_check(const char *path, struct err *e);

/* The code for an errno of a file operation: ERR_NOTFOUND for ENOENT, ERR_DENIED for EACCES, EPERM and
 * EROFS, ERR_FULL for ENOSPC, EDQUOT and EFBIG, ERR_NOMEM for ENOMEM, EMFILE and ENFILE, otherwise
 * ERR_IO. */
enum err_code file_error_code(int error);

/* close(2), but a signal that interrupts it is no error: the descriptor is closed then, and whether
 * the data is durable is what fsync has said. */
int file_close(int fd);

/* Lists a folder. file_list_next sets the next name other than "." and "..": 1, 0 at the end, or -1
 * with errno set. readdir(3) alone ends a list that it cannot read as if it were complete. */
DIR *file_list_open(const char *path);
int file_list_next(DIR *d, struct dirent **out);

/* fsyncs a folder, so that names created or removed in it survive a crash. */
int file_sync_dir(const char *path, struct err *e);

/* mkdir -p with mode 0700. */
int file_make_dirs(const char *path, struct err *e);
/* Creates the folder with mode 0700 if it is missing; ERR_CORRUPT when a symbolic link or a file has
 * that name. */
int file_make_own_dir(const char *path, struct err *e);
/* The same in a folder that others may write to, such as /tmp; ERR_DENIED if the folder is another user's, or
 * others may write to it. file_check_private_dir makes nothing; ERR_NOTFOUND: there is no such folder. */
int file_make_private_dir(const char *path, struct err *e);
int file_check_private_dir(const char *path, struct err *e);
/* Removes a folder with all that it contains, as far as permissions allow. Follows no link; does
 * nothing if `path` is not a folder. */
void file_remove_tree(const char *path);

#endif
