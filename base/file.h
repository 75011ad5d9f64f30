/*
 * file — whole reads and writes, and writes that are there entirely or not.
 *
 * Everything muster creates is private to its user: files 0600, folders 0700.
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

/* Appends the file to `out`; refuses one larger than `most` bytes. A pipe that nobody writes to is empty. */
int file_slurp(const char *path, size_t most, struct buf *out, struct err *e);

/* Writes to a temporary neighbour, fsyncs it, renames it to `path` and fsyncs
 * the folder: after a crash `path` holds the old text or the new one. A folder, device or
 * pipe of that name is left alone, and refused. */
int file_replace(const char *path, const void *data, size_t n, struct err *e);

/* fsyncs a folder, so that names made or removed in it last. */
int file_sync_dir(const char *path, struct err *e);

/* mkdir -p with mode 0700. */
int file_make_dirs(const char *path, struct err *e);

#endif
