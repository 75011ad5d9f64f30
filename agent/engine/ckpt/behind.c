#include "agent/engine/ckpt/behind.h"

#include "agent/engine/ckpt/way.h"
#include "base/clock.h"
#include "base/numbers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ALIGN = 4096 };

struct block {
	char *data;
	size_t bytes;
};

/* One of the two trials with which a file may begin. */
struct trial {
	int64_t bytes;
	double seconds;
};

struct ckpt_behind {
	const struct ckpt_io *io;
	int fd;
	uint64_t device;
	struct block blocks[BEHIND_BLOCKS];

	/* the writing side's: the thread's, or the caller's before there is one and after it ended */
	bool direct, tries;
	struct trial trials[CKPT_WAYS];

	/* shared, under the lock */
	int64_t sent, written; /* blocks */
	bool ended;            /* the caller sends no more, or the thread has failed */
	struct err err;

	bool begun;    /* a block was full */
	bool threaded; /* the thread must be joined */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char path[];
};

int ckpt_behind_open(const struct ckpt_io *io, int fd, const char *path, struct ckpt_behind **out,
		     struct err *e)
{
	size_t n = strlen(path) + 1;
	struct ckpt_behind *b = calloc(1, sizeof *b + n);
	if (!b) {
		io->close(fd);
		return err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
	}
	b->io = io;
	b->fd = fd;
	memcpy(b->path, path, n);
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->changed, NULL);
	*out = b;
	return 0;
}

static void free_behind(struct ckpt_behind *b)
{
	for (int i = 0; i < BEHIND_BLOCKS; i++)
		free(b->blocks[i].data);
	pthread_mutex_destroy(&b->lock);
	pthread_cond_destroy(&b->changed);
	free(b);
}

/* --- the writing side --- */

static void set_way(struct ckpt_behind *b, enum ckpt_way way)
{
	bool direct = way == CKPT_WAY_DIRECT;
	if (direct == b->direct)
		return;
	if (!b->io->direct(b->fd, direct))
		b->direct = direct;
	else if (direct) {
		ckpt_way_refuse(b->device);
		b->tries = false;
	}
}

/* Writes directly as far as possible; the rest is left to ordinary writes. EINVAL is how a file
 * system refuses; after a short write, memory and offset may no longer be aligned. */
static int write_direct(struct ckpt_behind *b, const char **data, size_t *n, struct err *e)
{
	while (*n && b->direct) {
		ssize_t put = b->io->write(b->fd, *data, *n);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0 && errno == EINVAL) {
			ckpt_way_refuse(b->device);
			b->tries = false;
		} else if (put <= 0)
			return put ? ckpt_io_fail(e, b->path, "write") : 0;
		if (put > 0) {
			*data += put;
			*n -= (size_t)put;
		}
		if (*n)
			set_way(b, CKPT_WAY_BUFFERED);
	}
	return 0;
}

/* The way of the next block: a file that tries both begins with a piece in each. */
static void choose_way(struct ckpt_behind *b)
{
	enum ckpt_way way = CKPT_WAY_DIRECT;
	while (b->tries && way < CKPT_WAYS && b->trials[way].bytes >= BEHIND_TRIAL)
		way++;
	if (b->tries && way < CKPT_WAYS)
		set_way(b, way);
	else
		set_way(b, ckpt_way_choose(b->device));
}

/* Counts the block for its trial. A trial ends with a sync: only what is durable has been
 * written. */
static int count_trial(struct ckpt_behind *b, size_t n, double began, struct err *e)
{
	enum ckpt_way way = b->direct ? CKPT_WAY_DIRECT : CKPT_WAY_BUFFERED;
	struct trial *t = &b->trials[way];
	if (!b->tries || t->bytes >= BEHIND_TRIAL)
		return 0;
	t->bytes += (int64_t)n;
	if (t->bytes >= BEHIND_TRIAL && b->io->fsync(b->fd))
		return ckpt_io_fail(e, b->path, "sync");
	t->seconds += clock_s() - began;
	if (t->bytes >= BEHIND_TRIAL && t->seconds > 0)
		ckpt_way_learn(b->device, way, (double)t->bytes / t->seconds);
	return 0;
}

static int write_block(struct ckpt_behind *b, const struct block *block, struct err *e)
{
	const char *data = block->data;
	size_t n = block->bytes;
	choose_way(b);
	double began = clock_s();
	if (write_direct(b, &data, &n, e) || ckpt_io_write_full(b->io, b->fd, b->path, data, n, e))
		return -1;
	return count_trial(b, block->bytes, began, e);
}

static void *write_thread(void *arg)
{
	struct ckpt_behind *b = arg;
	pthread_mutex_lock(&b->lock);
	for (;;) {
		while (b->written == b->sent && !b->ended)
			pthread_cond_wait(&b->changed, &b->lock);
		if (b->written == b->sent || b->err.code)
			break;
		struct err e = ERR_INIT;
		const struct block *block = &b->blocks[b->written % BEHIND_BLOCKS];
		pthread_mutex_unlock(&b->lock);
		int rc = write_block(b, block, &e);
		pthread_mutex_lock(&b->lock);
		b->written++;
		if (rc) {
			b->err = e;
			b->ended = true;
		}
		pthread_cond_broadcast(&b->changed);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

/* --- the caller's side --- */

/* The first full block: from here on a thread writes. Without one, the caller does. */
static void begin(struct ckpt_behind *b)
{
	struct stat st;
	sigset_t all, was;
	b->begun = true;
	b->device = fstat(b->fd, &st) ? 0 : (uint64_t)st.st_dev;
	b->tries = ckpt_way_tries(b->device);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	b->threaded = pthread_create(&b->thread, NULL, write_thread, b) == 0;
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (b->threaded)
		pthread_setname_np(b->thread, "ckpt-write");
}

/* Passes the block on, and waits until the next one is free. */
static int send_block(struct ckpt_behind *b, struct err *e)
{
	struct block *block = &b->blocks[b->sent % BEHIND_BLOCKS];
	if (!b->begun)
		begin(b);
	if (!b->threaded) {
		b->sent++;
		b->written++;
		int rc = write_block(b, block, e);
		b->blocks[b->sent % BEHIND_BLOCKS].bytes = 0;
		return rc;
	}
	pthread_mutex_lock(&b->lock);
	b->sent++;
	pthread_cond_broadcast(&b->changed);
	while (b->sent - b->written == BEHIND_BLOCKS && !b->err.code)
		pthread_cond_wait(&b->changed, &b->lock);
	int rc = b->err.code ? err_set(e, b->err.code, "%s", b->err.text) : 0;
	pthread_mutex_unlock(&b->lock);
	b->blocks[b->sent % BEHIND_BLOCKS].bytes = 0;
	return rc;
}

int ckpt_behind_write(struct ckpt_behind *b, const void *data, size_t n, struct err *e)
{
	const char *from = data;
	while (n) {
		struct block *block = &b->blocks[b->sent % BEHIND_BLOCKS];
		if (!block->data && !(block->data = aligned_alloc(ALIGN, BEHIND_BLOCK)))
			return err_set(e, ERR_NOMEM, "%s: no memory to write it", b->path);
		size_t part = BEHIND_BLOCK - block->bytes < n ? BEHIND_BLOCK - block->bytes : n;
		memcpy(block->data + block->bytes, from, part);
		block->bytes += part;
		from += part;
		n -= part;
		if (block->bytes == BEHIND_BLOCK && send_block(b, e))
			return -1;
	}
	return 0;
}

/* Waits for the thread. drop: what it has not begun to write is not written. */
static int end_thread(struct ckpt_behind *b, bool drop, struct err *e)
{
	if (!b->threaded)
		return 0;
	pthread_mutex_lock(&b->lock);
	b->ended = true;
	if (drop && !b->err.code)
		err_set(&b->err, ERR_ABORTED, "%s: it is not needed any more", b->path);
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	pthread_join(b->thread, NULL);
	b->threaded = false;
	return b->err.code ? err_set(e, b->err.code, "%s", b->err.text) : 0;
}

/* The last block: its aligned part like the others, the rest through the page cache. */
static int write_rest(struct ckpt_behind *b, struct err *e)
{
	struct block *last = &b->blocks[b->sent % BEHIND_BLOCKS];
	size_t whole = b->begun ? last->bytes / ALIGN * ALIGN : 0, bytes = last->bytes;
	if (end_thread(b, false, e))
		return -1;
	last->bytes = whole;
	if (whole && write_block(b, last, e))
		return -1;
	set_way(b, CKPT_WAY_BUFFERED);
	return bytes == whole ? 0
			      : ckpt_io_write_full(b->io, b->fd, b->path, last->data + whole,
						   bytes - whole, e);
}

int ckpt_behind_finish(struct ckpt_behind *b, struct err *e)
{
	int rc = write_rest(b, e);
	if (rc)
		b->io->close(b->fd);
	else
		rc = ckpt_io_finish(b->io, b->fd, b->path, e);
	free_behind(b);
	return rc;
}

void ckpt_behind_abandon(struct ckpt_behind *b)
{
	end_thread(b, true, NULL);
	b->io->close(b->fd);
	free_behind(b);
}
