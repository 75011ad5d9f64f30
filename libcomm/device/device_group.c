#include "libcomm/device/graph.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- Waiting for the device --- */

enum { LOOKS_AWAKE = 64, NAP_SHORTEST_NS = 20000, NAP_LONGEST_NS = 1000000 };

void comm_device_wait_begin(struct comm *c, struct device_wait *p)
{
	double limit = c->world->timeout_s;
	*p = (struct device_wait){ .deadline = limit > 0 ? clock_ns() + (int64_t)(limit * 1e9)
							 : 0 };
}

int comm_device_wait_poll(struct comm *c, struct device_wait *p, const char *what, struct err *e)
{
	if (world_failed(c->world))
		return comm_world_error(c->world, e);
	if (p->deadline && clock_ns() >= p->deadline)
		return err_set(e, ERR_TIMEOUT, "%s did not end within %g s", what,
			       c->world->timeout_s);
	if (p->looks++ < LOOKS_AWAKE) {
		sched_yield();
		return 0;
	}
	long nap = (long)(p->looks - LOOKS_AWAKE) * NAP_SHORTEST_NS;
	struct timespec t = { 0, nap < NAP_LONGEST_NS ? nap : NAP_LONGEST_NS };
	nanosleep(&t, NULL);
	return 0;
}

int comm_device_group_await(struct comm *c, void *event, const char *what, struct err *e)
{
	struct device_group *d = c->device_group;
	struct device_wait p;
	comm_device_wait_begin(c, &p);
	for (int rc; (rc = d->api->event_done(d->device, event, e)) != 1;)
		if (rc < 0 || comm_device_wait_poll(c, &p, what, e))
			return -1;
	return 0;
}

/* --- Marks --- */

static struct stream_mark *new_mark(struct device_group *d, struct err *e)
{
	struct stream_mark *m = calloc(1, sizeof *m);
	if (!m) {
		err_set(e, ERR_NOMEM, "no memory for an operation on device memory");
		return NULL;
	}
	if (d->api->event_open(d->device, &m->begin, e))
		goto free_mark;
	if (d->api->event_open(d->device, &m->end, e))
		goto close_begin;
	pthread_mutex_lock(&d->lock);
	m->made = d->marks;
	d->marks = m;
	pthread_mutex_unlock(&d->lock);
	return m;
close_begin:
	d->api->event_close(d->device, m->begin);
free_mark:
	free(m);
	return NULL;
}

void comm_stream_mark_unref(struct device_group *d, struct stream_mark *m)
{
	if (--m->users == 0) {
		m->next = d->free_marks;
		d->free_marks = m;
	}
}

static void release_mark(struct device_group *d, struct stream_mark *m)
{
	pthread_mutex_lock(&d->lock);
	comm_stream_mark_unref(d, m);
	pthread_mutex_unlock(&d->lock);
}

static int take_mark(struct comm *c, struct stream_mark **out, struct err *e)
{
	struct device_group *d = c->device_group;
	pthread_mutex_lock(&d->lock);
	struct stream_mark *m = d->free_marks;
	if (m)
		d->free_marks = m->next;
	pthread_mutex_unlock(&d->lock);
	if (!m && !(m = new_mark(d, e)))
		return -1;
	m->users = 1;
	m->recorded = false;
	if (d->api->event_record(d->device, m->begin, d->stream, e)) {
		release_mark(d, m);
		return -1;
	}
	*out = m;
	return 0;
}

int comm_device_group_join(struct comm *c, struct stream_mark *m, struct err *e)
{
	struct device_group *d = c->device_group;
	bool earlier = !m->recorded && (comm_graph_records() || comm_graph_repeats());
	/* The end of the recording has joined what was recorded. */
	bool joined = m->recorded && !comm_graph_records();
	int rc = joined    ? 0
		 : earlier ? comm_graph_await(c, m, e)
			   : d->api->stream_wait(d->device, d->stream, m->end, e);
	release_mark(d, m);
	return rc;
}

static void close_marks(struct device_group *d)
{
	while (d->marks) {
		struct stream_mark *m = d->marks;
		d->marks = m->made;
		d->api->event_close(d->device, m->begin);
		d->api->event_close(d->device, m->end);
		free(m);
	}
}

/* --- Opening --- */

/* The values that a rank publishes before the choice. */
struct profile {
	char device[DEVICE_ID];
	char wish[16];  /* "auto", "staged", or the library's name */
	uint8_t usable; /* whether the library can be used */
};

static int host_broadcast(struct comm *c, void *data, size_t bytes, struct err *e)
{
	struct op op = {
		.kind = OP_BROADCAST, .in = data, .out = data, .count = bytes, .type = COMM_U8
	};
	return comm_group_run_host(c, &op, e);
}

static struct profile describe_device(struct device_group *d, struct err *why)
{
	const struct device_collectives *library = d->api->collectives;
	struct profile p = { .usable = 0 };
	d->api->identify(d->device, p.device);
	snprintf(p.wish, sizeof p.wish, "%s", d->backend);
	if (library)
		p.usable = library->usable(d->device, why) == 0;
	else
		err_set(why, ERR_UNSUPPORTED, "%s has no library of collectives", d->api->name);
	return p;
}

static int by_device(const void *a, const void *b)
{
	return strcmp(((const struct profile *)a)->device, ((const struct profile *)b)->device);
}

/* Whether all ranks can use the device's own library. If not, sets the reason as this rank sees it.
 * Sorts all. */
static bool library_fits(struct comm *c, struct profile *all, const struct err *mine,
			 struct err *why)
{
	char who[160];
	for (int r = 0; r < c->size; r++)
		if (!all[r].usable) {
			err_set(why, ERR_UNSUPPORTED, "%s cannot use it%s%s",
				comm_group_rank_text(c, r, who), r == c->rank ? ": " : "",
				r == c->rank ? mine->text : "");
			return false;
		}
	qsort(all, (size_t)c->size, sizeof *all, by_device);
	for (int r = 1; r < c->size; r++)
		if (!by_device(&all[r - 1], &all[r])) {
			err_set(why, ERR_UNSUPPORTED,
				"two ranks share the device %s; it takes one rank a device",
				all[r].device);
			return false;
		}
	return true;
}

/* Chooses from the profiles that all ranks published. 1: the library; 0: staged. */
static int choose_backend(struct comm *c, struct profile *all, const struct err *mine,
			  struct err *e)
{
	char who[160];
	struct err why = ERR_INIT;
	for (int r = 0; r < c->size; r++) {
		all[r].device[DEVICE_ID - 1] = all[r].wish[sizeof all[r].wish - 1] = '\0';
		if (strcmp(all[r].wish, c->device_group->backend))
			return err_set(e, ERR_PROTO, "%s asks for the backend %s, this rank for %s",
				       comm_group_rank_text(c, r, who), all[r].wish,
				       c->device_group->backend);
	}
	if (!strcmp(c->device_group->backend, "staged"))
		return 0;
	if (library_fits(c, all, mine, &why))
		return 1;
	if (!strcmp(c->device_group->backend, "auto"))
		return 0;
	return err_set(e, ERR_UNSUPPORTED, "backend %s: %s; \"staged\" works",
		       c->device_group->backend, why.text);
}

static int open_native(struct comm *c, struct err *e)
{
	struct device_group *d = c->device_group;
	unsigned char key[DEVICE_KEY] = { 0 };
	if (c->rank == 0 && d->api->collectives->new_key(d->device, key, e))
		return -1;
	return host_broadcast(c, key, sizeof key, e) ? -1 : comm_native_open(c, key, e);
}

static int open_backend(struct comm *c, struct err *e)
{
	struct err mine = ERR_INIT;
	struct profile me = describe_device(c->device_group, &mine),
		       *all = calloc((size_t)c->size, sizeof *all);
	if (!all)
		return err_set(e, ERR_NOMEM, "no memory for the devices of %d ranks", c->size);
	int rc = comm_group_all_gather_host(c, &me, all, sizeof me, e);
	if (rc == 0)
		rc = choose_backend(c, all, &mine, e);
	free(all);
	return rc < 0 ? -1 : rc ? open_native(c, e) : comm_staged_open(c, e);
}

static struct device_group *device_group_new(const struct comm_device_options *opt, struct err *e)
{
	struct device_group *d = calloc(1, sizeof *d);
	if (!d) {
		err_set(e, ERR_NOMEM, "no memory for a group on device memory");
		return NULL;
	}
	d->api = opt->device;
	d->index = opt->index;
	d->own = opt->processors;
	snprintf(d->backend, sizeof d->backend, "%s",
		 opt->backend && *opt->backend ? opt->backend : "auto");
	pthread_mutex_init(&d->lock, NULL);
	if (d->api->open(d->index, &d->device, e) == 0)
		return d;
	pthread_mutex_destroy(&d->lock);
	free(d);
	return NULL;
}

/* Takes the world's lock, because another thread may interrupt the group. */
static void set_device_group(struct comm *c, struct device_group *d)
{
	pthread_mutex_lock(&c->world->lock);
	c->device_group = d;
	pthread_mutex_unlock(&c->world->lock);
}

static int device_group_open(struct comm *c, const struct comm_device_options *opt, struct err *e)
{
	struct device_group *d = device_group_new(opt, e);
	if (!d)
		return -1;
	set_device_group(c, d);
	return open_backend(c, e);
}

int comm_device_group_split(struct comm *parent, int color, int key, struct comm *c, struct err *e)
{
	struct device_group *from = parent->device_group;
	struct comm_device_options opt = { .device = from->api,
					   .index = from->index,
					   .backend = from->backend };
	if (c) {
		struct device_group *d = device_group_new(&opt, e);
		if (!d)
			return -1;
		d->stream = from->stream;
		set_device_group(c, d);
	}
	if (from->native)
		return comm_native_split(parent, color, key, c, e);
	return c ? open_backend(c, e) : 0;
}

void comm_device_group_close(struct comm *c)
{
	struct device_group *d = c->device_group;
	if (!d)
		return;
	comm_native_close(c);
	comm_staged_close(c);
	set_device_group(c, NULL);
	close_marks(d);
	if (d->relay)
		d->api->stream_close(d->device, d->relay);
	d->api->close(d->device);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

void comm_device_group_interrupt(struct comm *c)
{
	if (c->device_group)
		comm_native_interrupt(c);
}

const char *comm_device_group_backend(const struct comm *c)
{
	return c->device_group->native ? c->device_group->api->collectives->name : "staged";
}

/* --- Operations --- */

static int run_marked(struct comm *c, const struct op *ops, int n, struct stream_mark *m,
		      struct err *e)
{
	if (c->device_group->native)
		return comm_native_run(c, ops, n, m, e);
	for (int i = 0; i < n; i++)
		if (comm_staged_run(c, &ops[i], m, e))
			return -1;
	return 0;
}

/* Runs the operations on the caller's own thread, between mark and join. */
static int run_now(struct comm *c, const struct op *ops, int n, struct err *e)
{
	struct stream_mark *m;
	if (take_mark(c, &m, e))
		return -1;
	if (run_marked(c, ops, n, m, e) == 0)
		return comm_device_group_join(c, m, e);
	release_mark(c->device_group, m);
	return -1;
}

int comm_device_group_fail(struct comm *c, const char *what, struct err *why, struct err *e)
{
	if (!world_failed(c->world)) {
		err_prefix(why, "%s of group %s (rank %d of %d)", what, c->name, c->rank, c->size);
		comm_world_fail(c->world, why);
	}
	return comm_world_error(c->world, e);
}

int comm_device_group_run(struct comm *c, const struct op *ops, int n, struct err *e)
{
	struct err why = ERR_INIT;
	if (world_failed(c->world))
		return comm_world_error(c->world, e);
	if ((ops->mark ? run_marked(c, ops, n, ops->mark, &why) : run_now(c, ops, n, &why)) == 0)
		return 0;
	return comm_device_group_fail(c, comm_op_word(ops->kind), &why, e);
}

int comm_device_group_mark(struct comm *c, struct op *op, struct err *e)
{
	struct err why = ERR_INIT;
	return take_mark(c, &op->mark, &why)
		       ? comm_device_group_fail(c, comm_op_word(op->kind), &why, e)
		       : 0;
}

/* --- API --- */

int comm_on_device(struct comm *c, const struct comm_device_options *opt, const char *name,
		   struct comm **out, struct err *e)
{
	struct err why = ERR_INIT;
	struct comm *new;
	const struct device_collectives *library = opt->device->collectives;
	const char *wish = opt->backend && *opt->backend ? opt->backend : "auto";
	if (c->device_group)
		return err_set(e, ERR_USAGE, "group %s is on a device already; split it", c->name);
	if (strcmp(wish, "auto") && strcmp(wish, "staged") &&
	    (!library || strcmp(wish, library->name)))
		return err_set(e, ERR_USAGE, "backend \"%s\" is none of auto, staged%s%s", wish,
			       library ? ", " : "", library ? library->name : "");
	if (comm_split(c, 0, c->rank, name, &new, e))
		return -1;
	if (device_group_open(new, opt, &why)) {
		comm_device_group_fail(new, "opening the device", &why, e);
		comm_group_free(new);
		return -1;
	}
	*out = new;
	return 0;
}

int comm_register(struct comm *c, const struct comm_memory *list, int n, struct err *e)
{
	struct err why = ERR_INIT;
	if (!c->device_group || !c->device_group->native)
		return 0;
	if (world_failed(c->world))
		return comm_world_error(c->world, e);
	int rc = comm_native_register(c, list, n, &why);
	if (rc < 0)
		return comm_device_group_fail(c, "registering memory", &why, e);
	if (why.code && e)
		*e = why;
	return rc;
}

void comm_processors(struct comm *c, int most)
{
	if (c->device_group)
		c->device_group->processors = most;
}

void comm_stream(struct comm *c, void *stream)
{
	if (c->device_group)
		c->device_group->stream = stream;
}

int comm_sync(struct comm *c, struct err *e)
{
	struct err why = ERR_INIT;
	if (world_failed(c->world))
		return comm_world_error(c->world, e);
	if (!c->device_group ||
	    (c->device_group->native ? comm_native_sync(c, &why) : comm_staged_sync(c, &why)) == 0)
		return 0;
	return comm_device_group_fail(c, "waiting for the operations", &why, e);
}
