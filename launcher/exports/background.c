#include "launcher/exports/background.h"

#include "base/buf.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct exports_background {
	struct exports_background_options o;
	pthread_t thread;
	pthread_mutex_t mutex; /* of what follows */
	pthread_cond_t changed;
	struct buf waiting;
	bool ending, ended, abandoned;
	bool troubled, told; /* something was lost; the owner knows it */
	struct err why;      /* of the first loss */
};

static void free_all(struct exports_background *b)
{
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->mutex);
	buf_fini(&b->waiting);
	free(b);
}

/* Holds the mutex. */
static void note_trouble(struct exports_background *b, const struct err *why)
{
	if (!b->troubled)
		b->why = *why;
	b->troubled = true;
}

/* Writes what waits, without the mutex, which it holds on entry and on return. */
static void write_waiting(struct exports_background *b)
{
	struct err e = ERR_INIT;
	struct buf now = b->waiting;
	b->waiting = (struct buf)BUF_INIT;
	pthread_mutex_unlock(&b->mutex);
	int rc = b->o.write(b->o.arg, now.data, now.len, &e);
	buf_fini(&now);
	pthread_mutex_lock(&b->mutex);
	if (rc)
		note_trouble(b, &e);
}

static void *work(void *arg)
{
	struct exports_background *b = arg;
	pthread_mutex_lock(&b->mutex);
	while (b->waiting.len || !b->ending) {
		if (b->waiting.len)
			write_waiting(b);
		else
			pthread_cond_wait(&b->changed, &b->mutex);
	}
	pthread_mutex_unlock(&b->mutex);
	b->o.close(b->o.arg);
	pthread_mutex_lock(&b->mutex);
	b->ended = true;
	bool abandoned = b->abandoned;
	pthread_cond_signal(&b->changed);
	pthread_mutex_unlock(&b->mutex);
	if (abandoned)
		free_all(b);
	return NULL;
}

int exports_background_open(const struct exports_background_options *o,
			    struct exports_background **out, struct err *e)
{
	pthread_condattr_t by_clock;
	struct exports_background *b = calloc(1, sizeof *b);
	if (!b) {
		o->close(o->arg);
		return err_set(e, ERR_NOMEM, "no memory to write in the background");
	}
	b->o = *o;
	pthread_mutex_init(&b->mutex, NULL);
	pthread_condattr_init(&by_clock);
	pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
	pthread_cond_init(&b->changed, &by_clock);
	pthread_condattr_destroy(&by_clock);
	int rc = thread_start(&b->thread, "export", work, b);
	if (rc) {
		o->close(o->arg);
		free_all(b);
		errno = rc;
		return err_errno(e, ERR_NOMEM, "cannot start a thread; ulimit -u limits them");
	}
	*out = b;
	return 0;
}

void exports_background_put(struct exports_background *b, const char *data, size_t n)
{
	struct err full;
	pthread_mutex_lock(&b->mutex);
	if (!b->o.queue)
		buf_clear(&b->waiting);
	if (b->o.queue && b->waiting.len + n > b->o.queue) {
		err_set(&full, ERR_IO,
			"the disk is slower than what is written: %zu bytes wait, and more are "
			"lost",
			b->waiting.len);
		note_trouble(b, &full);
	} else {
		buf_add(&b->waiting, data, n);
	}
	if (buf_failed(&b->waiting)) {
		err_set(&full, ERR_NOMEM, "no memory for what is written");
		note_trouble(b, &full);
		buf_fini(&b->waiting);
		b->waiting = (struct buf)BUF_INIT;
	}
	pthread_cond_signal(&b->changed);
	pthread_mutex_unlock(&b->mutex);
}

bool exports_background_trouble(struct exports_background *b, struct err *e)
{
	pthread_mutex_lock(&b->mutex);
	bool fresh = b->troubled && !b->told;
	if (fresh)
		*e = b->why;
	b->told |= fresh;
	pthread_mutex_unlock(&b->mutex);
	return fresh;
}

static struct timespec after(double seconds)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);
	t.tv_sec += ns / 1000000000;
	t.tv_nsec = ns % 1000000000;
	return t;
}

void exports_background_close(struct exports_background *b, double seconds)
{
	if (!b)
		return;
	struct timespec until = after(seconds);
	pthread_mutex_lock(&b->mutex);
	b->ending = true;
	pthread_cond_signal(&b->changed);
	while (!b->ended && pthread_cond_timedwait(&b->changed, &b->mutex, &until) != ETIMEDOUT)
		;
	bool ended = b->ended;
	b->abandoned = !ended;
	if (!ended)
		pthread_detach(b->thread);
	pthread_mutex_unlock(&b->mutex); /* an abandoned thread frees b now */
	if (!ended)
		return;
	pthread_join(b->thread, NULL);
	free_all(b);
}
