/*
 * behind — writes one new file behind its caller.
 *
 * The caller's bytes are collected in blocks of 4 MiB. From the first full block on, two threads
 * write them while the caller prepares the next one (computes digests, reads, receives), so that a
 * file takes the longer of the two times, not their sum, and the storage always has something to do.
 * A file of less than a block is one write, by the caller. Small pieces thus cost no system call
 * each.
 *
 * Full blocks go past the page cache if that is faster here (way.h): aligned memory, aligned
 * offsets, O_DIRECT, into space that is allocated ahead, so that two writes to one file do not wait
 * for each other. What is left at the end, less than 4096 bytes, goes through the page cache. A
 * file system that refuses direct writing, at the flag or at the write, gets ordinary writes.
 *
 * At most BEHIND_BLOCKS blocks exist. An error of a writer is returned by the next call.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_STORAGE_BEHIND_H
#define MUSTER_AGENT_ENGINE_CKPT_STORAGE_BEHIND_H

#include "agent/engine/ckpt/storage/io.h"

#include <stdint.h>

enum {
	BEHIND_BLOCK = 4 << 20,
	BEHIND_BLOCKS = 4,
	BEHIND_WRITERS = 2,
	BEHIND_TRIAL = 4 * BEHIND_BLOCK
};

struct ckpt_behind;

/* Takes the descriptor of a new file; it is closed in any case, also by a failure of the open.
 * `path` is for messages. */
int ckpt_behind_open(const struct ckpt_io *io, int fd, const char *path, struct ckpt_behind **out,
		     struct err *e);
/* Appends n bytes. */
int ckpt_behind_write(struct ckpt_behind *b, const void *data, size_t n, struct err *e);
/* Writes what is left, makes all of it durable, and closes the file, even if that fails. */
int ckpt_behind_finish(struct ckpt_behind *b, struct err *e);
/* Closes the file as it is. */
void ckpt_behind_abandon(struct ckpt_behind *b);

#endif
