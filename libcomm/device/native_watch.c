#include "libcomm/device/native.h"

#include "base/clock.h"
#include "base/thread.h"

#include <stdio.h>
#include <string.h>

enum { LOOK_NS = 10000000, NAMED = 4 };

static void append_rank(const struct comm *c, int rank, int nth, char *list, size_t size)
{
	char who[160];
	size_t used = strlen(list);
	if (nth <= NAMED)
		snprintf(list + used, size - used, "%s%s", used ? ", " : "",
			 nth == NAMED ? "others" : comm_group_rank_text(c, rank, who));
}

/* Names the missing ranks, as far as they are known. 0: the operation is in a graph with others,
 * and one of those may be what hangs: the group that knows a missing rank reports first. */
static int report_late(struct comm *c, const struct native_flight *f, int64_t late, struct err *e)
{
	char list[800] = "", far[800] = "";
	int behind = 0, unknown = 0;
	for (int r = 0; r < c->size; r++) {
		struct seg_line *line = comm_native_line(c, r);
		if (!f->with[r])
			continue;
		if (!line || f->kind == OP_P2P)
			append_rank(c, r, unknown++, far, sizeof far);
		else if (!comm_native_has_reached(&line->device_called, f->number))
			append_rank(c, r, behind++, list, sizeof list);
	}
	double limit = c->world->timeout_s;
	if (f->others && !behind && late < (int64_t)(limit * 1e9 / (unknown ? 4 : 2)))
		return 0;
	if (behind)
		return err_set(e, ERR_TIMEOUT, "%s did not join within %g s", list, limit);
	if (unknown)
		return err_set(e, ERR_TIMEOUT,
			       "it did not end within %g s; the missing rank is one of %s", limit,
			       far);
	return err_set(e, ERR_TIMEOUT, "all ranks came, but %s did not end it within %g s",
		       comm_native_library(c)->name, limit);
}

/* Whether a rank of this host can no longer do its part of the operation. */
static bool is_gone(struct comm *c, const struct native_flight *f, int rank, struct err *e)
{
	struct seg_line *line = comm_native_line(c, rank);
	if (!line || comm_group_check_rank(c, rank, true, e) == 0)
		return false;
	if (atomic_load_explicit(&line->state, memory_order_acquire) != SEG_LEFT)
		return true;
	/* It has closed the group. Whether it has done its part of a message is unknown. */
	return f->kind != OP_P2P && !comm_native_has_reached(&line->device_done, f->last);
}

/* Whether to keep waiting for the oldest operation. */
static int check_oldest(struct comm *c, struct native_flight *f, struct err *e)
{
	struct device_group *d = c->device_group;
	int64_t now = clock_ns(), limit = (int64_t)(c->world->timeout_s * 1e9);
	if (!f->since) {
		int rc = d->api->event_done(d->device, f->mark->begin, e);
		if (rc <= 0)
			return rc;
		f->since = now;
	}
	for (int r = 0; r < c->size; r++)
		if (f->with[r] && is_gone(c, f, r, e))
			return -1;
	int64_t late = now - f->since - limit;
	return limit > 0 && late > 0 ? report_late(c, f, late, e) : 0;
}

static int check_flights(struct comm *c, struct err *e)
{
	struct native *n = c->device_group->native;
	if (comm_native_reap(c, e) || comm_native_library(c)->ready(n->dc, e) < 0)
		return -1;
	return n->count ? check_oldest(c, &n->flight[n->first], e) : 0;
}

/* Reports the failure. It releases the lock meanwhile, because the world's lock is taken before
 * it. */
static void report_failure(struct comm *c, struct err *why)
{
	struct native *n = c->device_group->native;
	const struct native_flight *f = n->count ? &n->flight[n->first] : NULL;
	if (f && f->last != f->number)
		err_prefix(why,
			   "%s number %u, or one up to number %u %s, of group %s (rank %d of %d)",
			   comm_op_word(f->kind), f->number, f->last,
			   f->graph ? "in the same graph" : "that started with it", c->name,
			   c->rank, c->size);
	else if (f)
		err_prefix(why, "%s number %u of group %s (rank %d of %d)", comm_op_word(f->kind),
			   f->number, c->name, c->rank, c->size);
	else
		err_prefix(why, "group %s (rank %d of %d)", c->name, c->rank, c->size);
	comm_native_unlock(c);
	comm_world_fail(c->world, why);
	comm_native_lock(c);
}

/* Ends the communicator without the lock: that can wait until the last graph with the group's
 * operations is freed, by a thread that first wants the lock. */
void comm_native_end_library(struct comm *c)
{
	struct native *n = c->device_group->native;
	struct device_comm *dc = n->dc;
	n->dc = NULL;
	comm_native_unlock(c);
	if (dc)
		comm_native_library(c)->close(dc);
	comm_native_lock(c);
}

/* Sleeps for LOOK_NS, or until something changes. */
static void wait_for_change(struct comm *c)
{
	struct native *n = c->device_group->native;
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += LOOK_NS;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	if (n->count)
		pthread_cond_timedwait(&n->change, &c->device_group->lock, &t);
	else
		pthread_cond_wait(&n->change, &c->device_group->lock);
}

static bool is_launching(const struct native *n)
{
	return n->launching && clock_ns() - n->launching < (int64_t)LAUNCH_S * 1000000000;
}

static void *watcher_main(void *arg)
{
	struct comm *c = arg;
	struct native *n = c->device_group->native;
	comm_native_lock(c);
	while (!n->leave && n->dc) {
		struct err why = ERR_INIT;
		bool failed = world_failed(c->world);
		if (failed && !is_launching(n))
			comm_native_end_library(c);
		else if (!failed && check_flights(c, &why) && !world_failed(c->world))
			report_failure(c, &why);
		else
			wait_for_change(c);
	}
	comm_native_unlock(c);
	return NULL;
}

int comm_native_watch(struct comm *c, struct err *e)
{
	struct native *n = c->device_group->native;
	int rc = thread_start(&n->thread, "comm watch", watcher_main, c);
	if (rc)
		return err_set(e, ERR_NOMEM, "cannot start the thread that watches group %s: %s",
			       c->name, strerror(rc));
	n->watched = true;
	return 0;
}

/* Called without the lock. A lost signal costs LOOK_NS, or nothing if nothing is in flight. */
void comm_native_interrupt(struct comm *c)
{
	if (c->device_group->native)
		pthread_cond_signal(&c->device_group->native->change);
}
