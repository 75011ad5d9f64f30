/* Memory that the device's library reads and writes without copies. */
#include "libcomm/device/native.h"

#include <stdlib.h>

/* What a rank publishes before and after it registers. */
struct offer {
	/* enum device_reach. before: the best way in which this rank can register; after: the way
	 * in which it has */
	int64_t how;
	uint64_t sizes;
};

static struct offer offer_of(const struct comm *c, const struct comm_memory *list, int n)
{
	const struct device_collectives *library = comm_native_library(c);
	struct offer o = { .how = library->reach ? library->reach() : REACH_NONE };
	for (int i = 0; i < n; i++) {
		o.sizes = (o.sizes ^ list[i].bytes) * UINT64_C(0x100000001b3); /* FNV-1a */
		if (list[i].bytes && !list[i].reachable)
			o.how = REACH_NONE;
	}
	return o;
}

/* Sets *how to the best way of all ranks. Unequal sizes are not symmetric. */
static int agree(struct comm *c, struct offer mine, enum device_reach *how, struct err *e)
{
	struct offer *all = calloc((size_t)c->size, sizeof *all);
	if (!all)
		return err_set(e, ERR_NOMEM, "no memory for the offers of %d ranks", c->size);
	int rc = comm_group_all_gather_host(c, &mine, all, sizeof mine, e);
	*how = REACH_SYMMETRIC;
	for (int r = 0; rc == 0 && r < c->size; r++) {
		int64_t most = all[r].sizes == mine.sizes ? REACH_SYMMETRIC : REACH_LOCAL;
		most = all[r].how < most ? all[r].how : most;
		*how = most < (int64_t)*how ? (enum device_reach)most : *how;
	}
	free(all);
	return rc;
}

static int register_one(struct comm *c, const struct comm_memory *memory, enum device_reach how,
			struct err *e)
{
	struct native *n = c->device_group->native;
	struct native_memory *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(e, ERR_NOMEM, "no memory to register a buffer");
	m->how = how;
	comm_native_lock(c);
	int rc = n->dc ? comm_native_library(c)->register_memory(n->dc, memory, how, &m->handle, e)
		       : comm_world_error(c->world, e);
	if (rc == 0) {
		m->next = n->registered;
		n->registered = m;
	}
	comm_native_unlock(c);
	if (rc)
		free(m);
	return rc ? rc : comm_native_await_library(c, "the library", e);
}

static int register_all(struct comm *c, const struct comm_memory *list, int n,
			enum device_reach how, struct err *e)
{
	for (int i = 0; i < n; i++)
		if (list[i].bytes && register_one(c, &list[i], how, e))
			return -1;
	return 0;
}

/* Drops what this rank has registered since `before`. */
static void drop(struct comm *c, const struct native_memory *before)
{
	comm_native_lock(c);
	comm_native_deregister(c, before, !c->device_group->native->dc);
	comm_native_unlock(c);
}

/* Windows, if the library makes all of them on all ranks. Sets *how to what is possible
 * otherwise. */
static int register_windows(struct comm *c, const struct comm_memory *list, int n,
			    enum device_reach *how, struct err *e)
{
	const struct native *native = c->device_group->native;
	const struct native_memory *before = native->registered;
	struct offer done = { .how = REACH_SYMMETRIC };
	if (register_all(c, list, n, REACH_SYMMETRIC, e))
		return -1;
	for (const struct native_memory *m = native->registered; m != before; m = m->next)
		if (!m->handle)
			done.how = REACH_LOCAL;
	if (agree(c, done, how, e))
		return -1;
	if (*how != REACH_SYMMETRIC)
		drop(c, before);
	return 0;
}

int comm_native_register(struct comm *c, const struct comm_memory *list, int n, struct err *e)
{
	const struct native_memory *before = c->device_group->native->registered;
	enum device_reach how, done;
	if (agree(c, offer_of(c, list, n), &how, e) ||
	    (how == REACH_SYMMETRIC && register_windows(c, list, n, &how, e)))
		return -1;
	if (how != REACH_LOCAL)
		return how == REACH_SYMMETRIC;
	int rc = register_all(c, list, n, how, e);
	if (agree(c, (struct offer){ .how = rc ? REACH_NONE : how }, &done, e))
		return -1;
	if (done == how)
		return 1;
	drop(c, before);
	return 0;
}

void comm_native_deregister(struct comm *c, const struct native_memory *before, bool ended)
{
	struct native *n = c->device_group->native;
	while (n->registered != before) {
		struct native_memory *m = n->registered;
		n->registered = m->next;
		if (!ended && m->handle)
			comm_native_library(c)->deregister(n->dc, m->handle, m->how);
		free(m);
	}
}
