/*
 * io — the system calls that write a checkpoint, through a table, so that the
 * tests can let each one fail, write short, or be the process's last.
 *
 * Every entry is the system's own call: result and errno as in its manual page.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_IO_H
#define MUSTER_AGENT_ENGINE_CKPT_IO_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct ckpt_io {
	int (*mkdir)(const char *path, mode_t mode);
	/* open, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode 0600 */
	int (*create)(const char *path);
	ssize_t (*write)(int fd, const void *data, size_t n);
	int (*fsync)(int fd);
	int (*close)(int fd);
	int (*rename)(const char *from, const char *to);
	int (*unlink)(const char *path);
	int (*rmdir)(const char *path);
};

extern const struct ckpt_io ckpt_io_system;

/* Writes n bytes, through EINTR and short counts. */
int ckpt_io_write_full(const struct ckpt_io *io, int fd, const char *path, const void *data,
		       size_t n, struct err *e);
/* fsync and close: the first failure is the error; the descriptor is gone in any case. */
int ckpt_io_finish(const struct ckpt_io *io, int fd, const char *path, struct err *e);
/* Makes a file that lasts: created new, written, synced, closed. */
int ckpt_io_write_file(const struct ckpt_io *io, const char *path, const void *data, size_t n,
		       struct err *e);
/* As rename(2), but a rename over NFS that was sent twice, and so says ENOENT after it
 * succeeded, is a success. */
int ckpt_io_rename(const struct ckpt_io *io, const char *from, const char *to);
int ckpt_io_sync_dir(const struct ckpt_io *io, const char *path, struct err *e);
/* Removes a checkpoint's or an attempt's folder, its MANIFEST first, so that a reader never finds
 * half of a valid one. Of a symbolic link, such as to where somebody has moved a checkpoint, only
 * the link goes. */
int ckpt_io_remove_folder(const struct ckpt_io *io, const char *path, struct err *e);

#endif
