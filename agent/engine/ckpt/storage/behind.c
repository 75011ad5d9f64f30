#include "agent/engine/ckpt/storage/behind.h"

#include "agent/engine/ckpt/storage/pages.h"
#include "agent/engine/ckpt/storage/way.h"
#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ALIGN = 4096, AHEAD = 16 * BEHIND_BLOCK };

enum state { FREE, FILLED, WRITING };

struct block {
	char *data;
	size_t bytes;
	off_t at; /* in the file */
	enum state state;
};

struct ckpt_behind {
	const struct ckpt_io *io;
	int fd;
	struct block blocks[BEHIND_BLOCKS];
	atomic_bool direct; /* O_DIRECT is set */

	/* under the lock */
	int64_t taken; /* blocks that writers have begun */
	int busy;      /* blocks that are filled and not yet written */
	bool ended;    /* no more blocks come, or a write has failed */
	struct err err;
	pthread_mutex_t lock;
	pthread_cond_t changed;

	/* the caller's */
	int64_t sent;   /* blocks; the caller fills the one of this number */
	off_t size;     /* of the blocks sent */
	off_t ahead;    /* end of the space that is allocated */
	bool allocates; /* the file system can */
	bool begun;     /* a block was full */
	int writers;    /* to be joined */
	pthread_t threads[BEHIND_WRITERS];
	uint64_t device;
	enum ckpt_way trial; /* the way that is being tried; CKPT_WAYS: none */
	off_t tried;         /* where its trial began, */
	double tried_at;     /* and when */
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
	b->trial = CKPT_WAYS;
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

/* --- the writers --- */

static void set_way(struct ckpt_behind *b, enum ckpt_way way)
{
	bool direct = way == CKPT_WAY_DIRECT;
	if (direct == atomic_load(&b->direct))
		return;
	if (!b->io->direct(b->fd, direct))
		atomic_store(&b->direct, direct);
	else if (direct)
		ckpt_way_refuse(b->device);
}

/* EINVAL is how a file system refuses to write directly; after a short write, memory and offset may
 * no longer be aligned. The other writer's block is aligned and can be written in either way. */
static int write_block(struct ckpt_behind *b, const struct block *block, struct err *e)
{
	const char *data = block->data;
	size_t left = block->bytes;
	off_t at = block->at;
	while (left) {
		bool direct = atomic_load(&b->direct); /* the other writer may reset it meanwhile */
		ssize_t put = b->io->pwrite(b->fd, data, left, at);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0 && (errno != EINVAL || !direct))
			return ckpt_io_fail(e, b->path, "write");
		if (put == 0)
			return err_set(e, ERR_IO, "%s: cannot write: the system accepted no bytes",
				       b->path);
		if (put < 0)
			ckpt_way_refuse(b->device);
		if (put > 0) {
			data += put;
			at += put;
			left -= (size_t)put;
		}
		if (left)
			set_way(b, CKPT_WAY_BUFFERED);
	}
	return 0;
}

/* Writes the next block without the lock. */
static void write_next(struct ckpt_behind *b)
{
	struct err e = ERR_INIT;
	struct block *block = &b->blocks[b->taken++ % BEHIND_BLOCKS];
	block->state = WRITING;
	pthread_mutex_unlock(&b->lock);
	int rc = write_block(b, block, &e);
	pthread_mutex_lock(&b->lock);
	block->state = FREE;
	b->busy--;
	if (rc && !b->err.code) {
		b->err = e;
		b->ended = true;
	}
	pthread_cond_broadcast(&b->changed);
}

static void *writer(void *arg)
{
	struct ckpt_behind *b = arg;
	pthread_mutex_lock(&b->lock);
	for (;;) {
		bool filled = b->blocks[b->taken % BEHIND_BLOCKS].state == FILLED;
		if (b->err.code || (b->ended && !filled))
			break;
		if (filled)
			write_next(b);
		else
			pthread_cond_wait(&b->changed, &b->lock);
	}
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

/* --- the caller --- */

static int result(struct ckpt_behind *b, struct err *e)
{
	return b->err.code ? err_set(e, b->err.code, "%s", b->err.text) : 0;
}

/* Waits until every block that was sent is written. */
static int drain(struct ckpt_behind *b, struct err *e)
{
	pthread_mutex_lock(&b->lock);
	while (b->busy && !b->err.code)
		pthread_cond_wait(&b->changed, &b->lock);
	int rc = result(b, e);
	pthread_mutex_unlock(&b->lock);
	return rc;
}

static void start_trial(struct ckpt_behind *b, enum ckpt_way way)
{
	b->trial = way;
	b->tried = b->size;
	b->tried_at = clock_s();
	set_way(b, way == CKPT_WAYS ? ckpt_way_choose(b->device) : way);
	if (way == CKPT_WAY_DIRECT && !atomic_load(&b->direct))
		b->trial = CKPT_WAYS; /* it is refused */
}

/* A file that tries both ways begins with a piece in each. A trial ends with a sync: only what is
 * durable has been written. */
static int end_trial(struct ckpt_behind *b, struct err *e)
{
	if (b->trial == CKPT_WAYS || b->size - b->tried < BEHIND_TRIAL)
		return 0;
	bool direct = atomic_load(&b->direct);
	if (drain(b, e))
		return -1;
	if (b->io->fsync(b->fd))
		return ckpt_io_fail(e, b->path, "sync");
	double seconds = clock_s() - b->tried_at;
	if (direct == (b->trial == CKPT_WAY_DIRECT) && seconds > 0)
		ckpt_way_learn(b->device, b->trial, (double)(b->size - b->tried) / seconds);
	start_trial(b, b->trial + 1);
	return 0;
}

/* The first full block. Without threads, the caller writes. */
static void begin(struct ckpt_behind *b)
{
	struct stat st;
	b->begun = b->allocates = true;
	b->device = fstat(b->fd, &st) ? 0 : (uint64_t)st.st_dev;
	start_trial(b, ckpt_way_tries(b->device) ? CKPT_WAY_DIRECT : CKPT_WAYS);
	while (b->writers < BEHIND_WRITERS &&
	       !thread_start(&b->threads[b->writers], "ckpt-write", writer, b))
		b->writers++;
}

/* Direct writes go into space that exists, or the second one waits for the first. A failure is not
 * one of the file: there may be room for the rest of it. But it may have made the file longer (ext4
 * does), so its end is set then, too. */
static void allocate_ahead(struct ckpt_behind *b, off_t end)
{
	if (!b->allocates || end <= b->ahead || !atomic_load(&b->direct))
		return;
	b->allocates = !b->io->allocate(b->fd, 0, b->size, AHEAD);
	b->ahead = b->size + AHEAD;
}

/* Passes the block on, and waits until the next one is free. */
static int send_block(struct ckpt_behind *b, struct err *e)
{
	struct block *block = &b->blocks[b->sent % BEHIND_BLOCKS];
	block->at = b->size;
	allocate_ahead(b, b->size + (off_t)block->bytes);
	b->size += (off_t)block->bytes;
	b->sent++;
	struct block *next = &b->blocks[b->sent % BEHIND_BLOCKS];
	pthread_mutex_lock(&b->lock);
	block->state = FILLED;
	b->busy++;
	if (!b->writers)
		write_next(b);
	pthread_cond_broadcast(&b->changed);
	while (next->state != FREE && !b->err.code)
		pthread_cond_wait(&b->changed, &b->lock);
	int rc = result(b, e);
	pthread_mutex_unlock(&b->lock);
	next->bytes = 0;
	return rc ? rc : end_trial(b, e);
}

int ckpt_behind_write(struct ckpt_behind *b, const void *data, size_t n, struct err *e)
{
	const char *from = data;
	while (n) {
		struct block *block = &b->blocks[b->sent % BEHIND_BLOCKS];
		if (!block->data && !(block->data = ckpt_pages_alloc(BEHIND_BLOCK)))
			return err_set(e, ERR_NOMEM, "%s: no memory to write it", b->path);
		size_t part = BEHIND_BLOCK - block->bytes < n ? BEHIND_BLOCK - block->bytes : n;
		memcpy(block->data + block->bytes, from, part);
		block->bytes += part;
		from += part;
		n -= part;
		if (block->bytes < BEHIND_BLOCK)
			continue;
		if (!b->begun)
			begin(b);
		if (send_block(b, e))
			return -1;
	}
	return 0;
}

/* drop: what no writer has begun is not written. */
static int end_writers(struct ckpt_behind *b, bool drop, struct err *e)
{
	pthread_mutex_lock(&b->lock);
	b->ended = true;
	if (drop && !b->err.code)
		err_set(&b->err, ERR_ABORTED, "%s: it is not needed any more", b->path);
	pthread_cond_broadcast(&b->changed);
	pthread_mutex_unlock(&b->lock);
	while (b->writers)
		pthread_join(b->threads[--b->writers], NULL);
	return result(b, e);
}

/* The last block: its aligned part like the others, the rest through the page cache. Space that was
 * allocated behind it is given back. */
static int write_rest(struct ckpt_behind *b, struct err *e)
{
	struct block *last = &b->blocks[b->sent % BEHIND_BLOCKS];
	size_t whole = last->bytes / ALIGN * ALIGN, rest = last->bytes - whole;
	const char *data = last->data + whole;
	if (!b->begun)
		return rest + whole ? ckpt_io_write_full(b->io, b->fd, b->path, last->data,
							 last->bytes, e)
				    : 0;
	last->bytes = whole;
	if ((whole && send_block(b, e)) || end_writers(b, false, e))
		return -1;
	set_way(b, CKPT_WAY_BUFFERED);
	struct block tail = { .data = (char *)data, .bytes = rest, .at = b->size };
	if (write_block(b, &tail, e))
		return -1;
	off_t size = b->size + (off_t)rest;
	return b->ahead > size && b->io->truncate(b->fd, size)
		       ? ckpt_io_fail(e, b->path, "set the size")
		       : 0;
}

int ckpt_behind_finish(struct ckpt_behind *b, struct err *e)
{
	int rc = write_rest(b, e);
	if (rc) {
		end_writers(b, true, NULL);
		b->io->close(b->fd);
	} else {
		rc = ckpt_io_finish(b->io, b->fd, b->path, e);
	}
	free_behind(b);
	return rc;
}

void ckpt_behind_abandon(struct ckpt_behind *b)
{
	end_writers(b, true, NULL);
	b->io->close(b->fd);
	free_behind(b);
}
