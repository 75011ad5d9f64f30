/* Memory that the device's library reads and writes without copies. */
#include "libcomm/device/native.h"

#include <stdlib.h>

/* What a rank publishes before and after it registers. */
struct offer {
	int32_t how; /* enum device_reach: at best; then: it has */
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
		int32_t most = all[r].sizes == mine.sizes ? REACH_SYMMETRIC : REACH_LOCAL;
		most = all[r].how < most ? all[r].how : most;
		*how = most < (int32_t)*how ? (enum device_reach)most : *how;
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
	return rc ? rc : comm_native_await_library(c, "registering memory", e);
}

int comm_native_register(struct comm *c, const struct comm_memory *list, int n, struct err *e)
{
	struct native *native = c->device_group->native;
	const struct native_memory *before = native->registered;
	enum device_reach how, done;
	int rc = 0;
	if (agree(c, offer_of(c, list, n), &how, e))
		return -1;
	for (int i = 0; rc == 0 && how != REACH_NONE && i < n; i++)
		if (list[i].bytes)
			rc = register_one(c, &list[i], how, e);
	if (how != REACH_LOCAL)
		return rc ? -1 : how == REACH_SYMMETRIC;
	if (agree(c, (struct offer){ .how = rc ? REACH_NONE : how }, &done, e))
		return -1;
	if (done == how)
		return 1;
	comm_native_lock(c);
	comm_native_deregister(c, before, !native->dc);
	comm_native_unlock(c);
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
