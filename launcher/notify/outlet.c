#include "launcher/notify/outlet.h"

#include "base/clock.h"
#include "base/thread.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { ATTEMPTS = 8, BACKOFF_MOST_S = 60 };

/* At the end of the run nobody waits for the whole back-off. */
static const double backoff_s = 1, finish_backoff_s = 0.5;
/* For the thread to end after its delivery is cut. */
static const double cut_s = 1;

struct outlet {
	struct outlet_way way;
	pthread_t thread;
	int cut;       /* eventfd */
	unsigned seed; /* of the thread */
	pthread_mutex_t lock;
	/* under the lock: */
	pthread_cond_t wake; /* for the thread, and at its end for its owner */
	json_t *queue[NOTIFY_QUEUE];
	int first, n;
	bool busy, finishing, over; /* over: the delivery is cut */
	bool ended;                 /* the thread has nothing more to do */
	int64_t lost;               /* in all */
	int64_t missing;            /* since the last one that was delivered */
	char why[NOTIFY_WHY];       /* of the last one that was lost, or failed */
	bool news;                  /* nobody was told this reason */
};

static void note_trouble(struct outlet *o, const char *why)
{
	o->news |= strncmp(o->why, why, NOTIFY_WHY - 1) != 0;
	snprintf(o->why, sizeof o->why, "%s", why);
}

/* The lock is held. */
static json_t *take_first(struct outlet *o)
{
	json_t *m = o->queue[o->first];
	o->first = (o->first + 1) % NOTIFY_QUEUE;
	o->n--;
	return m;
}

static void wait_until(struct outlet *o, double until)
{
	struct timespec t = { .tv_sec = (time_t)until,
			      .tv_nsec = (long)(1e9 * (until - floor(until))) };
	pthread_cond_timedwait(&o->wake, &o->lock, &t);
}

/* Waits before the next attempt. The lock is held. False: there is none. */
static bool wait_again(struct outlet *o, int attempt, double again_s)
{
	double usual = fmin(ldexp(backoff_s, attempt), BACKOFF_MOST_S);
	double from = clock_s(), jitter = 0.5 + (double)rand_r(&o->seed) / RAND_MAX;
	if (again_s < 0 || attempt + 1 >= ATTEMPTS)
		return false;
	for (;;) {
		double wait = fmax(usual * jitter, again_s);
		double until = from + (o->finishing ? fmin(wait, finish_backoff_s) : wait);
		if (o->over || clock_s() >= until)
			return !o->over;
		wait_until(o, until);
	}
}

/* Delivers a message, with further attempts. The lock is held, but not during an attempt. */
static void deliver(struct outlet *o, json_t *m)
{
	int rc = -1;
	bool again = !o->over;
	int64_t told = o->missing; /* others may be dropped meanwhile */
	json_object_set_new(m, "dropped", json_integer(told));
	for (int attempt = 0; again; attempt++) {
		struct err e = ERR_INIT;
		double again_s = 0;
		pthread_mutex_unlock(&o->lock);
		rc = o->way.deliver(o->way.way, m, o->cut, &again_s, &e);
		pthread_mutex_lock(&o->lock);
		if (rc)
			note_trouble(o, e.text);
		again = rc && wait_again(o, attempt, again_s);
	}
	o->missing += rc ? 1 : -told;
	o->lost += rc != 0;
}

static void *run(void *arg)
{
	struct outlet *o = arg;
	pthread_mutex_lock(&o->lock);
	for (;;) {
		while (!o->n && !o->finishing)
			pthread_cond_wait(&o->wake, &o->lock);
		if (!o->n)
			break;
		json_t *m = take_first(o);
		o->busy = true;
		deliver(o, m);
		o->busy = false;
		json_decref(m);
	}
	o->ended = true;
	pthread_cond_signal(&o->wake);
	pthread_mutex_unlock(&o->lock);
	return NULL;
}

static void free_outlet(struct outlet *o)
{
	while (o->n)
		json_decref(take_first(o));
	pthread_cond_destroy(&o->wake);
	pthread_mutex_destroy(&o->lock);
	close(o->cut);
	o->way.close(o->way.way);
	free(o);
}

int notify_outlet_open(const struct outlet_way *way, struct outlet **out, struct err *e)
{
	struct outlet *o = calloc(1, sizeof *o);
	int cut = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!o || cut < 0) {
		free(o);
		if (cut >= 0)
			close(cut);
		way->close(way->way);
		return err_set(e, ERR_NOMEM, "no memory to send notifications");
	}
	o->way = *way;
	o->cut = cut;
	o->seed = (unsigned)clock_ns();
	pthread_mutex_init(&o->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&o->wake, &attr);
	pthread_condattr_destroy(&attr);
	if (thread_start(&o->thread, "notify", run, o)) {
		free_outlet(o);
		return err_set(e, ERR_NOMEM,
			       "cannot start a thread that sends notifications; ulimit -u prints "
			       "the limit");
	}
	*out = o;
	return 0;
}

void notify_outlet_put(struct outlet *o, json_t *message)
{
	pthread_mutex_lock(&o->lock);
	if (o->n == NOTIFY_QUEUE) {
		json_decref(take_first(o));
		o->lost++;
		o->missing++;
	}
	o->queue[(o->first + o->n++) % NOTIFY_QUEUE] = message;
	pthread_cond_signal(&o->wake);
	pthread_mutex_unlock(&o->lock);
}

bool notify_outlet_trouble(struct outlet *o, char why[NOTIFY_WHY])
{
	pthread_mutex_lock(&o->lock);
	bool news = o->news;
	o->news = false;
	memcpy(why, o->why, NOTIFY_WHY);
	pthread_mutex_unlock(&o->lock);
	return news;
}

void notify_outlet_finish(struct outlet *o)
{
	pthread_mutex_lock(&o->lock);
	o->finishing = true;
	pthread_cond_signal(&o->wake);
	pthread_mutex_unlock(&o->lock);
}

/* Waits for the thread. The lock is held. */
static void wait_for_end(struct outlet *o, double until)
{
	while (!o->ended && clock_s() < until)
		wait_until(o, until);
}

/* The lock is held. */
static void cut(struct outlet *o)
{
	uint64_t one = 1;
	o->over = true;
	pthread_cond_signal(&o->wake);
	if (write(o->cut, &one, sizeof one) < 0)
		return; /* it can be read already */
}

void notify_outlet_close(struct outlet *o, double until, struct notify_result *out)
{
	pthread_mutex_lock(&o->lock);
	wait_for_end(o, until);
	if (!o->ended) {
		cut(o);
		wait_for_end(o, clock_s() + cut_s);
		if (!*o->why && o->lost + o->n + o->busy)
			snprintf(o->why, sizeof o->why, "it has not answered in time");
	}
	out->lost += o->lost + o->n + o->busy;
	if (*o->why)
		snprintf(out->why, sizeof out->why, "%s", o->why);
	bool ended = o->ended;
	pthread_mutex_unlock(&o->lock);
	if (ended) {
		pthread_join(o->thread, NULL);
		free_outlet(o);
	} else {
		pthread_detach(o->thread); /* it hangs in the system, and keeps its memory */
	}
}
