#include "libcomm/device/native.h"

#include "base/clock.h"
#include "libcomm/device/graph.h"
#include "libcomm/flight/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTING_NS = 1000000000 };

const struct device_collectives *comm_native_library(const struct comm *c)
{
	return c->device_group->api->collectives;
}

void comm_native_lock(struct comm *c)
{
	pthread_mutex_lock(&c->device_group->lock);
}

void comm_native_unlock(struct comm *c)
{
	pthread_mutex_unlock(&c->device_group->lock);
}

struct seg_line *comm_native_line(const struct comm *c, int rank)
{
	return c->segment.head && c->local[rank] >= 0 ? &c->segment.line[c->local[rank]] : NULL;
}

bool comm_native_has_reached(const _Atomic uint32_t *word, uint32_t number)
{
	return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - number) >= 0;
}

/* --- Operations in flight --------------------------------------------------------------------- */

/* Marks the ranks that the operation needs. */
static void add_ranks(const struct comm *c, const struct op *op, bool *with)
{
	for (int r = 0; r < c->size && op->kind != OP_P2P; r++)
		with[r] = r != c->rank;
	for (int i = 0; i < op->n && op->kind == OP_P2P; i++)
		if (op->p2p[i].peer != c->rank)
			with[op->p2p[i].peer] = true;
}

/* `count` collectives, or messages, are one flight. It needs the ranks of the first one. */
static struct native_flight *push_flight(struct comm *c, const struct op *first, int count,
					 struct stream_mark *m)
{
	struct native *n = c->device_group->native;
	struct seg_line *me = comm_native_line(c, c->rank);
	int i = (n->first + n->count++) % FLIGHTS;
	struct native_flight *f = &n->flight[i];
	bool message = first->kind == OP_P2P;
	*f = (struct native_flight){ .kind = first->kind,
				     .number = (message ? n->messages : n->collectives) + 1,
				     .mark = m,
				     .since = clock_ns(),
				     .with = n->with + (size_t)i * (size_t)c->size };
	*(message ? &n->messages : &n->collectives) += (uint32_t)count;
	f->last = f->number + (uint32_t)count - 1;
	m->users++;
	memset(f->with, 0, (size_t)c->size * sizeof *f->with);
	add_ranks(c, first, f->with);
	if (me && !message)
		atomic_store_explicit(&me->device_called, f->last, memory_order_release);
	return f;
}

static void pop_flight(struct comm *c)
{
	struct native *n = c->device_group->native;
	struct native_flight *f = &n->flight[n->first];
	struct seg_line *me = comm_native_line(c, c->rank);
	if (me && f->kind != OP_P2P)
		atomic_store_explicit(&me->device_done, f->last, memory_order_release);
	comm_stream_mark_unref(c->device_group, f->mark);
	n->first = (n->first + 1) % FLIGHTS;
	n->count--;
}

int comm_native_reap(struct comm *c, struct err *e)
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

/* --- Operations --------------------------------------------------------------------- */

static bool someone_is_gone(struct comm *c, struct err *e)
{
	for (int r = 0; r < c->size; r++)
		if (r != c->rank && comm_native_line(c, r) && comm_group_check_rank(c, r, true, e))
			return true;
	return false;
}

int comm_native_await_library(struct comm *c, const char *what, struct err *e)
{
	struct native *n = c->device_group->native;
	struct device_wait p = { 0 };
	if (what)
		comm_device_wait_begin(c, &p);
	for (;;) {
		comm_native_lock(c);
		int rc = n->dc ? comm_native_library(c)->ready(n->dc, e) : 0;
		comm_native_unlock(c);
		if (rc)
			return rc < 0 ? -1 : 0;
		if (comm_device_wait_poll(c, &p, what ? what : "", e) ||
		    (what && someone_is_gone(c, e)))
			return -1;
	}
}

/* The watcher knows nothing of an operation that is recorded. */
static int await_library(struct comm *c, struct err *e)
{
	return comm_native_await_library(
		c, comm_graph_records() ? "what is recorded in a graph" : NULL, e);
}

/* Waits until at most `most` operations are in flight. */
static int await_flights(struct comm *c, int most, struct err *e)
{
	struct native *n = c->device_group->native;
	struct device_wait p = { 0 };
	for (;;) {
		comm_native_lock(c);
		int rc = comm_native_reap(c, e), left = n->count;
		comm_native_unlock(c);
		if (rc < 0)
			return -1;
		if (left <= most)
			return 0;
		if (comm_device_wait_poll(c, &p, "", e))
			return -1;
	}
}

int comm_native_sync(struct comm *c, struct err *e)
{
	return await_flights(c, 0, e);
}

static void begin_record(struct comm *c, const struct op *op, uint32_t number)
{
	struct op_signature sign = comm_op_sign(op, number, c->size);
	comm_recorder_begin(c->recorder, op, &sign, comm_native_library(c)->name);
}

/* Under the lock. In the flight recorder the last one runs until all are queued. */
static int queue_operations(struct comm *c, const struct op *ops, int count, struct stream_mark *m,
			    struct err *e)
{
	struct device_group *d = c->device_group;
	struct native *n = d->native;
	uint32_t number = push_flight(c, ops, count, m)->number;
	for (int i = 0; i < count; i++) {
		begin_record(c, &ops[i], number + (uint32_t)i);
		if (i + 1 < count)
			comm_recorder_end(c->recorder, false);
	}
	pthread_cond_signal(&n->change);
	if (d->api->stream_wait(d->device, n->stream, m->begin, e))
		return -1;
	return comm_native_library(c)->queue(n->dc, ops, count, n->stream, e);
}

static int note_all(struct comm *c, const struct op *ops, int count, struct stream_mark *m,
		    struct err *e)
{
	for (int i = 0; i < count; i++)
		if (comm_graph_note(c, &ops[i], m, e))
			return -1;
	return 0;
}

int comm_native_record(struct comm *c, const struct op *ops, int count, struct stream_mark *m,
		       struct err *e)
{
	struct device_group *d = c->device_group;
	struct native *n = d->native;
	m->recorded = true;
	comm_native_lock(c);
	int rc = !n->dc ? comm_world_error(c->world, e)
		 : d->api->stream_wait(d->device, n->stream, m->begin, e)
			 ? -1
			 : comm_native_library(c)->queue(n->dc, ops, count, n->stream, e);
	comm_native_unlock(c);
	return rc || await_library(c, e) || d->api->event_record(d->device, m->end, n->stream, e)
		       ? -1
		       : note_all(c, ops, count, m, e);
}

int comm_native_await_room(struct comm *c, struct err *e)
{
	return await_flights(c, FLIGHTS - 2, e);
}

int comm_native_launch(struct comm *c, const struct op *const *ops, int count, bool others,
		       struct stream_mark *m, struct err *e)
{
	struct native *n = c->device_group->native;
	comm_native_lock(c);
	int rc = n->dc ? 0 : comm_world_error(c->world, e);
	struct native_flight *f = rc ? NULL : push_flight(c, ops[0], count, m);
	uint32_t first = f ? f->number : 0;
	for (int i = 1; f && i < count; i++)
		add_ranks(c, ops[i], f->with);
	if (f) {
		f->graph = true;
		f->others = others;
		n->launching = f->since;
	}
	pthread_cond_signal(&n->change);
	comm_native_unlock(c);
	for (int i = 0; rc == 0 && i < count; i++) {
		begin_record(c, ops[i], first + (uint32_t)i);
		comm_recorder_end(c->recorder, false);
	}
	return rc;
}

/* The flight that was pushed last with this mark. */
static struct native_flight *flight_of(struct native *n, const struct stream_mark *m)
{
	int i = n->count - 1;
	while (i > 0 && n->flight[(n->first + i) % FLIGHTS].mark != m)
		i--;
	return &n->flight[(n->first + i) % FLIGHTS];
}

/* Called under the lock, after the flight's last operation. */
static int end_flight(struct comm *c, struct stream_mark *m, void *stream, struct err *e)
{
	struct device_group *d = c->device_group;
	struct native *n = d->native;
	struct native_flight *f = flight_of(n, m);
	int rc = d->api->event_record(d->device, m->end, stream, e);
	f->queued = rc == 0;
	f->since = 0;
	return rc;
}

int comm_native_launched(struct comm *c, struct stream_mark *m, struct err *e)
{
	struct device_group *d = c->device_group;
	comm_native_lock(c);
	int rc = end_flight(c, m, d->stream, e);
	comm_stream_mark_unref(d, m);
	d->native->launching = 0;
	comm_native_unlock(c);
	return rc;
}

void comm_native_not_launched(struct comm *c)
{
	comm_native_lock(c);
	c->device_group->native->launching = 0;
	comm_native_unlock(c);
}

int comm_native_run(struct comm *c, const struct op *ops, int count, struct stream_mark *m,
		    struct err *e)
{
	struct native *n = c->device_group->native;
	if (comm_graph_records())
		return comm_native_record(c, ops, count, m, e);
	if (await_flights(c, FLIGHTS - 1, e))
		return -1;
	comm_native_lock(c);
	if (!n->dc) {
		comm_native_unlock(c);
		return comm_world_error(c->world, e);
	}
	int rc = queue_operations(c, ops, count, m, e);
	comm_native_unlock(c);
	if (rc == 0)
		rc = await_library(c, e);
	comm_recorder_end(c->recorder, rc < 0); /* this thread knows only that it is queued */
	if (rc < 0)
		return -1;
	comm_native_lock(c);
	rc = end_flight(c, m, n->stream, e);
	comm_native_unlock(c);
	return rc;
}

/* --- Opening and closing --- */

/* Waits until a new communicator is ready. parent: it is split from that one, whose lock guards
 * both, and whose watcher may end it meanwhile. */
static int await_start(struct comm *c, struct comm *parent, struct device_comm *dc, struct err *e)
{
	char what[80];
	struct device_wait p;
	snprintf(what, sizeof what, "the start of %s", comm_native_library(c)->name);
	comm_device_wait_begin(c, &p);
	for (;;) {
		if (parent)
			comm_native_lock(parent);
		bool ended = parent && !parent->device_group->native->dc;
		int rc = ended ? comm_world_error(parent->world, e)
			       : comm_native_library(c)->ready(dc, e);
		if (parent)
			comm_native_unlock(parent);
		if (rc)
			return rc < 0 ? -1 : 0;
		if (comm_device_wait_poll(c, &p, what, e) || someone_is_gone(c, e))
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
		return err_set(e, ERR_NOMEM, "no memory for operations of %s",
			       comm_native_library(c)->name);
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
	const struct device_comm_options opt = { .name = c->name, .processors = d->own };
	if (native_new(c, e))
		return -1;
	if (comm_native_library(c)->open(d->device, key, c->size, c->rank, &opt, &d->native->dc,
					 e) ||
	    await_start(c, NULL, d->native->dc, e))
		return -1;
	return comm_native_watch(c, e);
}

int comm_native_split(struct comm *parent, int color, int key, struct comm *c, struct err *e)
{
	struct device_comm *dc = NULL;
	if ((c && native_new(c, e)) || comm_native_sync(parent, e))
		return -1;
	comm_native_lock(parent);
	struct native *from = parent->device_group->native;
	const struct device_comm_options opt = { .name = c ? c->name : parent->name,
						 .processors = parent->device_group->processors };
	int rc = from->dc ? comm_native_library(parent)->split(from->dc, color, key, &opt, &dc, e)
			  : comm_world_error(parent->world, e);
	comm_native_unlock(parent);
	if (rc == 0)
		rc = await_start(c ? c : parent, parent, dc, e);
	if (c)
		c->device_group->native->dc = dc;
	else if (dc)
		comm_native_library(parent)->close(dc);
	return rc < 0 || !c ? rc : comm_native_watch(c, e);
}

/* Whether no rank of this host can still read memory that this rank's library holds. */
static bool all_leave(const struct comm *c)
{
	for (int r = 0; r < c->size; r++) {
		struct seg_line *line = comm_native_line(c, r);
		if (line && !atomic_load_explicit(&line->device_leaves, memory_order_acquire) &&
		    atomic_load_explicit(&line->state, memory_order_acquire) == SEG_HERE)
			return false;
	}
	return true;
}

enum parting { UNDER_WAY, FINISHING, GONE_QUIET };

/* The next stage of leaving. The stages are: all operations are done here; all data is sent; the
 * peers of this host have reached the same stage. Memory is deregistered before the library
 * finishes, which ends the threads that it deregisters with. */
static int advance_leaving(struct comm *c, enum parting *at, struct err *e)
{
	struct native *n = c->device_group->native;
	struct seg_line *me = comm_native_line(c, c->rank);
	int rc = comm_native_reap(c, e);
	if (rc == 0 && *at == UNDER_WAY && !n->count) {
		*at = FINISHING;
		comm_native_deregister(c, NULL, false);
		rc = comm_native_library(c)->finish(n->dc, e);
	} else if (rc == 0 && *at == FINISHING &&
		   (rc = comm_native_library(c)->ready(n->dc, e)) == 1) {
		*at = GONE_QUIET;
		if (me)
			atomic_store_explicit(&me->device_leaves, true, memory_order_release);
	}
	return rc;
}

/* An operation that is done here may still be in progress at a peer, reading this rank's memory or
 * waiting for its data. So all ranks leave together, or after PARTING_NS. */
static void leave_together(struct comm *c)
{
	struct native *n = c->device_group->native;
	struct device_wait p = { .deadline = clock_ns() + PARTING_NS };
	struct err why = ERR_INIT;
	enum parting at = UNDER_WAY;
	while (!world_failed(c->world) && !(at == GONE_QUIET && all_leave(c))) {
		comm_native_lock(c);
		int rc = advance_leaving(c, &at, &why);
		comm_native_unlock(c);
		if (rc < 0 || comm_device_wait_poll(c, &p, "closing", &why))
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
		comm_native_lock(c);
		n->leave = true;
		pthread_cond_signal(&n->change);
		comm_native_unlock(c);
		pthread_join(n->thread, NULL);
	}
	comm_native_lock(c);
	comm_native_end_library(c);
	comm_native_deregister(c, NULL, true);
	comm_native_unlock(c);
	if (n->stream)
		d->api->stream_close(d->device, n->stream);
	pthread_mutex_lock(&c->world->lock);
	d->native = NULL;
	pthread_mutex_unlock(&c->world->lock);
	pthread_cond_destroy(&n->change);
	free(n->with);
	free(n);
}
