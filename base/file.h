/*
 * file — opening, whole reads and writes, and writes that are there entirely or not.
 *
 * Everything muster creates is private to its user: files 0600, folders 0700.
 *
 * A name can lead to anything: a symbolic link to somebody's file, a FIFO that
 * makes open(2) wait for ever, a device, a sparse file of 100 GB. Files are
 * therefore opened here, by who chose the name (enum file_kind):
 *   - muster's own files (in a run folder, its logs/ and trace/, a checkpoint) are regular files,
 *     and their last name is no symbolic link. The folders logs/ and trace/ are real folders, too
 *     (file_make_own_dir). The folders above may be links: people link runs/ or ckpt/ to a scratch
 *     disk, and move a checkpoint and leave a link. This is safe because a run folder belongs to
 *     its user and nobody else may write to it (launcher/rundir/rundir.h).
 *   - a file that a person names may be reached through links (the folders of the Hugging Face
 *     cache consist of links), but must be regular in the end;
 *   - text that a person names may also come through a pipe: /dev/stdin, or <(command).
 */
#ifndef MUSTER_BASE_FILE_H
#define MUSTER_BASE_FILE_H

#include "base/buf.h"
#include "base/err.h"

#include <stddef.h>
#include <sys/types.h>

/* Reads or writes n bytes, through EINTR and short counts. The int returned is
 * 0 or -1 with errno set; file_read_full fails with EPIPE at an early end. */
int file_read_full(int fd, void *data, size_t n);
int file_write_full(int fd, const void *data, size_t n);
int file_pread_full(int fd, void *data, size_t n, off_t at);

enum file_kind {
	FILE_OWN, /* a regular file, no symbolic link; anything else is ERR_CORRUPT */
	/* a regular file, perhaps behind symbolic links; anything else is ERR_USAGE */
	FILE_REGULAR,
	FILE_TEXT, /* also a pipe, a terminal or /dev/null; anything else is ERR_USAGE */
};

/* open(2), close-on-exec, with mode 0600 where it creates. Never waits: what the kind does not
 * allow is refused before it is opened, and looked at again once it is. Returns the descriptor,
 * which blocks as usual, or -1: ERR_NOTFOUND, ERR_DENIED when permissions or a read-only file
 * system forbid it, ERR_IO, or the kind's code. */
int file_open(const char *path, int flags, enum file_kind kind, struct err *e);

/* Appends the file to `out`; refuses one larger than `most` bytes, a regular one before any memory
 * is taken. file_slurp reads a FILE_TEXT; a pipe that nobody writes to is empty. file_slurp_own
 * reads a FILE_OWN. */
int file_slurp(const char *path, size_t most, struct buf *out, struct err *e);
int file_slurp_own(const char *path, size_t most, struct buf *out, struct err *e);

/* Writes to a temporary neighbour, fsyncs it, renames it to `path` and fsyncs
 * the folder: after a crash `path` holds the old text or the new one. A folder, device or
 * pipe of that name is left alone, and refused. */
int file_replace(const char *path, const void *data, size_t n, struct err *e);

/* fsyncs a folder, so that names made or removed in it last. */
int file_sync_dir(const char *path, struct err *e);

/* mkdir -p with mode 0700. */
int file_make_dirs(const char *path, struct err *e);
/* mkdir with mode 0700 where it is missing; ERR_CORRUPT when a symbolic link or a file has that
 * name. */
int file_make_own_dir(const char *path, struct err *e);

#endif
