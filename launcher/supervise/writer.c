#include "launcher/supervise/writer.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct writer {
	pthread_t thread;
	int fd;           /* -1: all texts are dropped */
	struct buf taken; /* the thread's */
	/* The lock is for what follows. */
	pthread_mutex_t lock;
	pthread_cond_t queued, moved;
	struct buf queue;
	size_t waiting; /* bytes that are not written yet, queued or taken */
	size_t last; /* where the text begins in `queue` that may be replaced; NONE: there is none */
	uint64_t pieces; /* written so far */
	bool refuses;    /* WRITER_OUTPUT, until half of the room is free */
	bool closing;    /* the thread is to end */
	bool left;       /* the owner does not wait for it */
};

#define NONE ((size_t)-1)

static void free_writer(struct writer *w)
{
	if (w->fd >= 0)
		close(w->fd);
	buf_fini(&w->taken);
	buf_fini(&w->queue);
	pthread_cond_destroy(&w->queued);
	pthread_cond_destroy(&w->moved);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* --- the thread --------------------------------------------------------------------------- */

/* How many of the first bytes to write at once. A pipe takes up to PIPE_BUF bytes as a whole, so lines do
 * not mix with those of other processes that write to the same pipe. */
static size_t cut_piece(const char *text, size_t n)
{
	if (n <= PIPE_BUF)
		return n;
	const char *end = memrchr(text, '\n', PIPE_BUF);
	return end ? (size_t)(end + 1 - text) : PIPE_BUF;
}

static void write_piece(int fd, const char *text, size_t n)
{
	while (fd >= 0 && n) {
		ssize_t put = write(fd, text, n);
		if (put > 0) {
			text += put;
			n -= (size_t)put;
		} else if (put < 0 && errno == EAGAIN) { /* another process set O_NONBLOCK */
			poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, -1);
		} else if (put < 0 && errno != EINTR) {
			return;
		}
	}
}

/* Holds the lock. Takes all that is queued. False: the thread is to end. */
static bool take_texts(struct writer *w)
{
	while (!w->queue.len && !w->closing)
		pthread_cond_wait(&w->queued, &w->lock);
	if (w->closing)
		return false;
	struct buf empty = w->taken;
	buf_clear(&empty);
	w->taken = w->queue;
	w->queue = empty;
	w->last = NONE;
	return true;
}

/* Holds the lock, but not while it writes. */
static void write_taken(struct writer *w)
{
	for (size_t at = 0; at < w->taken.len && !w->closing;) {
		const char *text = w->taken.data + at;
		size_t n = cut_piece(text, w->taken.len - at);
		pthread_mutex_unlock(&w->lock);
		write_piece(w->fd, text, n);
		pthread_mutex_lock(&w->lock);
		at += n;
		w->waiting -= n;
		w->pieces++;
		pthread_cond_signal(&w->moved);
	}
}

static void *write_texts(void *arg)
{
	struct writer *w = arg;
	pthread_mutex_lock(&w->lock);
	while (take_texts(w))
		write_taken(w);
	bool left = w->left;
	pthread_mutex_unlock(&w->lock);
	if (left)
		free_writer(w);
	return NULL;
}

/* --- the owner ---------------------------------------------------------------------------- */

int supervise_writer_open(int fd, struct writer **out, struct err *e)
{
	pthread_condattr_t monotonic;
	struct writer *w = calloc(1, sizeof *w);
	if (!w)
		return err_set(e, ERR_NOMEM, "no memory for the output");
	w->fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	w->last = NONE;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->queued, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&w->moved, &monotonic);
	pthread_condattr_destroy(&monotonic);
	int rc = thread_start(&w->thread, "output", write_texts, w);
	if (rc) {
		free_writer(w);
		return err_set(e, ERR_NOMEM,
			       "cannot start the thread that writes the output: %s (ulimit -u "
			       "prints the limit)",
			       strerror(rc));
	}
	*out = w;
	return 0;
}

/* Holds the lock. */
static bool has_room(struct writer *w, enum writer_room room, size_t n)
{
	if (room == WRITER_OUTPUT && w->refuses && w->waiting > WRITER_MOST / 2)
		return false;
	size_t most = room == WRITER_OUTPUT ? WRITER_MOST : WRITER_MOST + WRITER_RESERVE;
	bool fits = room == WRITER_LAST || !w->waiting || w->waiting + n <= most;
	if (room == WRITER_OUTPUT)
		w->refuses = !fits;
	return fits;
}

/* Holds the lock. */
static bool queue_text(struct writer *w, enum writer_room room, const char *text, size_t n)
{
	if (!has_room(w, room, n) || !buf_room(&w->queue, n)) {
		w->queue.failed = false; /* there may be memory again later */
		return false;
	}
	buf_add(&w->queue, text, n);
	w->waiting += n;
	pthread_cond_signal(&w->queued);
	return true;
}

bool supervise_writer_add(struct writer *w, enum writer_room room, const char *text, size_t n)
{
	pthread_mutex_lock(&w->lock);
	bool taken = queue_text(w, room, text, n);
	if (taken && n)
		w->last = NONE;
	pthread_mutex_unlock(&w->lock);
	return taken;
}

bool supervise_writer_replace(struct writer *w, enum writer_room room, const char *text, size_t n)
{
	pthread_mutex_lock(&w->lock);
	if (w->last != NONE) {
		w->waiting -= w->queue.len - w->last;
		w->queue.len = w->last;
	}
	size_t at = w->queue.len;
	bool taken = queue_text(w, room, text, n);
	w->last = taken ? at : NONE;
	pthread_mutex_unlock(&w->lock);
	return taken;
}

/* Holds the lock. Waits until a piece has been written; false: none was until then. */
static bool await_piece(struct writer *w, double until)
{
	uint64_t before = w->pieces;
	struct timespec at = { .tv_sec = (time_t)until };
	at.tv_nsec = (long)((until - (double)at.tv_sec) * 1e9);
	while (w->pieces == before)
		if (pthread_cond_timedwait(&w->moved, &w->lock, &at))
			break;
	return w->pieces != before;
}

bool supervise_writer_flush(struct writer *w, double stall, double most)
{
	double end = clock_s() + most, now;
	pthread_mutex_lock(&w->lock);
	while (w->waiting && (now = clock_s()) < end)
		if (!await_piece(w, now + stall < end ? now + stall : end))
			break;
	bool all = !w->waiting;
	pthread_mutex_unlock(&w->lock);
	return all;
}

void supervise_writer_close(struct writer *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	pthread_t thread = w->thread;
	bool left = w->waiting > 0;
	w->closing = true;
	w->left = left;
	if (left)
		pthread_detach(thread);
	pthread_cond_signal(&w->queued);
	pthread_mutex_unlock(&w->lock); /* a thread that is left frees w now */
	if (left)
		return;
	pthread_join(thread, NULL);
	free_writer(w);
}
