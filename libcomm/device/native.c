/*
 * Operations by the device's own library (NCCL): the caller queues, and a thread of the group
 * watches.
 *
 * The library can neither tell which rank did not come nor, everywhere, that one has died. So each
 * rank says in its line of the segment which operation it has come to, and the watcher looks there,
 * at the processes of its host, at the library's own errors and at the clock. What it finds ends
 * the world; then it ends the communicator, which frees the device from kernels that would wait for
 * a peer for ever. The clock of an operation runs from when its inputs are ready.
 */
#include "libcomm/device/device_group.h"

#include "base/clock.h"
#include "libcomm/flight/recorder.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLIGHTS = 64, LOOK_NS = 10000000, PARTING_NS = 1000000000, NAMED = 4 };

struct native_flight { /* an operation that is not known to be done */
	enum op_kind kind;
	uint32_t number;
	struct stream_mark *mark;
	bool queued;   /* the library has it, its events are recorded */
	int64_t since; /* when the library or the device took it up; 0: not yet */
	bool *with;    /* whom it needs, by rank */
};

struct native {                 /* under the group's lock */
	struct device_comm *dc; /* NULL: ended */
	void *stream;
	uint32_t collectives, messages;       /* called so far */
	struct native_flight flight[FLIGHTS]; /* a ring */
	int first, count;
	bool *with; /* FLIGHTS rows */
	pthread_t thread;
	pthread_cond_t change;
	bool watched, leave;
};

static const struct device_collectives *library(const struct comm *c)
{
	return c->device_group->api->collectives;
}

static void lock_group(struct comm *c)
{
	pthread_mutex_lock(&c->device_group->lock);
}

static void unlock_group(struct comm *c)
{
	pthread_mutex_unlock(&c->device_group->lock);
}

/* NULL: a rank of another host, or one that is alone on its host. */
static struct seg_line *find_line(const struct comm *c, int rank)
{
	return c->segment.head && c->local[rank] >= 0 ? &c->segment.line[c->local[rank]] : NULL;
}

/* --- What is in flight ------------------------------------------------------------ */

static struct native_flight *push_flight(struct comm *c, const struct op *op, struct stream_mark *m)
{
	struct native *n = c->device_group->native;
	struct seg_line *me = find_line(c, c->rank);
	int i = (n->first + n->count++) % FLIGHTS;
	struct native_flight *f = &n->flight[i];
	bool message = op->kind == OP_P2P;
	*f = (struct native_flight){ .kind = op->kind,
				     .number = message ? ++n->messages : ++n->collectives,
				     .mark = m,
				     .since = clock_ns(),
				     .with = n->with + (size_t)i * (size_t)c->size };
	m->users++;
	for (int r = 0; r < c->size; r++)
		f->with[r] = !message && r != c->rank;
	for (int k = 0; message && k < op->n; k++)
		f->with[op->p2p[k].peer] = op->p2p[k].peer != c->rank;
	if (me && !message)
		atomic_store_explicit(&me->device_called, f->number, memory_order_release);
	return f;
}

static void pop_flight(struct comm *c)
{
	struct native *n = c->device_group->native;
	struct native_flight *f = &n->flight[n->first];
	struct seg_line *me = find_line(c, c->rank);
	if (me && f->kind != OP_P2P)
		atomic_store_explicit(&me->device_done, f->number, memory_order_release);
	comm_stream_mark_unref(c->device_group, f->mark);
	n->first = (n->first + 1) % FLIGHTS;
	n->count--;
}

/* Lets go of what the device has done. Once the library has been ended, what is in flight ends
 * without being done. */
static int reap_done(struct comm *c, struct err *e)
{
	struct device_group *d = c->device_group;
	struct native *n = d->native;
	if (!n->dc)
		return comm_world_error(c->world, e);
	while (n->count && n->flight[n->first].queued) {
		int rc = d->api->event_done(d->device, n->flight[n->first].mark->end, e);
		if (rc <= 0)
			return rc;
		pop_flight(c);
	}
	return 0;
}

/* --- The watcher -------------------------------------------------------------------- */

/* Whether the rank has come as far with collectives as `number`. */
static bool has_reached(const _Atomic uint32_t *word, uint32_t number)
{
	return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - number) >= 0;
}

static void append_rank(const struct comm *c, int rank, int nth, char *list, size_t size)
{
	char who[160];
	size_t used = strlen(list);
	if (nth <= NAMED)
		snprintf(list + used, size - used, "%s%s", used ? ", " : "",
			 nth == NAMED ? "others" : comm_group_rank_text(c, rank, who));
}

/* Names who did not come, as far as one can know. */
static int report_late(struct comm *c, const struct native_flight *f, struct err *e)
{
	char list[800] = "", far[800] = "";
	int behind = 0, unknown = 0;
	for (int r = 0; r < c->size; r++) {
		struct seg_line *line = find_line(c, r);
		if (!f->with[r])
			continue;
		if (!line || f->kind == OP_P2P)
			append_rank(c, r, unknown++, far, sizeof far);
		else if (!has_reached(&line->device_called, f->number))
			append_rank(c, r, behind++, list, sizeof list);
	}
	double limit = c->world->timeout_s;
	if (behind)
		return err_set(e, ERR_TIMEOUT, "%s did not come within %g s", list, limit);
	if (unknown)
		return err_set(e, ERR_TIMEOUT,
			       "it did not end within %g s; who did not come is among %s", limit,
			       far);
	return err_set(e, ERR_TIMEOUT, "all ranks came, but %s did not end it within %g s",
		       library(c)->name, limit);
}

/* Whether a rank of this host can no longer do its part of the flight. */
static bool is_gone(struct comm *c, const struct native_flight *f, int rank, struct err *e)
{
	struct seg_line *line = find_line(c, rank);
	if (!line || comm_group_check_rank(c, rank, true, e) == 0)
		return false;
	if (atomic_load_explicit(&line->state, memory_order_acquire) != SEG_LEFT)
		return true;
	/* It has closed the group: what it had to do for a message one cannot tell. */
	return f->kind != OP_P2P && !has_reached(&line->device_done, f->number);
}

/* Whether it makes sense to wait on for the oldest flight. */
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
	return limit > 0 && now - f->since > limit ? report_late(c, f, e) : 0;
}

static int check_flights(struct comm *c, struct err *e)
{
	struct native *n = c->device_group->native;
	if (reap_done(c, e) < 0 || library(c)->ready(n->dc, e) < 0)
		return -1;
	return n->count ? check_oldest(c, &n->flight[n->first], e) : 0;
}

/* The lock is free meanwhile: the world's is taken before it. */
static void report_failure(struct comm *c, struct err *why)
{
	struct native *n = c->device_group->native;
	const struct native_flight *f = n->count ? &n->flight[n->first] : NULL;
	if (f)
		err_prefix(why, "%s number %u of group %s (rank %d of %d)", comm_op_word(f->kind),
			   f->number, c->name, c->rank, c->size);
	else
		err_prefix(why, "group %s (rank %d of %d)", c->name, c->rank, c->size);
	unlock_group(c);
	comm_world_fail(c->world, why);
	lock_group(c);
}

static void end_library(struct comm *c)
{
	struct native *n = c->device_group->native;
	if (n->dc)
		library(c)->close(n->dc);
	n->dc = NULL;
}

/* A look's time, or until something changes. */
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

static void *watcher_main(void *arg)
{
	struct comm *c = arg;
	struct native *n = c->device_group->native;
	lock_group(c);
	while (!n->leave && n->dc) {
		struct err why = ERR_INIT;
		if (world_failed(c->world))
			end_library(c);
		else if (check_flights(c, &why) < 0 && !world_failed(c->world))
			report_failure(c, &why);
		else
			wait_for_change(c);
	}
	unlock_group(c);
	return NULL;
}

static int start_watcher(struct comm *c, struct err *e)
{
	struct native *n = c->device_group->native;
	/* Signals belong to the threads that the program made. */
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = pthread_create(&n->thread, NULL, watcher_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return err_set(e, ERR_NOMEM, "cannot start the thread that watches group %s: %s",
			       c->name, strerror(rc));
	n->watched = true;
	return 0;
}

/* Without the lock, see ondevice.h: a wake-up that is lost costs a look's time, or nothing where
 * nothing is in flight. */
void comm_native_interrupt(struct comm *c)
{
	if (c->device_group->native)
		pthread_cond_signal(&c->device_group->native->change);
}

/* --- Operations --------------------------------------------------------------------- */

/* The watcher ends the wait when it takes too long. */
static int await_library(struct comm *c, struct err *e)
{
	struct native *n = c->device_group->native;
	struct device_wait p = { 0 };
	for (;;) {
		lock_group(c);
		int rc = n->dc ? library(c)->ready(n->dc, e) : 0;
		unlock_group(c);
		if (rc)
			return rc < 0 ? -1 : 0;
		if (comm_device_wait_poll(c, &p, "", e) < 0)
			return -1;
	}
}

/* Until at most `most` operations are in flight. */
static int await_flights(struct comm *c, int most, struct err *e)
{
	struct native *n = c->device_group->native;
	struct device_wait p = { 0 };
	for (;;) {
		lock_group(c);
		int rc = reap_done(c, e), left = n->count;
		unlock_group(c);
		if (rc < 0)
			return -1;
		if (left <= most)
			return 0;
		if (comm_device_wait_poll(c, &p, "", e) < 0)
			return -1;
	}
}

int comm_native_sync(struct comm *c, struct err *e)
{
	return await_flights(c, 0, e);
}

/* Under the lock. */
static int queue_operation(struct comm *c, const struct op *op, struct stream_mark *m,
			   struct err *e)
{
	struct device_group *d = c->device_group;
	struct native *n = d->native;
	struct op_signature sign = comm_op_sign(op, push_flight(c, op, m)->number, c->size);
	comm_recorder_begin(c->recorder, op, &sign, library(c)->name);
	pthread_cond_signal(&n->change);
	if (d->api->stream_wait(d->device, n->stream, m->begin, e) < 0)
		return -1;
	return library(c)->queue(n->dc, op, n->stream, e);
}

int comm_native_run(struct comm *c, const struct op *op, struct stream_mark *m, struct err *e)
{
	struct device_group *d = c->device_group;
	struct native *n = d->native;
	if (await_flights(c, FLIGHTS - 1, e) < 0)
		return -1;
	lock_group(c);
	if (!n->dc) {
		unlock_group(c);
		return comm_world_error(c->world, e);
	}
	int rc = queue_operation(c, op, m, e);
	unlock_group(c);
	if (rc == 0)
		rc = await_library(c, e);
	comm_recorder_end(c->recorder, rc < 0); /* queued is all that this thread knows of it */
	if (rc < 0)
		return -1;
	lock_group(c);
	struct native_flight *f = &n->flight[(n->first + n->count - 1) % FLIGHTS];
	rc = d->api->event_record(d->device, m->end, n->stream, e);
	f->queued = rc == 0;
	f->since = 0;
	unlock_group(c);
	return rc;
}

/* --- Opening and closing --------------------------------------------------------------- */

static bool someone_is_gone(struct comm *c, struct err *e)
{
	for (int r = 0; r < c->size; r++)
		if (r != c->rank && find_line(c, r) && comm_group_check_rank(c, r, true, e) < 0)
			return true;
	return false;
}

/* Until a new communicator is ready. parent: it is split from that one, whose lock guards both. */
static int await_start(struct comm *c, struct comm *parent, struct device_comm *dc, struct err *e)
{
	char what[80];
	struct device_wait p;
	snprintf(what, sizeof what, "the start of %s", library(c)->name);
	comm_device_wait_begin(c, &p);
	for (;;) {
		if (parent)
			lock_group(parent);
		int rc = library(c)->ready(dc, e);
		if (parent)
			unlock_group(parent);
		if (rc)
			return rc < 0 ? -1 : 0;
		if (comm_device_wait_poll(c, &p, what, e) < 0 || someone_is_gone(c, e))
			return -1;
	}
}

static int native_new(struct comm *c, struct err *e)
{
	struct device_group *d = c->device_group;
	struct native *n = calloc(1, sizeof *n);
	if (n)
		n->with = calloc((size_t)c->size * FLIGHTS, sizeof *n->with);
	if (!n || !n->with) {
		free(n);
		return err_set(e, ERR_NOMEM, "no memory for operations of %s", library(c)->name);
	}
	pthread_condattr_t monotonic;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&n->change, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_mutex_lock(&c->world->lock);
	d->native = n;
	pthread_mutex_unlock(&c->world->lock);
	return d->api->stream_open(d->device, &n->stream, e);
}

int comm_native_open(struct comm *c, const unsigned char key[DEVICE_KEY], struct err *e)
{
	struct device_group *d = c->device_group;
	if (native_new(c, e) < 0)
		return -1;
	if (library(c)->open(d->device, key, c->size, c->rank, &d->native->dc, e) < 0 ||
	    await_start(c, NULL, d->native->dc, e) < 0)
		return -1;
	return start_watcher(c, e);
}

int comm_native_split(struct comm *parent, int color, int key, struct comm *c, struct err *e)
{
	struct device_comm *dc = NULL;
	if ((c && native_new(c, e) < 0) || comm_native_sync(parent, e) < 0)
		return -1;
	lock_group(parent);
	struct native *from = parent->device_group->native;
	int rc = from->dc ? library(parent)->split(from->dc, color, key, &dc, e)
			  : comm_world_error(parent->world, e);
	unlock_group(parent);
	if (rc == 0)
		rc = await_start(c ? c : parent, parent, dc, e);
	if (c)
		c->device_group->native->dc = dc;
	else if (dc)
		library(parent)->close(dc);
	return rc < 0 || !c ? rc : start_watcher(c, e);
}

/* Whether a rank of this host may still read what this rank's library holds. */
static bool all_leave(const struct comm *c)
{
	for (int r = 0; r < c->size; r++) {
		struct seg_line *line = find_line(c, r);
		if (line && !atomic_load_explicit(&line->device_leaves, memory_order_acquire) &&
		    atomic_load_explicit(&line->state, memory_order_acquire) == SEG_HERE)
			return false;
	}
	return true;
}

enum parting { UNDER_WAY, FINISHING, GONE_QUIET };

/* One look further: all done here; then all of it sent; then the peers of this host as well. */
static int advance_leaving(struct comm *c, enum parting *at, struct err *e)
{
	struct native *n = c->device_group->native;
	struct seg_line *me = find_line(c, c->rank);
	int rc = reap_done(c, e);
	if (rc == 0 && *at == UNDER_WAY && !n->count) {
		*at = FINISHING;
		rc = library(c)->finish(n->dc, e);
	} else if (rc == 0 && *at == FINISHING && (rc = library(c)->ready(n->dc, e)) == 1) {
		*at = GONE_QUIET;
		if (me)
			atomic_store_explicit(&me->device_leaves, true, memory_order_release);
	}
	return rc;
}

/* An operation that is done here may still be under way at a peer, out of this rank's memory or not
 * yet sent: all leave together, or after a moment. */
static void leave_together(struct comm *c)
{
	struct native *n = c->device_group->native;
	struct device_wait p = { .deadline = clock_ns() + PARTING_NS };
	struct err why = ERR_INIT;
	enum parting at = UNDER_WAY;
	while (!world_failed(c->world) && !(at == GONE_QUIET && all_leave(c))) {
		lock_group(c);
		int rc = advance_leaving(c, &at, &why);
		unlock_group(c);
		if (rc < 0 || comm_device_wait_poll(c, &p, "closing", &why) < 0)
			break;
	}
	if (at != UNDER_WAY || world_failed(c->world))
		return;
	err_set(&why, ERR_ABORTED, "group %s was closed while %d operations were under way",
		c->name, n->count);
	comm_world_fail(c->world, &why);
}

void comm_native_close(struct comm *c)
{
	struct device_group *d = c->device_group;
	struct native *n = d->native;
	if (!n)
		return;
	if (n->watched) {
		leave_together(c);
		lock_group(c);
		n->leave = true;
		pthread_cond_signal(&n->change);
		unlock_group(c);
		pthread_join(n->thread, NULL);
	}
	end_library(c);
	if (n->stream)
		d->api->stream_close(d->device, n->stream);
	pthread_mutex_lock(&c->world->lock);
	d->native = NULL;
	pthread_mutex_unlock(&c->world->lock);
	pthread_cond_destroy(&n->change);
	free(n->with);
	free(n);
}
