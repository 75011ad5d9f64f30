/*
 * writer — writes texts to a descriptor whose reader may not read: a pager at its first page, a terminal
 * after Ctrl-S, an ssh connection that stalls.
 *
 * write(2) would block then, and the loop of the supervisor must not: it would see neither a task that
 * dies nor a signal. Therefore the loop only queues texts, and a thread writes them. The thread works for
 * every kind of descriptor. The alternatives do not:
 *   - O_NONBLOCK belongs to the open file description, which the user's shell and other processes share.
 *   - After poll(2) a write may still block, because another process has filled the pipe meanwhile, and a
 *     terminal that is writable has perhaps room for a few bytes only. A file whose server does not answer
 *     is always writable.
 *
 * What is queued is written in this order, and nothing is left out while the reader keeps up. The queue is
 * bounded; a text for which it has no room is refused, and the caller says later that it is missing. Texts
 * for which the reader may look elsewhere (WRITER_OUTPUT) get WRITER_MOST bytes, what muster itself says
 * (WRITER_OWN) gets WRITER_RESERVE more.
 *
 * launcher/exports/background.h hands files to a thread in the same way; it knows neither two kinds of text
 * nor whether the reader makes progress.
 *
 * Text that cannot be written, for example because the reader has gone or the disk is full, is dropped.
 * One thread, the owner's, calls all functions.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_WRITER_H
#define MUSTER_LAUNCHER_SUPERVISE_WRITER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Bytes. A rank's agent sends at most 0.5 MB of output at a time (agent/program_inner.h). */
#define WRITER_MOST    ((size_t)4 << 20)
#define WRITER_RESERVE ((size_t)256 << 10)

enum writer_room {
	/* Once such a text was refused, all are until half of the room is free: otherwise the reader would
	 * get single lines between many notes that lines are missing. */
	WRITER_OUTPUT,
	WRITER_OWN,
	WRITER_LAST, /* never refused for want of room: the last words, which are short */
};

struct writer;

/* The writer has its own duplicate of fd, so the caller may close fd. If fd is not open, all texts are
 * dropped. ERR_NOMEM: no memory or no thread. */
int supervise_writer_open(int fd, struct writer **out, struct err *e);
/* Queues a text, or refuses the whole text. An empty queue takes a text of any length. */
bool supervise_writer_add(struct writer *w, enum writer_room room, const char *text, size_t n);
/* As supervise_writer_add(), but if the last text was queued by this function and has not been touched
 * yet, the new one replaces it. */
bool supervise_writer_replace(struct writer *w, enum writer_room room, const char *text, size_t n);
/* Waits until everything is written: up to `stall` seconds after the reader last read something, and
 * up to `most` seconds in all. False: something is still queued. */
bool supervise_writer_flush(struct writer *w, double stall, double most);
/* Drops what is still queued. If the thread is blocked in write(2), which nothing ends but a reader, it is
 * left behind: once the call returns, it frees everything and ends without another write. w may be NULL. */
void supervise_writer_close(struct writer *w);

#endif
