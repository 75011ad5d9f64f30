/*
 * io — durable writes into a folder of this machine.
 *
 * The POSIX storage (storage_posix.c) and the export to Hugging Face folders write through it. The
 * system calls come from a table, so that tests can make each call fail, write short, or be the
 * last one of the process. Every entry has the result and errno of its manual page.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_STORAGE_IO_H
#define MUSTER_AGENT_ENGINE_CKPT_STORAGE_IO_H

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
	int (*link)(const char *from, const char *to);
	/* for large files (behind.h): */
	ssize_t (*pwrite)(int fd, const void *data, size_t n, off_t at);
	int (*direct)(int fd, bool on); /* fcntl, F_SETFL: sets or clears O_DIRECT */
	int (*allocate)(int fd, int mode, off_t at, off_t n); /* fallocate */
	int (*truncate)(int fd, off_t size);                  /* ftruncate */
};

extern const struct ckpt_io ckpt_io_system;

/* Sets "PATH: cannot WHAT: <errno>", with a remedy if the disk is full; returns -1. */
int ckpt_io_fail(struct err *e, const char *path, const char *what);

/* Writes n bytes; continues after EINTR and short writes. */
int ckpt_io_write_full(const struct ckpt_io *io, int fd, const char *path, const void *data,
		       size_t n, struct err *e);
/* fsync and close. The first failure is the error; the descriptor is closed in any case. */
int ckpt_io_finish(const struct ckpt_io *io, int fd, const char *path, struct err *e);
/* Creates a new file, writes, syncs and closes it. */
int ckpt_io_write_file(const struct ckpt_io *io, const char *path, const void *data, size_t n,
		       struct err *e);
/* rename(2). NFS may send a rename twice and report ENOENT after it succeeded; that is a success
 * here. */
int ckpt_io_rename(const struct ckpt_io *io, const char *from, const char *to);
int ckpt_io_sync_dir(const struct ckpt_io *io, const char *path, struct err *e);
/* Removes the folder of a checkpoint or an attempt. MANIFEST.json goes first, so that no reader
 * finds half of a valid one. If `path` is a symbolic link, only the link is removed. */
int ckpt_io_remove_folder(const struct ckpt_io *io, const char *path, struct err *e);

#endif
