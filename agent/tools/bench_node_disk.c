#include "agent/tools/bench_node.h"
#include "agent/tools/tools.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, BYTES_MOST = 16 << 20, PAGE = 4096, SYNCS = 5, PATIENCE = 25 };

/* Shared by the thread that measures and the one that waits for it; the last one of them frees
 * it. */
struct disk_test {
	char dir[PATH_MAX];
	double seconds;
	double write_s, read_s, sync_s; /* results: bytes/s, bytes/s, seconds */
	struct err trouble;
	bool done, left; /* left: nobody waits any more */
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

/* A file that nobody sees, and that is gone when it is closed. */
static int open_file(const struct disk_test *t, struct err *e)
{
	char path[PATH_MAX + 64];
	snprintf(path, sizeof path, "%s/.muster-bench-XXXXXX", *t->dir ? t->dir : ".");
	int fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, ERR_IO, "%s: a file cannot be written", t->dir);
	unlink(path);
	return fd;
}

static int fail(const struct disk_test *t, const char *what, struct err *e)
{
	return err_errno(e, ERR_IO, "%s: %s", t->dir, what);
}

/* Writes for at most t->seconds, and fsyncs. *bytes: written. */
static int measure_write(struct disk_test *t, int fd, char *data, size_t *bytes, struct err *e)
{
	double begin = clock_s();
	for (*bytes = 0; *bytes < BYTES_MOST && (!*bytes || clock_s() - begin < t->seconds);
	     *bytes += CHUNK)
		if (pwrite(fd, data, CHUNK, (off_t)*bytes) != CHUNK)
			return fail(t, "a write failed", e);
	if (fsync(fd))
		return fail(t, "an fsync failed", e);
	t->write_s = (double)*bytes / (clock_s() - begin);
	return 0;
}

static int measure_read(struct disk_test *t, int fd, char *data, size_t bytes, struct err *e)
{
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	double begin = clock_s();
	size_t at = 0;
	for (; at < bytes && (!at || clock_s() - begin < t->seconds); at += CHUNK)
		if (pread(fd, data, CHUNK, (off_t)at) != CHUNK)
			return fail(t, "a read failed", e);
	t->read_s = (double)at / (clock_s() - begin);
	return 0;
}

/* The least of several: most file systems now and then have a slow one. */
static int measure_sync(struct disk_test *t, int fd, const char *data, struct err *e)
{
	double begin = clock_s();
	for (int i = 0; i < SYNCS && (!i || clock_s() - begin < t->seconds); i++) {
		double start = clock_s();
		if (pwrite(fd, data + i, PAGE, 0) != PAGE || fdatasync(fd))
			return fail(t, "an fsync failed", e);
		double seconds = clock_s() - start;
		t->sync_s = i && t->sync_s < seconds ? t->sync_s : seconds;
	}
	return 0;
}

static void measure(struct disk_test *t, struct err *e)
{
	size_t bytes;
	char *data = malloc(CHUNK);
	tool_nearest_folder(t->dir); /* the first run has not made the folder yet */
	int fd = data ? open_file(t, e) : err_set(e, ERR_NOMEM, "no memory to write a file");
	for (int i = 0; data && i < CHUNK; i++)
		data[i] = (char)(i * 2654435761u >> 13); /* a file system may compress */
	if (fd >= 0 && !measure_write(t, fd, data, &bytes, e) &&
	    !measure_read(t, fd, data, bytes, e))
		measure_sync(t, fd, data, e);
	if (fd >= 0)
		close(fd);
	free(data);
}

static void free_test(struct disk_test *t)
{
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->changed);
	free(t);
}

static void *disk_thread(void *arg)
{
	struct disk_test *t = arg;
	struct err e = ERR_INIT;
	measure(t, &e);
	pthread_mutex_lock(&t->lock);
	t->trouble = e;
	t->done = true;
	bool last = t->left;
	pthread_cond_signal(&t->changed);
	pthread_mutex_unlock(&t->lock);
	if (last)
		free_test(t);
	return NULL;
}

static struct disk_test *start_test(const char *dir, double seconds, struct err *e)
{
	pthread_t thread;
	pthread_condattr_t monotonic;
	struct disk_test *t = calloc(1, sizeof *t);
	if (!t) {
		err_set(e, ERR_NOMEM, "no memory to measure %s", dir);
		return NULL;
	}
	snprintf(t->dir, sizeof t->dir, "%s", dir);
	t->seconds = seconds;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&t->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	errno = pthread_create(&thread, NULL, disk_thread, t);
	if (errno) {
		err_errno(e, ERR_NOMEM, "cannot start a thread to measure %s", dir);
		free_test(t);
		return NULL;
	}
	pthread_detach(thread);
	return t;
}

/* Whether the test has ended in time. */
static bool wait_for_test(struct disk_test *t, double seconds)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)seconds + 1;
	int rc = 0;
	pthread_mutex_lock(&t->lock);
	while (!t->done && !rc)
		rc = pthread_cond_timedwait(&t->changed, &t->lock, &until);
	bool done = t->done;
	t->left = !done;
	pthread_mutex_unlock(&t->lock);
	return done;
}

void bench_node_disk(const char *dir, double seconds, struct node_figures *out)
{
	struct err *e = &out->trouble, other = ERR_INIT;
	struct err *why = e->code ? &other : e; /* the first trouble counts */
	struct disk_test *t = start_test(dir, seconds, why);
	if (!t)
		return;
	if (!wait_for_test(t, PATIENCE * seconds)) {
		err_set(why, ERR_TIMEOUT,
			"%s: it has not answered for %.0f s; check the file system there", dir,
			PATIENCE * seconds);
		return;
	}
	if (t->trouble.code)
		err_set(why, t->trouble.code, "%s", t->trouble.text);
	if (t->write_s > 0)
		bench_node_add(out, BURN_IN_DISK_WRITE, 0, t->write_s);
	if (t->read_s > 0)
		bench_node_add(out, BURN_IN_DISK_READ, 0, t->read_s);
	if (t->sync_s > 0)
		bench_node_add(out, BURN_IN_DISK_SYNC, 0, t->sync_s);
	free_test(t);
}
