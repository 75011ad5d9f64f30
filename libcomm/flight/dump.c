#include "libcomm/flight/dump.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/run_paths.h"
#include "base/thread.h"
#include "libcomm/group.h"
#include "libcomm/shm/futex.h"
#include "libcomm/flight/recorder.h"
#include "libcomm/flight/taken.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- The file --- */

/* The file is complete or absent. It need not survive a crash of the machine, so nothing is
 * synced. */
static int write_file(const char *path, const struct buf *text, struct err *e)
{
	static _Atomic unsigned count;
	char temporary[PATH_MAX];
	if (snprintf(temporary, sizeof temporary, "%s.%d-%u", path, (int)getpid(), count++) >=
	    (int)sizeof temporary)
		return err_set(e, ERR_USAGE, "%s: the path is too long", path);
	int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(e, ERR_IO, "%s: cannot create the flight recorder's file",
				 temporary);
	int rc = file_write_full(fd, text->data, text->len);
	int cause = errno;
	close(fd);
	if (!rc && !rename(temporary, path))
		return 0;
	cause = rc ? cause : errno;
	unlink(temporary);
	errno = cause;
	return err_errno(e, ERR_IO, "%s: cannot write the flight recorder", path);
}

static int write_ring(struct world *w, struct buf *out, struct err *e)
{
	struct comm_tape *last;
	if (comm_taken_take(w, TAKE_RING, &last, e))
		return -1;
	int rc = comm_tape_write(last, out, e);
	comm_tape_free(last);
	return rc;
}

int comm_dump(struct comm *c, const char *path, struct err *e)
{
	struct buf text = BUF_INIT;
	int rc = write_ring(c->world, &text, e);
	if (rc == 0)
		rc = write_file(path, &text, e);
	buf_fini(&text);
	return rc;
}

/* --- The tape --- */

void comm_tape_start(struct comm *c)
{
	struct world *w = c->world;
	pthread_mutex_lock(&w->lock);
	for (struct comm *g = w->groups; g; g = g->next)
		comm_recorder_tape_start(g->recorder);
	pthread_mutex_unlock(&w->lock);
}

int comm_tape_stop(struct comm *c, struct comm_tape **out, struct err *e)
{
	return comm_taken_take(c->world, TAKE_TAPE, out, e);
}

int64_t comm_ops_begun(struct comm *c)
{
	struct world *w = c->world;
	int64_t begun = 0;
	pthread_mutex_lock(&w->lock);
	for (struct comm *g = w->groups; g; g = g->next) {
		uint32_t collectives, messages;
		comm_recorder_counts(g->recorder, &collectives, &messages);
		begun += (int64_t)collectives + messages;
	}
	pthread_mutex_unlock(&w->lock);
	return begun;
}

/* --- At the first error --- */

enum { WRITING, WRITTEN, LEFT_ALONE };

struct writing { /* freed by the thread that started the writer; by the writer if it was detached */
	struct buf text;
	char dir[PATH_MAX], path[RUN_PATH];
	_Atomic uint32_t state;
	struct err err;
};

static void writing_free(struct writing *job)
{
	buf_fini(&job->text);
	free(job);
}

static void *writer_main(void *arg)
{
	struct writing *job = arg;
	if (file_make_dirs(job->dir, &job->err) == 0)
		write_file(job->path, &job->text, &job->err);
	if (atomic_exchange(&job->state, WRITTEN) == LEFT_ALONE)
		writing_free(job);
	else
		futex_wake_all(&job->state); /* the job exists until this thread is joined */
	return NULL;
}

/* After this, the first error also reports why it could not be dumped. */
static void keep_dump_error(struct world *w, const char *text)
{
	snprintf(w->dump_error, sizeof w->dump_error, "%.*s", (int)sizeof w->dump_error - 1, text);
	atomic_store_explicit(&w->dump_failed, true, memory_order_release);
}

/* Waits for the writer, for a limited time. */
static void await_writer(struct world *w, struct writing *job, pthread_t thread)
{
	int64_t end = clock_ns() + DUMP_WAIT_MS * 1000000LL, left;
	while (atomic_load(&job->state) == WRITING && (left = end - clock_ns()) > 0)
		futex_wait(&job->state, WRITING, left);
	uint32_t writing = WRITING;
	if (atomic_compare_exchange_strong(&job->state, &writing, LEFT_ALONE)) {
		pthread_detach(thread);
		keep_dump_error(w, "the flight recorder could not be written in time");
		return;
	}
	pthread_join(thread, NULL);
	if (job->err.code)
		keep_dump_error(w, job->err.text);
	writing_free(job);
}

void comm_dump_first_error(struct world *w)
{
	pthread_t thread;
	struct writing *job = w->dump_dir ? calloc(1, sizeof *job) : NULL;
	if (!w->dump_dir)
		return;
	if (!job || write_ring(w, &job->text, &job->err) < 0) {
		keep_dump_error(w, "there is no memory to write the flight recorder");
		if (job)
			writing_free(job);
		return;
	}
	snprintf(job->dir, sizeof job->dir, "%s", w->dump_dir);
	run_path_recorder(job->path, w->dump_dir, w->rank);
	if (thread_start(&thread, "flight", writer_main, job) == 0) {
		await_writer(w, job, thread);
		return;
	}
	keep_dump_error(w, "no thread could be started to write the flight recorder");
	writing_free(job);
}

int comm_dump_open(struct world *w, const char *dir, struct err *e)
{
	char path[RUN_PATH];
	pthread_mutex_init(&w->dump_lock, NULL);
	if (!dir || !*dir)
		return 0;
	if (strlen(dir) >= PATH_MAX)
		return err_set(e, ERR_USAGE, "dump_dir: the path is too long");
	w->dump_dir = strdup(dir);
	if (!w->dump_dir)
		return err_set(e, ERR_NOMEM,
			       "no memory for the name of the flight recorder's folder");
	run_path_recorder(path, dir, w->rank);
	if (unlink(path) < 0 && errno != ENOENT && errno != ENOTDIR)
		return err_errno(e, ERR_IO, "%s: cannot remove an earlier world's flight recorder",
				 path);
	return 0;
}

void comm_dump_close(struct world *w)
{
	free(w->dump_dir);
	pthread_mutex_destroy(&w->dump_lock);
}
